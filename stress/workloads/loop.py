# SPDX-License-Identifier: Apache-2.0
"""Runs one loop in this process, under whichever allocator the process was started with.

    python loop.py NAME [--short] [--facts FILE]

On the simulated device the device's record is also written when the second half of the loop begins, to the file of
SEAMALLOC_SIM_REPORT with ".half" behind it. `--facts` takes what PyTorch itself counted, as JSON. With several ranks
the variables RANK and LOOP_STORE are set by ranks.py.
"""

import argparse
import atexit
import ctypes
import importlib
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

try:
    from seamalloc import phase
except ImportError:
    from contextlib import nullcontext as phase

from catalog import LOOPS, Loop

SHORT = 5  # a short run has a fifth of the steps
STEPS_MIN = 2
PEAKS = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")


class Run:
    """What a loop is given: its steps, its device, and numbers that are the same in every run and on every rank."""

    def __init__(self, loop: Loop, short: bool) -> None:
        self.loop, self.short = loop, short
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = torch.device("cuda", self.rank)
        self.schedule = random.Random(loop.name)
        self.steps_second_half = 0

    def steps(self, count: int) -> Iterator[int]:
        """0, 1, ... with a mark of the device's record where the second half begins."""
        if self.short:
            count = max(STEPS_MIN, count // SHORT)
        self.steps_second_half = count - count // 2
        for step in range(count):
            if step == count // 2:
                write_record()
            with phase("step"):
                yield step
            if self.rank == 0:
                print(f"step {step + 1} of {count}", flush=True)

    def between(self, low: int, high: int, multiple: int = 1) -> int:
        """The next number of the schedule: a multiple, within low and high."""
        return self.schedule.randrange(low, high + 1, multiple)

    def tokens(self, *shape: int) -> Tensor:
        """Token numbers that come from page-locked host memory, as a loader's do. Which they are is of no interest."""
        return torch.zeros(shape, dtype=torch.long, pin_memory=True).to(self.device, non_blocking=True)

    def picture(self, *shape: int) -> Tensor:
        """Data that is on the device already; nothing is computed from it."""
        return torch.empty(shape, device=self.device)


def write_record() -> None:
    """The device's record so far. Under a real driver there is none."""
    report = os.environ.get("SEAMALLOC_SIM_REPORT")
    write = getattr(ctypes.CDLL("libcuda.so.1"), "sim_write_record", None)
    if report and write:
        write(f"{report}.half".encode())


def facts_of(run: Run) -> dict[str, object]:
    stats = torch.cuda.memory_stats(run.device)
    return {
        "peaks": {name.removesuffix("_bytes"): stats[f"{name}.all.peak"] for name in PEAKS},
        "allocations": stats["allocation.all.allocated"],
        "retries": stats["num_alloc_retries"],
        "steps_second_half": run.steps_second_half,
        "torch": torch.__version__,
    }


def main() -> None:
    options = argparse.ArgumentParser(description="Runs one loop.")
    options.add_argument("name", choices=sorted(LOOPS), metavar="NAME")
    options.add_argument("--short", action="store_true", help="a fifth of the steps")
    options.add_argument("--facts", type=Path, metavar="FILE")
    chosen = options.parse_args()

    loop = LOOPS[chosen.name]
    run = Run(loop, chosen.short)
    torch.manual_seed(1)
    torch.cuda.set_device(run.device)
    if loop.ranks > 1:
        store = f"file://{os.environ['LOOP_STORE']}"
        dist.init_process_group("nccl", init_method=store, rank=run.rank, world_size=loop.ranks)
    getattr(importlib.import_module(loop.module), loop.name)(run)
    torch.cuda.synchronize()
    if chosen.facts:
        name = str(chosen.facts).replace("%r", str(run.rank))
        Path(name).write_text(json.dumps(facts_of(run)) + "\n")
    if loop.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    # Autograd's thread may be about to wait for the interpreter's lock when a program ends, and PyTorch then aborts.
    atexit.register(time.sleep, 0.05)
    main()
