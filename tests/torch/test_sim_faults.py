# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a device whose work faults: Python gets an exception, nothing comes back to life, the interpreter ends."""

import pytest

FAULT = "cuLaunchKernel:40:fault=CUDA_ERROR_ILLEGAL_ADDRESS"
# Work until the device breaks; then what Python sees of it, and that everything can still be let go of.
PROGRAM = """
    import torch
    kept = [torch.ones(1 << 20, device="cuda") for _ in range(4)]
    def steps():
        for step in range(100):
            x = kept[step % 4] * 2 + 1
            torch.cuda.synchronize()
        return None
    def error_of(call):
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return None
    first = error_of(steps)
    again = error_of(torch.cuda.synchronize)
    miss = error_of(lambda: torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))
    copy = error_of(lambda: kept[0].cpu())
    allocated = torch.cuda.memory_allocated()
    kept.clear()
    name = torch.cuda.get_device_name(0)
    result(first=first, again=again, miss=miss, copy=copy, name=name,
           freed=allocated - torch.cuda.memory_allocated(), device=torch.cuda.current_device())
"""


@pytest.mark.parametrize("allocator", ["seamalloc", "native", "expandable"])
def test_a_fault_is_an_exception_and_stays(run, allocator):
    settings = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"} if allocator == "expandable" else {}
    done = run(PROGRAM, install=allocator == "seamalloc", SEAMALLOC_SIM_FAIL=FAULT, **settings)
    for name in ("first", "again", "miss", "copy"):
        assert done[name] and "illegal memory access" in done[name], (name, done[name], done.stderr)
    assert done["freed"] >= 4 * 4 << 20  # frees of the program go through
    assert done["device"] == 0 and done["name"]  # what is about the host can still be asked


def test_without_the_fault_nothing_is_refused(run):
    done = run(PROGRAM)
    assert [done[name] for name in ("first", "again", "miss", "copy")] == [None] * 4
