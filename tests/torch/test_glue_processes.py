# SPDX-License-Identifier: Apache-2.0
"""Threads, forked children, the end of the process, and graphs."""


def test_threads_and_a_data_loader(run):
    done = run("""
        import threading
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.randn(256, 64), torch.randint(4, (256,)))
        model = torch.nn.Linear(64, 4).cuda()
        failures = []
        def work(seed):
            try:
                torch.manual_seed(seed)
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    for step in range(60):
                        x = torch.ones((seed * 1000 + step * 4099) % 300_000 + 1, device="cuda", requires_grad=True)
                        (x * 2).sum().backward()
                        if step % 10 == 0:
                            x.record_stream(torch.cuda.default_stream())
                            torch.cuda.memory_stats()
            except BaseException as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
        # The workers are forked here, before the threads exist: a fork beside running threads may copy a lock of
        # Python's that is held.
        batches, loader = 0, iter(DataLoader(data, batch_size=32, num_workers=2, pin_memory=True))
        for t in threads:
            t.start()
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            loss.backward()
            batches += 1
        for t in threads:
            t.join()
        seamalloc.validate()
        del model, x, y, loss
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        seamalloc.validate()
        stats = torch.cuda.memory_stats()
        result(failures=failures, batches=batches, allocations=stats["allocation.all.allocated"],
               current=stats["allocated_bytes.all.current"], reserved=stats["reserved_bytes.all.current"])
    """)
    assert done["failures"] == [] and done["batches"] == 8
    assert done["allocations"] > 500
    # cuBLAS workspaces may stay with PyTorch.
    assert done["current"] <= done["reserved"] <= 160 << 20


def test_a_forked_child_is_inert(run):
    done = run("""
        import os
        x = torch.ones(1 << 20, device="cuda")
        before = torch.cuda.memory_allocated()
        child = os.fork()
        if child == 0:
            del x                       # a block of the parent's: no driver call, no crash
            from seamalloc import _library
            library = _library.load()
            import ctypes
            library.seam_malloc.restype = ctypes.c_void_p
            library.seam_malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
            block = library.seam_malloc(4096, 0, None)
            told = "fork" in seamalloc.last_error()
            os._exit(0 if block is None and told else 3)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        torch.ones(1 << 20, device="cuda")
        seamalloc.validate()
        result(status=status, before=before, after=torch.cuda.memory_allocated(), sum=float(x[0]))
    """)
    assert done["status"] == 0
    assert done["before"] == done["after"] == 4 << 20


def test_install_then_fork_then_cuda(run):
    """install makes no CUDA call, so a child forked afterwards may be the one that uses the device."""
    done = run("""
        import os
        child = os.fork()
        if child == 0:
            x = torch.ones(1 << 20, device="cuda")
            os._exit(0 if torch.cuda.memory_allocated() == 4 << 20 else 3)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        result(status=status, here=torch.ones(8, device="cuda").data_ptr())
    """)
    assert done["status"] == 0 and done["here"] != 0


def test_tensors_outlive_the_program(run):
    done = run(
        """
        import atexit
        keep = {"x": torch.ones(1 << 20, device="cuda", requires_grad=True)}
        keep["y"] = (keep["x"] * 2).sum()
        side = torch.cuda.Stream()
        keep["x"].record_stream(side)
        atexit.register(lambda: torch.ones(1000, device="cuda"))
        cycle = [keep]
        cycle.append(cycle)
        """,
        SEAMALLOC_SIM_STREAMS="lag:100",
    )
    said = [line for line in done.stderr.splitlines() if "simulated" not in line]
    assert not said, done.stderr


GRAPH = """
    import gc
    static = torch.zeros(1 << 20, device="cuda")
    def body(x):
        for _ in range(4):
            x = x + 1
        return x
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        body(static)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
"""


def test_graph_capture_keeps_its_memory_apart(run):
    done = run(
        GRAPH
        + """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = body(static)
    seamalloc.validate()
    # What the graph's kernels write must not be given to anybody else while the graph lives.
    inside = out.data_ptr()
    others = [torch.empty(1 << 20, device="cuda") for _ in range(16)]
    overlap = [t.data_ptr() for t in others if t.data_ptr() <= inside < t.data_ptr() + (4 << 20)]
    graph.replay()
    torch.cuda.synchronize()
    held = torch.cuda.memory_reserved()
    del others
    torch.cuda.empty_cache()
    with_graph = torch.cuda.memory_reserved()
    graph.replay()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    after_graph = torch.cuda.memory_reserved()
    out.zero_()                               # the output outlives its graph
    still = int(out.cpu().count_nonzero()) == 0
    del out, static
    torch.cuda.empty_cache()
    seamalloc.validate()
    result(overlap=overlap, with_graph=with_graph, after_graph=after_graph, end=torch.cuda.memory_reserved(),
           still=still, allocated=torch.cuda.memory_allocated())
    """
    )
    assert done["overlap"] == []
    assert done["with_graph"] > 4 << 20, "a graph's memory stays while it can be replayed"
    assert done["after_graph"] <= done["with_graph"] and done["still"]
    assert done["allocated"] == 0 and done["end"] == 0
    assert not done.record["violations"], done.record["violations"]


def test_graphs_share_a_pool_one_after_another(run):
    done = run(
        GRAPH
        + """
    pool = torch.cuda.graph_pool_handle()
    graphs, outs = [], []
    for _ in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outs.append(body(static))
        graphs.append(graph)
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    distinct = len({t.data_ptr() for t in outs})
    def batch():
        return torch.randn(8, 64, device="cuda", requires_grad=True)
    call = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).cuda(), (batch(),))
    call(batch()).sum().backward()
    torch.cuda.synchronize()
    seamalloc.validate()
    del graphs, graph, outs
    gc.collect()
    result(distinct=distinct, address=torch.ones(1 << 20, device="cuda").data_ptr())
    """
    )
    assert done["distinct"] == 3 and done["address"] != 0
