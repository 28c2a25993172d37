# SPDX-License-Identifier: Apache-2.0
"""Memory that another stream used comes back only when that stream is done. In the device's lag mode work on a stream
completes some calls later, so that memory given out too early would show as a reused address."""

import pytest

SIDE_STREAM = """
    side = torch.cuda.Stream()
    addresses, pending = set(), 0
    for step in range(100):
        x = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(side):
            x.zero_()
        if {record}:
            x.record_stream(side)
        addresses.add(x.data_ptr())
        del x
        stats = torch.cuda.memory_stats()
        pending = max(pending, stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"])
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    seamalloc.validate()
    result(addresses=len(addresses), pending=pending, reserved=torch.cuda.memory_reserved(),
           active=torch.cuda.memory_stats()["active_bytes.all.current"])
"""


def test_recorded_memory_waits_for_its_stream(run):
    lag = {"SEAMALLOC_SIM_STREAMS": "lag:50"}
    recorded = run(SIDE_STREAM.format(record="True"), **lag)
    unrecorded = run(SIDE_STREAM.format(record="False"), **lag)
    assert unrecorded["addresses"] == 1 and unrecorded["pending"] == 0
    assert 2 < recorded["addresses"] < 100, "it waits, and it comes back without being asked for"
    assert recorded["pending"] > 2 << 20
    for done in (recorded, unrecorded):
        assert done["reserved"] == done["active"] == 0
        assert not done.record["violations"], done.record["violations"]


def test_without_lag_little_waits(run):
    done = run(SIDE_STREAM.format(record="True"))
    assert done["addresses"] <= 3
    assert done["reserved"] == done["active"] == 0


def test_a_block_is_its_own_streams_again_at_once(run):
    """Work on one stream is in order, so nothing waits, whatever is still running."""
    done = run(
        """
        addresses = set()
        for step in range(50):
            x = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda").zero_()
            x.record_stream(torch.cuda.current_stream())
            addresses.add(x.data_ptr())
            del x
        result(addresses=len(addresses), events=torch.cuda.memory_stats()["active_bytes.all.current"])
        """,
        SEAMALLOC_SIM_STREAMS="lag:1000",
    )
    assert done["addresses"] == 1 and done["events"] == 0


def test_recording_a_view_protects_the_whole_storage(run):
    done = run(
        """
        side = torch.cuda.Stream()
        x = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        base, view = x.data_ptr(), x[MIB:]
        with torch.cuda.stream(side):
            view.zero_()
        view.record_stream(side)
        del x, view
        y = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        early = y.data_ptr() == base
        del y
        torch.cuda.synchronize()
        z = [torch.empty(4 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
        result(early=early, late=base in [t.data_ptr() for t in z])
        """,
        SEAMALLOC_SIM_STREAMS="lag:1000",
    )
    assert not done["early"] and done["late"]


def test_pending_memory_is_waited_for_before_out_of_memory(run):
    """60 blocks of 160 MiB pass through a device of 2 GiB while their stream is behind."""
    done = run(
        """
        side = torch.cuda.Stream()
        for step in range(60):
            x = torch.empty(160 * MIB, dtype=torch.uint8, device="cuda")
            with torch.cuda.stream(side):
                x[:1024].zero_()
            x.record_stream(side)
            del x
        stats = torch.cuda.memory_stats()
        result(ooms=stats["num_ooms"], retries=stats["num_alloc_retries"])
        seamalloc.validate()
        """,
        SEAMALLOC_SIM_STREAMS="lag:100000",
    )
    assert done["ooms"] == 0


@pytest.mark.parametrize("streams", ["immediate", "lag:20"])
def test_contents_survive_many_streams(run, streams):
    """Copies and fills are real: a block given out too early would overwrite another one's pattern."""
    done = run(
        """
        import random
        random.seed(3)
        streams = [torch.cuda.Stream() for _ in range(4)]
        live = {}
        wrong = 0
        for step in range(600):
            stream = random.choice(streams)
            with torch.cuda.stream(stream):
                size = random.randrange(1, 3 * MIB)
                x = torch.empty(size, dtype=torch.uint8, device="cuda")
                host = torch.full((size,), step % 251, dtype=torch.uint8)
                x.copy_(host)
            if random.random() < 0.3:
                x.record_stream(random.choice(streams))
            live[step] = (x, stream)
            if len(live) > 12:
                old = random.choice(list(live))
                y, its_stream = live.pop(old)
                with torch.cuda.stream(its_stream):
                    back = y.cpu()
                wrong += int((back != old % 251).sum())
        del x, y
        live.clear()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        seamalloc.validate()
        result(wrong=wrong, reserved=torch.cuda.memory_reserved(), allocated=torch.cuda.memory_allocated())
        """,
        SEAMALLOC_SIM_STREAMS=streams,
    )
    assert done["wrong"] == 0 and done["allocated"] == 0 and done["reserved"] == 0
    assert not done.record["violations"], done.record["violations"]
