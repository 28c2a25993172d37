# SPDX-License-Identifier: Apache-2.0
"""Runs one training script in a fresh process under one allocator, and puts together what is known of the run.

Three witnesses: PyTorch's own counters (measured.py), the device's record (on the simulated device) and, where
seamalloc served, its statistics. The allocator is chosen from outside; the script is the same file each time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MEASURED = HERE / "measured.py"
# Name, and what PyTorch's variable is set to.
ALLOCATORS = {"native": "", "expandable": "expandable_segments:True", "seamalloc": ""}
LOG_TAIL_LINES = 15
STOP_SECONDS = 5

# Driver calls that obtain, map and return device memory. Launches, copies and events are the script's own and the same
# under every allocator.
MEMORY_CALLS = frozenset(
    "cuMemAlloc cuMemAllocAsync cuMemAllocFromPoolAsync cuMemAllocManaged cuMemAllocPitch cuMemFree cuMemFreeAsync"
    " cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemAddressReserve cuMemAddressFree"
    " cuMemRetainAllocationHandle".split()
)


class Interrupts:
    """Signals that end the demo, as KeyboardInterrupt; never while a process is being started, which would be lost."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.held = self.came = False

    def install(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, self.handle)

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if not self.held:
            raise KeyboardInterrupt

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        """Raises what came while signals were held."""
        self.held = False
        if self.came:
            raise KeyboardInterrupt


interrupts = Interrupts()


class RunError(Exception):
    """A run failed; the text says which, how, and what it printed last."""


@dataclass
class Machine:
    """What the figures are of."""

    device: str
    device_bytes: int
    torch: str
    cuda: str
    python: str
    simulated: bool
    cost: str | None  # preset of modelled driver time

    def text(self) -> str:
        """For titles: never without saying that a device is simulated."""
        parts = [f"{self.device}, PyTorch {self.torch}"]
        if self.simulated:
            parts = [f"SIMULATED CUDA device ({self.device})", f"PyTorch {self.torch}", f"cost preset {self.cost}"]
        return ", ".join(parts)


@dataclass
class Run:
    script: str
    arguments: list[str]
    allocator: str
    seconds: float
    peaks: dict[str, int]
    counts: dict[str, int]
    device_peak_bytes: int
    driver_calls: dict[str, int] | None = None  # None: unavailable, as on a GPU
    driver_ns: dict[str, int] | None = None
    violations: list[Any] = field(default_factory=list)
    unsupported_calls: dict[str, int] = field(default_factory=dict)
    stats: dict[str, Any] | None = None
    lines: list[str] = field(default_factory=list)

    @property
    def utilisation(self) -> float | None:
        return self.peaks["allocated"] / self.device_peak_bytes if self.device_peak_bytes else None

    @property
    def outside_bytes(self) -> int:
        """What the device saw in use at its peak beyond the allocator's own peak: others' memory."""
        return self.device_peak_bytes - self.peaks["reserved"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "script": self.script,
            "arguments": self.arguments,
            "allocator": self.allocator,
            "seconds": self.seconds,
            "peak_requested_bytes": self.peaks["requested"],
            "peak_allocated_bytes": self.peaks["allocated"],
            "peak_active_bytes": self.peaks["active"],
            "peak_reserved_bytes": self.peaks["reserved"],
            "device_peak_bytes": self.device_peak_bytes,
            "outside_allocator_bytes": self.outside_bytes,
            "utilisation": self.utilisation,
            "driver_calls": None if self.driver_calls is None else sum(self.driver_calls.values()),
            "driver_calls_by_name": self.driver_calls,
            "driver_ns": None if self.driver_ns is None else sum(self.driver_ns.values()),
            "driver_ns_by_name": self.driver_ns,
            **self.counts,
            "violations": self.violations,
            "unsupported_calls": self.unsupported_calls,
            "lines": self.lines,
            "stats": self.stats,
        }


