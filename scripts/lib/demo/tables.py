# SPDX-License-Identifier: Apache-2.0
"""The demo's tables. Each title says what the figures are of; sizes are MiB unless a heading says otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.table import Table

from runs import Machine, Run

MIB = 1 << 20
MEMORY_LINE = re.compile(r"\[(.+)\] ([\d.]+ / \d+ / [\d.]+)")
LEVELS = ("requested", "allocated", "active", "reserved")
PARTS = ("requested_live", "rounding", "pending", "fenced", "held_free", "whole_free")


def mib(size: float) -> str:
    value = size / MIB
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def or_unavailable(value: Any, form: str) -> str:
    return "unavailable" if value is None else format(value, form)


def new_table(title: str, machine: Machine, *columns: str, names: int = 1) -> Table:
    """A table whose first columns, as many as `names`, hold names and the others figures."""
    table = Table(title=f"{title}\n{machine.text()}", box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < names else "right", no_wrap=True)
    return table


def comparison(runs: Iterable[Run], machine: Machine) -> Table:
    seen = "device's\nrecord" if machine.simulated else "device\nuse"
    table = new_table(
        "Three allocators, peaks in MiB", machine, "script", "allocator", "requested", "allocated",
        "reserved,\nits own", f"reserved,\n{seen}", "utilisation", "driver\ncalls", "driver time,\nmodelled ms",
        names=2,
    )
    before = None
    for run in runs:
        if before not in (None, run.script):
            table.add_section()
        before = run.script
        row = run.as_dict()
        driver_ms = None if row["driver_ns"] is None else row["driver_ns"] / 1e6
        table.add_row(
            run.script, run.allocator, mib(run.peaks["requested"]), mib(run.peaks["allocated"]),
            mib(run.peaks["reserved"]), mib(run.device_peak_bytes),
            "unavailable" if run.utilisation is None else f"{100 * run.utilisation:.1f} %",
            or_unavailable(row["driver_calls"], ",d"), or_unavailable(driver_ms, ",.1f"),
        )
    return table


def comparison_notes(runs: Iterable[Run], machine: Machine) -> list[str]:
    notes = [
        "utilisation = peak allocated / peak reserved as the device saw it (two peaks, two instants)",
        "allocated counts what PyTorch's allocators do not split off a block; requested has none of it",
    ]
    if not machine.simulated:
        notes.append(
            "device use: cuMemGetInfo every 2 ms, less the use before the script; loaded kernels and others are in it"
        )
        return notes
    outside = {f"{run.script} under {run.allocator}": run.outside_bytes for run in runs if run.outside_bytes}
    if outside:
        notes += [f"{name}: {mib(size)} MiB of the record are not the allocator's" for name, size in outside.items()]
    else:
        notes.append("the record and the allocator's own peak agree in every run: nothing else was on the device")
    notes.append("driver calls: those that obtain, map and return device memory; no launches, copies or events")
    return notes


def memory_lines(run: Run) -> list[tuple[str, str]]:
    """(what, "allocated / reserved / highest") of each line that the script printed."""
    found = (MEMORY_LINE.fullmatch(line) for line in run.lines)
    return [(match[1], match[2]) for match in found if match]


def line_by_line(runs: list[Run], machine: Machine) -> Table:
    """What the script printed after each line, one column for each allocator."""
    table = new_table(
        f"{runs[0].script}: allocated / reserved / highest allocated after each line, MiB", machine, "after",
        *(run.allocator for run in runs),
    )
    columns = [memory_lines(run) for run in runs]
    seen: set[str] = set()
    for row in zip(*columns, strict=True):
        what = row[0][0]
        if what in seen:  # the next iteration begins
            table.add_section()
            seen.clear()
        seen.add(what)
        table.add_row(what, *(figures for _, figures in row))
    return table


def phases_of(run: Run) -> list[dict[str, Any]]:
    """The phases of seamalloc's statistics that ended at least once, in the order of their first entry."""
    devices = run.stats["devices"] if run.stats else []
    return [phase for phase in devices[0]["phases"] if phase["count"]] if devices else []


def phase_levels(run: Run, machine: Machine) -> Table:
    table = new_table(
        f"{run.script} under seamalloc, phases, MiB (entry and exit: means over the entries; peak: the highest)",
        machine, "phase", "times", "bytes", "entry", "peak", "exit", names=3,
    )
    for phase in phases_of(run):
        names = "  " * phase["depth"] + phase["name"], str(phase["count"])
        for level in LEVELS:
            figures = phase[level]["entry"]["mean"], phase["highest"][level], phase[level]["exit"]["mean"]
            table.add_row(*names, level, *(mib(figure) for figure in figures))
            names = "", ""
        table.add_section()
    return table


def phase_gaps(run: Run, machine: Machine) -> Table:
    table = new_table(
        f"{run.script} under seamalloc, what reserved bytes do when they are highest in the phase, MiB", machine,
        "phase", *(part.replace("_", "\n") for part in PARTS), "= reserved", "carried\nout", "growths",
    )
    for phase in phases_of(run):
        parts = phase["highest"]["gap_at_reserved_peak"]
        table.add_row(
            "  " * phase["depth"] + phase["name"], *(mib(parts[part]) for part in PARTS), mib(sum(parts.values())),
            mib(phase["carried_out"]["bytes"]["mean"]), f"{phase['counters']['growths']['mean'] * phase['count']:.0f}",
        )
    return table
