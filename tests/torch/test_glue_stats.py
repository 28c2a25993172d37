# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own functions answer, with all of its keys and the relations that its allocator keeps."""

KEYS = """
    import torch
    {install}
    x = torch.ones(1000, device="cuda")
    def flat(stats):
        return sorted(stats)
    nested = torch.cuda.memory_stats_as_nested_dict()
    result(flat=flat(torch.cuda.memory_stats()), nested=sorted(map(str, nested)),
           inner=sorted(nested["allocated_bytes"]["all"]), summary=torch.cuda.memory_summary().splitlines()[0:2],
           backend=torch.cuda.get_allocator_backend())
"""


def test_all_keys_of_the_installed_pytorch(run):
    native = run(KEYS.format(install=""), install=False)
    ours = run(KEYS.format(install="import seamalloc; seamalloc.install()"), install=False)
    assert native["backend"] == "native" and ours["backend"] == "pluggable"
    assert set(native["flat"]) <= set(ours["flat"])
    assert set(native["nested"]) <= set(ours["nested"])
    assert native["inner"] == ours["inner"] and native["summary"] == ours["summary"]


def test_figures_move_as_pytorchs_do(run):
    """Small, large and empty requests one after another: directions, peaks, totals, and the end equals the start."""
    done = run("""
        import random
        torch.zeros(1, device="cuda")
        random.seed(1)
        m = torch.cuda.memory_stats
        start = m()
        peak = start["allocated_bytes.all.peak"]
        live = []
        for step in range(300):
            before = m()["allocated_bytes.all.current"]
            if live and random.random() < 0.45:
                live.pop(random.randrange(len(live)))
                assert m()["allocated_bytes.all.current"] <= before
            else:
                size = random.choice((0, 1, 513, 100_000, 1 << 20, (1 << 20) + 1, 7 << 20))
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                grown = m()["allocated_bytes.all.current"] - before
                assert grown == (size + 511) // 512 * 512, (size, grown)
            now = m()
            for level in ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes", "allocation"):
                for kind in ("all", "small_pool", "large_pool"):
                    figure = {name: now[f"{level}.{kind}.{name}"] for name in ("current", "peak", "allocated", "freed")}
                    assert figure["current"] == figure["allocated"] - figure["freed"], (level, kind, figure)
                    assert 0 <= figure["current"] <= figure["peak"]
                if level != "reserved_bytes":
                    parts = now[f"{level}.small_pool.current"] + now[f"{level}.large_pool.current"]
                    assert parts == now[f"{level}.all.current"], level
            levels = [now[f"{level}_bytes.all.current"] for level in ("allocated", "active", "reserved")]
            assert levels == sorted(levels)
            assert now["allocated_bytes.all.peak"] >= peak
            peak = now["allocated_bytes.all.peak"]
        assert torch.cuda.memory_allocated() == m()["allocated_bytes.all.current"]
        assert torch.cuda.max_memory_allocated() == peak == torch.cuda.memory.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
        assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved() == torch.cuda.memory_cached()
        live.clear()
        assert torch.cuda.max_memory_allocated() > torch.cuda.memory_allocated()
        torch.cuda.reset_max_memory_allocated()
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
        end = m()
        result(start=start["allocated_bytes.all.current"], end=end["allocated_bytes.all.current"])
        torch.cuda.reset_accumulated_memory_stats()
        after = m()
        result(freed=after["allocated_bytes.all.freed"], current=after["allocated_bytes.all.current"])
        torch.cuda.empty_cache()
        seamalloc.validate()
    """)
    assert done["start"] == done["end"] == done["current"]
    assert done["freed"] == 0


def test_names_imported_before_install_and_accelerator(run):
    done = run(
        """
        from torch.cuda import memory_allocated, max_memory_reserved
        import torch, seamalloc
        seamalloc.install()
        x = torch.ones(1 << 20, device="cuda")
        assert memory_allocated() == 4 << 20 == torch.cuda.memory_allocated("cuda:0")
        assert memory_allocated(torch.device("cuda", 0)) == memory_allocated(0)
        assert max_memory_reserved() == torch.cuda.memory_reserved()
        theirs = torch.accelerator.memory_stats()
        assert theirs["allocated_bytes.all.current"] == torch.accelerator.memory_allocated() == 4 << 20
        del x
        torch.accelerator.reset_peak_memory_stats()
        assert torch.accelerator.max_memory_allocated() == 0
        ours = seamalloc.memory_stats()
        assert ours == torch.cuda.memory_stats()
        try:
            torch.cuda.memory_allocated(7)
        except Exception as error:
            result(text=str(error))
        """,
        install=False,
    )
    assert "7" in done["text"] or "device" in done["text"].lower()


def test_what_is_not_served_says_so(run):
    done = run("""
        torch.ones(1, device="cuda")
        texts = {}
        for name, call in {
            "snapshot": torch.cuda.memory_snapshot,
            "history": lambda: torch.cuda.memory._record_memory_history(),
            "pool": lambda: torch.cuda.MemPool(),
        }.items():
            try:
                call()
                texts[name] = ""
            except RuntimeError as error:
                texts[name] = str(error)
        result(texts=texts, address=torch.ones(8, device="cuda").data_ptr())
    """)
    assert all("not yet support" in text for text in done["texts"].values()), done["texts"]
    assert done["address"] != 0


def test_stats_document_and_table(run):
    done = run("""
        x = torch.ones(3 << 20, device="cuda")
        with seamalloc.phase("work"):
            y = torch.ones(1 << 20, device="cuda")
        one, every = seamalloc.stats(0), seamalloc.stats()
        result(one=one, every=every, table=seamalloc.stats_table(), allocated=torch.cuda.memory_allocated(),
               version=seamalloc.version())
        try:
            seamalloc.stats(5)
        except seamalloc.SeamallocError as error:
            result(text=str(error))
    """)
    assert "device 5" in done["text"]
    assert "work" in done["table"] and "work" in str(done["every"])
    assert str(done["allocated"]) in str(done["one"])
    assert done["version"]


def test_two_devices_are_counted_apart(run):
    done = run(
        """
        a = torch.ones(1 << 20, device="cuda:0")
        b = torch.full((1 << 20,), 7, dtype=torch.uint8).to("cuda:1")
        sizes = [torch.cuda.memory_allocated(n) for n in (0, 1)]
        moved = b.to("cuda:0")                      # a copy between devices, which peers must be able to map
        equal = bool((moved.cpu() == 7).all())
        with torch.cuda.device(1):
            del a, moved                            # freed while the other device is current
            torch.cuda.empty_cache()
            current = torch.cuda.memory_allocated()
        reserved = [torch.cuda.memory_reserved(n) for n in (0, 1)]
        document = seamalloc.stats()
        seamalloc.validate()
        result(sizes=sizes, equal=equal, current=current, reserved=reserved,
               devices=[device["device"] for device in document["devices"]],
               one=[device["device"] for device in seamalloc.stats("cuda:1")["devices"]])
        """,
        SEAMALLOC_SIM_DEVICES="2",
    )
    assert done["sizes"] == [4 << 20, 1 << 20] and done["equal"]
    assert done["current"] == 1 << 20 and done["reserved"][0] == 0 < done["reserved"][1]
    assert done["devices"] == [0, 1] and done["one"] == [1]