def environment(allocator: str, record: Path) -> dict[str, str]:
    """The caller's, without what would choose another allocator or break the device on purpose."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTORCH_") and name != "SEAMALLOC_SIM_FAIL"
    }
    kept["SEAMALLOC_SIM_REPORT"] = str(record)
    kept["SEAMALLOC_SIM_SAID"] = "1"  # said in the first line and in every title
    kept["PYTHONUNBUFFERED"] = "1"
    kept.setdefault("SEAMALLOC_CACHE", str(ROOT / "build" / "cache"))
    if ALLOCATORS[allocator]:
        kept["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[allocator]
    return kept


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a run and whatever it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            pass
        try:
            process.wait(STOP_SECONDS)
            return
        except subprocess.TimeoutExpired:
            continue


def execute(command: list[str], env: dict[str, str], log: Path, progress: Callable[[str], None]) -> list[str]:
    """Runs a command in a group of processes of its own; its lines are kept and shown as progress."""
    lines = []
    process = None
    with log.open("w") as errors:
        interrupts.hold()
        try:
            process = subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True,
                start_new_session=True,
            )
            interrupts.release()
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                progress(lines[-1])
            code = process.wait()
        except BaseException:
            interrupts.hold()
            if process is not None:
                stop(process)
            raise
        finally:
            interrupts.held = False
    if code != 0:
        how = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        said = log.read_text(errors="replace").splitlines() or lines
        raise RunError("\n".join([f"failed with {how}; the last it said:", *said[-LOG_TAIL_LINES:]]))
    return lines


def read_json(file: Path, what: str) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"left no readable {what} ({error})") from error


def describe_machine(folder: Path) -> Machine:
    """Asks PyTorch, in a process that does nothing else."""
    out, record = folder / "machine.json", folder / "machine-device.json"
    command = [sys.executable, str(MEASURED), "--out", str(out)]
    try:
        execute(command, environment("native", record), folder / "machine.log", lambda line: None)
        facts = read_json(out, "description of the machine")["machine"]
    except RunError as error:
        raise RunError(f"PyTorch could not use a device: {error}") from error
    simulated = record.is_file()
    cost = read_json(record, "device record")["cost"] if simulated else None
    return Machine(**facts, simulated=simulated, cost=cost)


def device_figures(record: dict[str, Any]) -> dict[str, Any]:
    device = record["devices"][0]
    return {
        "device_peak_bytes": device["physical_peak_bytes"],
        "driver_calls": {name: count for name, count in device["calls"].items() if name in MEMORY_CALLS},
        "driver_ns": {name: ns for name, ns in device["driver_ns"].items() if name in MEMORY_CALLS},
        "violations": device["violations"],
        "unsupported_calls": record.get("unsupported_calls", {}),
    }


def run_script(
    script: Path, arguments: list[str], allocator: str, machine: Machine, folder: Path, progress: Callable[[str], None]
) -> Run:
    """One run. Raises RunError when the script fails or a witness is missing."""
    base = folder / f"{script.stem}-{allocator}"
    out, record, stats = (base.with_suffix(suffix) for suffix in (".torch.json", ".device.json", ".stats.json"))
    command = [sys.executable]
    if allocator == "seamalloc":
        command += ["-m", "seamalloc", "run", "--stats", str(stats)]
    command += [str(MEASURED), "--out", str(out), *([] if machine.simulated else ["--sample"]), str(script), *arguments]
    start = time.monotonic()
    try:
        lines = execute(command, environment(allocator, record), base.with_suffix(".log"), progress)
        seconds = time.monotonic() - start
        base.with_suffix(".txt").write_text("\n".join(lines) + "\n")
        facts = read_json(out, "counters of PyTorch")
        if machine.simulated:
            seen = device_figures(read_json(record, "device record"))
        else:
            seen = {"device_peak_bytes": facts["sampled_peak_bytes"]}
        return Run(
            script=script.stem, arguments=arguments, allocator=allocator, seconds=seconds, peaks=facts["peaks"],
            counts=facts["counts"], lines=lines,
            stats=read_json(stats, "statistics") if allocator == "seamalloc" else None, **seen,
        )
    except RunError as error:
        raise RunError(f"{script.name} under {allocator} {error}") from error
