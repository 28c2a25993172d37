# SPDX-License-Identifier: Apache-2.0
"""The short examples run as they stand and show what they promise."""

import re
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_train_phases(run):
    done = run.command(sys.executable, str(EXAMPLES / "train_phases.py"))
    carried = {
        line.split()[0]: float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step/")
    }
    assert set(carried) == {"step/data", "step/forward", "step/backward", "step/optimizer"}
    assert carried["step/forward"] >= 11 * 4, "eleven activations of 4 MiB"
    assert carried["step/backward"] >= 6 * 16, "the gradients"


def test_largest_batch(run):
    done = run.command(sys.executable, str(EXAMPLES / "largest_batch.py"))
    *failed, fits = done.stdout.splitlines()
    assert failed and all("Cause: " in line for line in failed)
    batch = int(re.match(r"batch (\d+) fits", fits)[1])
    assert batch >= 8192, "2 GiB hold some 16 activations of 4 KiB a row, and weights, gradients and moments"
