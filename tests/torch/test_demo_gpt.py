# SPDX-License-Identifier: Apache-2.0
"""The demo's larger script: more than 4 GiB reserved, and what each allocator makes of lengths that vary."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib/demo"))

import runs  # noqa: E402

GIB = 1 << 30

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    machine = runs.describe_machine(folder)
    script = ROOT / "examples/training/gpt.py"
    return {name: runs.run_script(script, [], name, machine, folder, print) for name in runs.ALLOCATORS}


def test_reserved_passes_four_gib_under_every_allocator(trained):
    assert min(run.device_peak_bytes for run in trained.values()) > 4 * GIB


def test_seamalloc_reserves_less_than_expandable_less_than_native(trained):
    peak = {name: run.device_peak_bytes for name, run in trained.items()}
    assert peak["seamalloc"] < peak["expandable"] < peak["native"]


def test_the_script_is_the_same_under_every_allocator(trained):
    assert len({run.peaks["requested"] for run in trained.values()}) == 1
    assert len({run.counts["allocations"] for run in trained.values()}) == 1
    for run in trained.values():
        assert run.counts["out_of_memory"] == run.counts["retries"] == 0
        assert run.outside_bytes == 0 and run.violations == [] and run.unsupported_calls == {}


def test_phases_of_a_step_follow_each_other(trained):
    (device,) = trained["seamalloc"].stats["devices"]
    phases = {phase["path"]: phase for phase in device["phases"]}
    assert {name: phase["count"] for name, phase in phases.items()} == {
        "setup": 1, "data": 40, "forward": 40, "backward": 40, "optimizer": 40,
    }
    for before, after in (("data", "forward"), ("forward", "backward"), ("backward", "optimizer")):
        assert phases[before]["allocated"]["exit"]["last"] == phases[after]["allocated"]["entry"]["last"]
    # Activations are made going forward and dropped going backward; gradients, the other way round.
    assert phases["forward"]["carried_out"]["bytes"]["mean"] > phases["data"]["carried_out"]["bytes"]["mean"]
    assert phases["backward"]["released_in"]["bytes"]["mean"] > 0.9 * phases["forward"]["carried_out"]["bytes"]["mean"]
