# SPDX-License-Identifier: Apache-2.0
"""The tables of stress/run compare, timed and replay. Each title says what the figures are of; sizes are MiB."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log
from statistics import mean
from typing import Any

from rich import box
from rich.table import Table

from measure import ALLOCATORS, EXPANDABLE, KINDS, SEAMALLOC, Measured

MIB = 1 << 20


def mib(size: float) -> str:
    return f"{size / MIB:,.0f}"


def new_table(title: str, names: int, *columns: str) -> Table:
    """The first columns, as many as `names`, hold names."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < names else "right", no_wrap=True)
    return table


def grouped(runs: Iterable[Measured]) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for run in runs:
        groups.setdefault(run.loop.name, []).append(run)
    return groups


def comparison(runs: list[Measured], machine: str) -> Table:
    table = new_table(
        f"Loops in real PyTorch, peaks in MiB\n{machine}", 3, "loop", "half", "allocator", "requested", "allocated",
        "reserved", "utilisation", "driver\ncalls", "driver\nms", "calls in\n2nd half",
    )
    for group in grouped(runs).values():
        table.add_section()
        names = group[0].loop.name, group[0].loop.half
        for run in group:
            row = run.first
            table.add_row(
                *names, run.allocator.name, mib(row.peaks["requested"]), mib(row.peaks["allocated"]),
                mib(row.reserved_peak), f"{100 * row.utilisation:.1f} %", f"{sum(row.calls.values()):,}",
                f"{row.driver_ns / 1e6:,.1f}", f"{sum(row.calls_second_half.values()):,}",
            )
            names = "", ""
    return table


def second_half(runs: list[Measured], machine: str) -> Table:
    table = new_table(f"Driver calls in the second half of each loop\n{machine}", 2, "loop", "allocator", *KINDS)
    for group in grouped(runs).values():
        table.add_section()
        name = group[0].loop.name
        for run in group:
            table.add_row(name, run.allocator.name, *(f"{run.first.calls_second_half[kind]:,}" for kind in KINDS))
            name = ""
    return table


def means(runs: list[Measured]) -> list[str]:
    """One line for each half and for all: mean utilisation, and driver time against expandable segments."""
    lines = []
    for half in ("tuned", "held out", "all"):
        chosen = [run for run in runs if half in ("all", run.loop.half)]
        groups = grouped(chosen)
        if not groups:
            continue
        parts = []
        for allocator in ALLOCATORS:
            of_one = [run.first.utilisation for run in chosen if run.allocator == allocator]
            if of_one:
                parts.append(f"{allocator.name} {100 * mean(of_one):.1f} %")
        ratios = [
            group[SEAMALLOC].first.driver_ns / group[EXPANDABLE].first.driver_ns
            for group in ({run.allocator: run for run in group} for group in groups.values())
            if SEAMALLOC in group and EXPANDABLE in group
        ]
        if ratios:
            parts.append(f"driver time seamalloc / expandable {exp(mean(map(log, ratios))):.2f} (geometric mean)")
        lines.append(f"{half}, {len(groups)} loops, mean utilisation: {', '.join(parts)}")
    return lines


def timed(runs: list[Measured], machine: str) -> Table:
    table = new_table(
        f"Modelled milliseconds a step, mean of the second half\n{machine}", 3, "loop", "rank", "allocator",
        "ms a step", "against\nnative", "reserved,\nMiB", "calls in\n2nd half",
    )
    for group in grouped(runs).values():
        for rank in range(len(group[0].ranks)):
            table.add_section()
            names, base = (group[0].loop.name, str(rank)), group[0].ranks[rank].step_ns or 0.0
            for run in group:
                row = run.ranks[rank]
                step = row.step_ns or 0.0
                table.add_row(
                    *names, run.allocator.name, f"{step / 1e6:,.2f}", f"{100 * (step / base - 1):+.2f} %",
                    mib(row.reserved_peak), f"{sum(row.calls_second_half.values()):,}",
                )
                names = "", ""
    return table


def replayed(rows: list[dict[str, Any]], policies: tuple[str, ...]) -> Table:
    """One line for each recording and scale: utilisation and driver time of each policy."""
    table = new_table(
        "Recordings replayed on the SIMULATED device (seamalloc replay)", 3, "recording", "half", "scale",
        "live peak,\nMiB", *(f"{policy},\n%" for policy in policies), *(f"{policy},\nms" for policy in policies),
    )
    groups: dict[tuple[str, float], dict[str, dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["recording"], row["scale"]), {})[row["policy"]] = row
    for (recording, scale), of in groups.items():
        last = of[policies[-1]]
        table.add_row(
            recording, last["half"], f"{scale:g}", mib(last["allocated_peak"]),
            *(f"{100 * last['allocated_peak'] / of[policy]['reserved_peak']:.1f}" for policy in policies),
            *(f"{of[policy]['driver_ns'] / 1e6:,.1f}" for policy in policies),
        )
    return table


def replayed_means(rows: list[dict[str, Any]], policies: tuple[str, ...]) -> list[str]:
    lines = []
    live = {(row["recording"], row["scale"]): row["allocated_peak"] for row in rows if row["policy"] == policies[-1]}
    for scale in dict.fromkeys(row["scale"] for row in rows):
        for half in ("tuned", "held out"):
            parts = []
            for policy in policies:
                found = [
                    live[row["recording"], scale] / row["reserved_peak"] for row in rows
                    if row["policy"] == policy and row["scale"] == scale and row["half"] == half
                ]
                if found:
                    parts.append(f"{policy} {100 * mean(found):.1f} %")
            if parts:
                lines.append(f"scale {scale:g}, {half}, mean utilisation: {', '.join(parts)}")
    return lines
