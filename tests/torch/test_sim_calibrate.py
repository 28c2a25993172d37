# SPDX-License-Identifier: Apache-2.0
"""scripts/calibrate, asked of the simulated device: does it run the whole suite, tell a driver that answers otherwise,
and leave a cost file that the simulator takes? On a machine without a GPU it says so and measures nothing."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = sorted(path.stem for path in (ROOT / "tests/contract").glob("*.c"))


def calibrate(*arguments, **settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SEAMALLOC_SIM", "LD_"))}
    return subprocess.run([ROOT / "scripts/calibrate", *arguments], env=environment | settings, capture_output=True,
                          text=True, timeout=600)


def test_the_whole_suite_runs_and_the_costs_can_be_used(tmp_path):
    done = calibrate("--simulated", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(re.findall(r"^(\w+) +(\d+) as expected, 0 otherwise, status 0$", done.stdout, re.MULTILINE))
    assert sorted(found) == SUITE
    assert all(int(count) > 0 for count in found.values())
    found = (tmp_path / "gpu.conf").read_text()
    assert re.search(r"^# .+, 4096 MiB, driver \d+\.\d+, \d{4}-\d\d-\d\d, virtual time", found, re.MULTILINE)
    for line in ("rule.granularity_kib 2048", "rule.recommended_kib 2048", "rule.partial whole", "rule.unmap several"):
        assert f"\n{line}\n" in found and line in done.stdout
    used = subprocess.run([tmp_path / "calibrate/bin/probe"], capture_output=True, text=True, timeout=60, env={
        "LD_LIBRARY_PATH": str(tmp_path / "calibrate/link"), "SEAMALLOC_SIM_COST": str(tmp_path / "gpu.conf")})
    assert used.returncode == 0, used.stderr


def test_rules_of_the_device_reach_the_file(tmp_path):
    """Those that the contract suite takes for granted are as they should be; the others are odd. What else there is to
    be found is tried by sim/calibrate/check.py."""
    done = calibrate("--simulated", "--output", str(tmp_path), "--mappings", "3000", SEAMALLOC_SIM_MAPPINGS="2345",
                     SEAMALLOC_SIM_RECOMMENDED_KIB="8192")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rule.mappings 2345" in done.stdout and "rule.recommended_kib 8192" in done.stdout


def test_a_driver_that_answers_otherwise_is_told(tmp_path):
    done = calibrate("--simulated", "--output", str(tmp_path), SEAMALLOC_SIM_FAIL="cuStreamWaitEvent:1+")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^stream +\d+ as expected, [1-9]\d* otherwise", done.stdout, re.MULTILINE), done.stdout
    assert "           otherwise: test_" in done.stdout
    assert (tmp_path / "gpu.conf").exists()


@pytest.mark.skipif(any(map(os.path.exists, ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"))),
                    reason="this machine may have a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path):
    done = calibrate("--output", str(tmp_path))
    assert done.returncode == 77
    assert "--simulated" in done.stderr
    assert not (tmp_path / "gpu.conf").exists()
