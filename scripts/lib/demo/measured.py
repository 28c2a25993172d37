# SPDX-License-Identifier: Apache-2.0
"""Runs a PyTorch script in this process as `python SCRIPT ARGS` would, then writes down what PyTorch counted.

    python measured.py --out FILE [--sample] [SCRIPT [ARGS...]]

The script knows nothing of it, and the same is done under every allocator. Without SCRIPT only the machine is
described. `--sample` is for a GPU, which keeps no record as the simulated device does: the memory in use on the device
is asked for every few milliseconds, and the highest answer above the one before the script is kept.
"""

import argparse
import json
import platform
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

import torch

SAMPLE_SECONDS = 0.002
PEAKS = {
    "requested": "requested_bytes.all.peak",
    "allocated": "allocated_bytes.all.peak",
    "active": "active_bytes.all.peak",
    "reserved": "reserved_bytes.all.peak",
}
COUNTS = {
    "allocations": "allocation.all.allocated",
    "retries": "num_alloc_retries",
    "out_of_memory": "num_ooms",
}


class Sampler(threading.Thread):
    """The highest use of the device above what was in use at the start, seen from cuMemGetInfo."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.before = self.used()
        self.highest = self.before

    @staticmethod
    def used() -> int:
        free, total = torch.cuda.mem_get_info()
        return total - free

    def run(self) -> None:
        while not self.done.wait(SAMPLE_SECONDS):
            self.highest = max(self.highest, self.used())

    def finish(self) -> int:
        self.done.set()
        self.join()
        return max(self.highest, self.used()) - self.before


def machine() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "device_bytes": properties.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--sample", action="store_true")
    options.add_argument("script", nargs="?")
    options.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = options.parse_args()

    facts: dict[str, Any] = {}
    if chosen.script:
        sampler = None
        if chosen.sample:
            torch.cuda.init()
            sampler = Sampler()
            sampler.start()
        sys.argv = [chosen.script, *chosen.arguments]
        sys.path[0] = str(Path(chosen.script).resolve().parent)
        runpy.run_path(chosen.script, run_name="__main__")
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        facts["peaks"] = {name: stats[key] for name, key in PEAKS.items()}
        facts["counts"] = {name: stats[key] for name, key in COUNTS.items()}
        facts["sampled_peak_bytes"] = sampler.finish() if sampler else None
    facts["machine"] = machine()
    chosen.out.write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
