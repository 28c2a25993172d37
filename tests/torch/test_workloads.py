# SPDX-License-Identifier: Apache-2.0
"""The loops of stress/workloads and the commands that run them: the short form of two loops in real PyTorch under three
allocators, recordings that are the same in two runs, and what the commands say when something is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "stress/workloads/cli.py"
SEAMALLOC = ROOT / "build/release/bin/seamalloc"
ALLOCATORS = ["native", "expandable", "seamalloc"]
GIB = 1 << 30
SECONDS_MAX = 900  # six runs of PyTorch, on a machine with other work


def stress_run(*arguments, **settings):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEAMALLOC_", "PYTORCH_"))}
    return subprocess.run(
        [sys.executable, COMMAND, *map(str, arguments)], env=kept | settings, capture_output=True, text=True,
        timeout=SECONDS_MAX,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(what `compare --quick` printed, its JSON)"""
    folder = tmp_path_factory.mktemp("quick")
    done = stress_run("compare", "--quick", "--json", folder / "compare.json", "--results", folder / "results")
    assert done.returncode == 0, done.stderr
    assert "6 of 6, " in done.stderr, "progress"
    return done.stdout, json.loads((folder / "compare.json").read_text())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a recording, and that of a second one of the same loop."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    for folder in folders:
        done = stress_run("record", "graph", "--short", "--results", folder)
        assert done.returncode == 0, done.stderr
    return folders


def groups(document):
    found = {}
    for row in document["rows"]:
        found.setdefault(row["loop"], {})[row["allocator"]] = row
    return found


def test_comparison_says_what_it_is_of(quick):
    out, document = quick
    first = out.splitlines()[0]
    assert "SIMULATED CUDA device" in first and document["date"] in first
    assert f"PyTorch {document['machine']['torch']}" in first and f"seamalloc {document['seamalloc']}" in first


def test_comparison_has_every_loop_under_every_allocator(quick):
    out, document = quick
    assert {loop: list(rows) for loop, rows in groups(document).items()} == {"graph": ALLOCATORS, "speech": ALLOCATORS}
    for row in document["rows"]:
        assert row["reserved_peak"] > GIB
        assert row["reserved_peak"] >= row["active_peak"] >= row["allocated_peak"] >= row["requested_peak"]
        assert row["utilisation"] == row["allocated_peak"] / row["reserved_peak"]
        assert f"{100 * row['utilisation']:.1f} %" in out
        assert row["violations"] == 0 and row["unsupported_calls"] == {}


def test_loops_ask_for_the_same_under_every_allocator(quick):
    for rows in groups(quick[1]).values():
        assert len({row["requested_peak"] for row in rows.values()}) == 1
        assert len({row["allocations"] for row in rows.values()}) == 1


def test_seamalloc_reserves_less_than_both(quick):
    for loop, rows in groups(quick[1]).items():
        assert rows["seamalloc"]["reserved_peak"] < rows["expandable"]["reserved_peak"], loop
        assert rows["seamalloc"]["reserved_peak"] < rows["native"]["reserved_peak"], loop


def test_calls_of_the_second_half_are_a_part_of_all(quick):
    for row in quick[1]["rows"]:
        kinds = row["driver_calls"]
        assert all(0 <= row["driver_calls_second_half"][kind] <= count for kind, count in kinds.items())
        # Weights and the first steps are always in the first half.
        obtained = "alloc" if row["allocator"] == "native" else "create"
        assert row["driver_calls_second_half"][obtained] < kinds[obtained]


def text_of(folder):
    command = [SEAMALLOC, "convert", folder / "traces/graph.seamtrace", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_runs_ask_for_the_same(recorded):
    first, second = map(text_of, recorded)
    assert first.count("\na ") > 500
    assert first == second


def test_recordings_are_replayed_under_every_policy(recorded, tmp_path):
    done = stress_run("replay", "graph", "--scale", "1", "--results", recorded[0], "--json", tmp_path / "replay.json")
    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stdout and "held out" in done.stdout
    rows = {row["policy"]: row for row in json.loads((tmp_path / "replay.json").read_text())["rows"]}
    assert list(rows) == ["native", "expandable", "stitch"]
    assert rows["stitch"]["reserved_peak"] < rows["expandable"]["reserved_peak"] < rows["native"]["reserved_peak"]


def test_half_of_the_loops_may_be_tuned_on():
    lines = stress_run("list").stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert len(names) >= 16 and names == sorted(names)
    halves = ["held out" if " held out " in line else "tuned" for line in lines]
    assert halves == ["tuned", "held out"] * (len(lines) // 2)


def test_what_is_wrong_is_said(tmp_path):
    unknown = stress_run("compare", "grpah")
    assert unknown.returncode == 2 and "grpah is no loop; there are: accumulation, ddp" in unknown.stderr
    nothing = stress_run("replay", "graph", "--results", tmp_path)
    assert nothing.returncode == 1 and "stress/run record" in nothing.stderr


def test_a_loop_that_fails_is_named_with_its_reason(tmp_path):
    done = stress_run("compare", "graph", "--short", "--results", tmp_path, SEAMALLOC_SIM_MIB="1024")
    assert done.returncode == 1
    assert "graph under native failed with exit code 1" in done.stderr and "CUDA out of memory" in done.stderr
    assert not (tmp_path / "compare.json").exists()
