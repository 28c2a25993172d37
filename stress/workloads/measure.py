# SPDX-License-Identifier: Apache-2.0
"""Runs one loop in fresh processes under one allocator and collects what the simulated device wrote down.

Every figure but two is the device's own: PyTorch counts the peaks of requested and allocated bytes. The device's record
at the end and the one at half time give the calls of the second half.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "lib" / "demo"))

from catalog import Loop  # noqa: E402
from runs import MEMORY_CALLS, RunError, environment, execute, read_json  # noqa: E402

# Columns of the second half, and the driver calls that each counts.
KINDS = {
    "create": ("cuMemCreate",),
    "map": ("cuMemMap",),
    "set_access": ("cuMemSetAccess",),
    "unmap": ("cuMemUnmap",),
    "release": ("cuMemRelease",),
    "reserve": ("cuMemAddressReserve",),
    "alloc": ("cuMemAlloc", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"),
    "free": ("cuMemFree", "cuMemFreeAsync"),
}


@dataclass(frozen=True)
class Allocator:
    """How a process gets one: a name that runs.environment() knows, and settings of seamalloc's."""

    name: str
    base: str
    settings: str = ""

    @property
    def ours(self) -> bool:
        return self.base == "seamalloc"


NATIVE, EXPANDABLE, SEAMALLOC = (Allocator(name, name) for name in ("native", "expandable", "seamalloc"))
ALLOCATORS = (NATIVE, EXPANDABLE, SEAMALLOC)


@dataclass
class RankFigures:
    """Of one process and its device."""

    peaks: dict[str, int]
    reserved_peak: int
    calls: dict[str, int]
    calls_second_half: dict[str, int]
    driver_ns: int
    step_ns: float | None  # mean of the second half; in virtual time only
    violations: int
    unsupported: dict[str, int]
    allocations: int

    @property
    def utilisation(self) -> float:
        return self.peaks["allocated"] / self.reserved_peak

    def as_dict(self) -> dict[str, Any]:
        return {
            "requested_peak": self.peaks["requested"],
            "allocated_peak": self.peaks["allocated"],
            "active_peak": self.peaks["active"],
            "reserved_peak": self.reserved_peak,
            "utilisation": self.utilisation,
            "driver_ns": self.driver_ns,
            "driver_calls": self.calls,
            "driver_calls_second_half": self.calls_second_half,
            "step_ns_second_half": self.step_ns,
            "violations": self.violations,
            "unsupported_calls": self.unsupported,
            "allocations": self.allocations,
        }


@dataclass
class Measured:
    loop: Loop
    allocator: Allocator
    short: bool
    seconds: float
    ranks: list[RankFigures] = field(default_factory=list)

    @property
    def first(self) -> RankFigures:
        """What tables show; ranks do the same work, and the others are in the JSON."""
        return self.ranks[0]

    def as_dict(self) -> dict[str, Any]:
        return {
            "loop": self.loop.name,
            "half": self.loop.half,
            "allocator": self.allocator.name,
            "settings": self.allocator.settings,
            "short": self.short,
            "seconds": self.seconds,
            **self.first.as_dict(),
            "ranks": [rank.as_dict() for rank in self.ranks],
        }


def by_kind(calls: dict[str, int]) -> dict[str, int]:
    return {kind: sum(calls.get(name, 0) for name in names) for kind, names in KINDS.items()}


def rank_figures(base: Path, rank: int) -> RankFigures:
    facts = read_json(base.with_suffix(f".facts.{rank}.json"), "counters of PyTorch")
    file = base.with_suffix(f".device.{rank}.json")
    end, half = read_json(file, "device record"), read_json(Path(f"{file}.half"), "device record of half time")
    device, before = end["devices"][rank], half["devices"][rank]
    calls, earlier = by_kind(device["calls"]), by_kind(before["calls"])
    step_ns = None
    if "virtual_ns" in end:
        step_ns = (end["virtual_ns"] - half["virtual_ns"]) / facts["steps_second_half"]
    return RankFigures(
        peaks=facts["peaks"],
        reserved_peak=device["physical_peak_bytes"],
        calls=calls,
        calls_second_half={kind: count - earlier[kind] for kind, count in calls.items()},
        driver_ns=sum(ns for name, ns in device["driver_ns"].items() if name in MEMORY_CALLS),
        step_ns=step_ns,
        violations=end["violations_total"],
        unsupported=end["unsupported_calls"],
        allocations=facts["allocations"],
    )


def command_of(loop: Loop, allocator: Allocator, base: Path, short: bool, trace: Path | None) -> list[str]:
    command = [sys.executable]
    if loop.ranks > 1:
        command += [str(HERE / "ranks.py"), str(loop.ranks), sys.executable]
    if allocator.ours:
        command += ["-m", "seamalloc", "run"]
        if trace:
            command += ["--trace", str(trace)]
    command += [str(HERE / "loop.py"), loop.name, "--facts", str(base.with_suffix(".facts.%r.json"))]
    return [*command, "--short"] if short else command


def measure(
    loop: Loop, allocator: Allocator, folder: Path, progress: Callable[[str], None], *, short: bool = False,
    timed: bool = False, trace: Path | None = None,
) -> Measured:
    """One run. `trace` is where seamalloc records the requests; "%r" in it becomes the rank. Raises RunError."""
    base = folder / f"{loop.name}-{allocator.name.replace(':', '-')}"
    report = base.with_suffix(".device.%r.json")
    if loop.ranks == 1:
        report = Path(str(report).replace("%r", "0"))
    env = environment(allocator.base, report)
    env["SEAMALLOC_SIM_STREAMS"] = "timed" if timed else "immediate"
    if allocator.settings:
        env["SEAMALLOC_CONF"] = allocator.settings
    begin = time.monotonic()
    try:
        execute(command_of(loop, allocator, base, short, trace), env, base.with_suffix(".log"), progress)
        seconds = time.monotonic() - begin
        ranks = [rank_figures(base, rank) for rank in range(loop.ranks)]
    except RunError as error:
        raise RunError(f"{loop.name} under {allocator.name} {error}") from error
    return Measured(loop, allocator, short, seconds, ranks)


def write_json(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=1) + "\n")
