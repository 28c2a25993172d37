# SPDX-License-Identifier: Apache-2.0
"""The demo's quick form, from the outside: the lines that the DCGAN prints, the tables, the JSON, failures, Ctrl-C."""

import copy
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "scripts/lib/demo/main.py"
MIB = 1 << 20
ALLOCATORS = ["native", "expandable", "seamalloc"]
STEP = [
    "real batch to device", "netD forward (real)", "errD_real backward", "netG forward", "netD forward on fake",
    "errD_fake backward", "optimizerD step", "netD forward (G update)", "errG backward", "optimizerG step",
]
LINES = ["netG creation", "fixed_noise creation", *STEP, *STEP]
# Weights, the other model's weights with the noise, and the batch: before anything that depends on a library.
KNOWN_MIB = [13.7, 24.2, 27.2]
SECONDS_MAX = 300


def demo_environment(**settings):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEAMALLOC_", "PYTORCH_"))}
    return kept | settings


def demo_command(folder, *options):
    return [sys.executable, str(DEMO), "--quick", "--results", str(folder / "results"), *options]


def run_demo(folder, **settings):
    return subprocess.run(
        demo_command(folder, "--json", str(folder / "demo.json")), env=demo_environment(**settings),
        capture_output=True, text=True, timeout=SECONDS_MAX,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(what it printed, its JSON)"""
    folder = tmp_path_factory.mktemp("quick")
    done = run_demo(folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "demo.json").read_text())


def runs_of(quick):
    return {run["allocator"]: run for run in quick[1]["runs"]}


def printed(run):
    """(what, allocated, reserved, highest) of each line about memory."""
    found = (re.fullmatch(r"\[(.+)\] ([\d.]+) / (\d+) / ([\d.]+)", line) for line in run["lines"])
    return [(m[1], float(m[2]), float(m[3]), float(m[4])) for m in found if m]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_lines_are_those_of_the_known_run(quick, allocator):
    lines = printed(runs_of(quick)[allocator])
    assert [what for what, *_ in lines] == LINES
    assert [allocated for _, allocated, _, _ in lines[:3]] == KNOWN_MIB


def test_every_line_has_the_same_shape_under_native_and_seamalloc(quick):
    runs = runs_of(quick)
    for native, ours in zip(printed(runs["native"]), printed(runs["seamalloc"]), strict=True):
        # What native does not split off a block counts as allocated there, never here.
        assert ours[1] <= native[1] + 0.1, native[0]
        assert native[1] - ours[1] <= 0.05 * native[1], native[0]
        assert ours[1] <= ours[3] <= ours[2] + 1


def test_seamalloc_reserves_less_than_both(quick):
    peak = {name: run["device_peak_bytes"] for name, run in runs_of(quick).items()}
    assert peak["seamalloc"] < peak["expandable"]
    assert peak["seamalloc"] < peak["native"]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_device_and_allocator_agree(quick, allocator):
    run = runs_of(quick)[allocator]
    assert run["outside_allocator_bytes"] == 0
    assert run["device_peak_bytes"] == run["peak_reserved_bytes"] >= run["peak_active_bytes"]
    assert run["peak_active_bytes"] >= run["peak_allocated_bytes"] >= run["peak_requested_bytes"] > 200 * MIB
    assert run["utilisation"] == run["peak_allocated_bytes"] / run["device_peak_bytes"]
    assert run["violations"] == [] and run["unsupported_calls"] == {}


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_driver_calls_are_the_allocators(quick, allocator):
    run = runs_of(quick)[allocator]
    calls = run["driver_calls_by_name"]
    assert run["driver_calls"] == sum(calls.values())
    assert run["driver_ns"] == sum(run["driver_ns_by_name"].values()) > 0
    assert ("cuMemAlloc" in calls) == (allocator == "native")
    assert ("cuMemCreate" in calls) == (allocator != "native")


def test_same_requests_under_every_allocator(quick):
    assert len({run["peak_requested_bytes"] for run in quick[1]["runs"]}) == 1


def test_phases_are_those_of_the_script(quick):
    (device,) = runs_of(quick)["seamalloc"]["stats"]["devices"]
    phases = {phase["path"]: phase for phase in device["phases"]}
    counts = {name: phase["count"] for name, phase in phases.items()}
    assert counts == {"setup": 1, "data": 2, "forward": 8, "backward": 6, "optimizer": 4, "samples": 1}
    for name, phase in phases.items():
        parts = phase["highest"]["gap_at_reserved_peak"]
        assert sum(parts.values()) == phase["highest"]["reserved"], name
        for level in ("requested", "allocated", "active", "reserved"):
            assert phase["highest"][level] == phase[level]["peak"]["max"], (name, level)
            assert phase[level]["entry"]["max"] <= phase["highest"][level], (name, level)
    # The models are made in set-up and stay; the moments of Adam are made in the optimizer's first step and stay.
    assert phases["setup"]["allocated"]["exit"]["last"] / MIB == pytest.approx(24.2, abs=0.1)
    assert phases["optimizer"]["carried_out"]["bytes"]["max"] / MIB == pytest.approx(2 * 13.65, abs=0.2)
    assert phases["optimizer"]["carried_out"]["bytes"]["min"] == 0


def test_tables_say_that_the_device_is_simulated(quick):
    out, document = quick
    machine = document["machine"]
    assert machine["simulated"] and machine["cost"] == "h100"
    said = f"SIMULATED CUDA device ({machine['device']}), PyTorch {machine['torch']}, cost preset h100"
    titles = ["Three allocators", "dcgan: allocated", "dcgan under seamalloc, phases", "what reserved bytes do"]
    for title in titles:
        assert re.search(re.escape(title) + r".*\n" + re.escape(said), out), title
    assert said in out.splitlines()[0]
    assert out.splitlines()[-1].startswith("[demo] results as JSON: ")
    for run in document["runs"]:
        assert re.search(rf"dcgan +{run['allocator']} .*{100 * run['utilisation']:.1f} %", out)


def figures(document):
    """All that the tables show, without times of the host. Some counters of the statistics depend on which of
    PyTorch's threads drops its tensors first, and are no part of it."""
    for run in document["runs"]:
        stats, seconds = run.pop("stats"), run.pop("seconds")
        assert seconds > 0
        if stats:
            run["phases"] = [
                {key: phase[key] for key in ("path", "count", "highest", "allocated", "reserved", "carried_out")}
                for phase in stats["devices"][0]["phases"]
            ]
    return document["runs"]


def test_two_runs_give_the_same_figures(quick, tmp_path):
    assert run_demo(tmp_path).returncode == 0
    again = json.loads((tmp_path / "demo.json").read_text())
    assert figures(again) == figures(copy.deepcopy(quick[1]))


def test_a_run_that_fails_is_named_with_its_reason(tmp_path):
    done = run_demo(tmp_path, SEAMALLOC_SIM_MIB="128")
    assert done.returncode == 1
    assert "[demo] error: dcgan.py under native failed with exit code 1" in done.stderr
    assert "CUDA out of memory" in done.stderr
    assert not (tmp_path / "demo.json").exists()
    assert (tmp_path / "results/dcgan-native.log").read_text()


def test_a_folder_that_is_not_there_is_refused_before_anything_runs(tmp_path):
    done = subprocess.run(
        demo_command(tmp_path, "--json", str(tmp_path / "none/demo.json")), env=demo_environment(),
        capture_output=True, text=True, timeout=SECONDS_MAX,
    )
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert list(tmp_path.iterdir()) == []


def processes_that_mention(text):
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in entry.read_text(errors="replace"):
                found.append(entry.parent.name)
        except OSError:
            pass  # it has ended
    return found


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_stopping_it_leaves_nothing_behind(tmp_path, sign):
    process = subprocess.Popen(
        demo_command(tmp_path), env=demo_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if "dcgan under expandable ..." in line:
            break
    process.send_signal(sign)
    _, said = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130
    assert "[demo] stopped" in said
    assert list(tmp_path.iterdir()) == []
    assert processes_that_mention(str(tmp_path)) == []
