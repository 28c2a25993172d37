# SPDX-License-Identifier: Apache-2.0
"""docs/features.md: what of PyTorch works on the simulated device, as it was seen.

What was seen is kept in features.json, for each version of PyTorch and allocator, and the table is made from it. A test
fails when it sees something else, or when the table is not what features.json says. After a change that is wanted:

    scripts/with-sim python -m pytest tests/torch/test_sim_features.py --rewrite-features
    scripts/with-sim --torch-2.11 python -m pytest tests/torch/test_sim_features.py --rewrite-features"""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("sim_features.py")
KEPT = Path(__file__).with_name("features.json")
DOCUMENT = ROOT / "docs/features.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
VERSION = importlib.metadata.version("torch").partition("+")[0]
CONFIGURATIONS = {"native": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
TITLES = {"native": "", "expandable": " expandable", "async": " `cudaMallocAsync`"}
# The older version is tried with its usual allocator only.
ALLOCATORS = list(CONFIGURATIONS) if VERSION == "2.15.0" else ["native"]


def look(folder, allocator):
    """What each feature does under an allocator."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SEAMALLOC_", "PYTORCH_", "TORCH"))}
    environment |= {"SEAMALLOC_SIM_MIB": "8192", "SEAMALLOC_SIM_DEVICES": "2",
                    "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    if CONFIGURATIONS[allocator]:
        environment["PYTORCH_ALLOC_CONF"] = CONFIGURATIONS[allocator]
    done = subprocess.run([sys.executable, PROGRAM], env=environment, cwd=folder, capture_output=True, text=True,
                          timeout=900)
    assert done.returncode == 0, done.stderr
    print(done.stderr)  # shown when the test fails: the traceback of each feature that is refused
    return json.loads(done.stdout.splitlines()[-1])


def render(kept):
    """The table and the reasons below it, which are numbered as they come."""
    columns = [(version, allocator) for version in sorted(kept["seen"], reverse=True)
               for allocator in CONFIGURATIONS if allocator in kept["seen"][version]]
    heads = " | ".join(version + TITLES[allocator] for version, allocator in columns)
    lines = [f"| feature | {heads} |", "|---" * (len(columns) + 1) + "|"]
    reasons, group = {}, None
    for feature_group, name, text in kept["features"]:
        if feature_group != group:
            group = feature_group
            lines.append(f"| **{group}** " + "| " * len(columns) + "|")
        cells = []
        for version, allocator in columns:
            state, why = kept["seen"][version][allocator].get(name, ["not tried", ""])
            number = f" ({reasons.setdefault(why, len(reasons) + 1)})" if why else ""
            cells.append(state + number)
        lines.append(f"| {text} | {' | '.join(cells)} |")
    lines += ["", "Why:", ""]
    lines += [f"{number}. {why}" for why, number in reasons.items()]
    return "\n".join(lines) + "\n"


def rewrite(allocator, found):
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"seen": {}}
    kept["features"] = found["features"]
    kept["seen"].setdefault(VERSION, {})[allocator] = found["seen"]
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text(before + BEGIN + render(kept) + END + after)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_features_are_what_the_table_says(tmp_path, allocator, request):
    found = look(tmp_path, allocator)
    if request.config.getoption("--rewrite-features"):
        rewrite(allocator, found)
    kept = json.loads(KEPT.read_text())
    assert found["features"] == kept["features"]
    assert found["seen"] == kept["seen"][VERSION][allocator]


def test_table_in_the_document_is_what_was_seen():
    shown = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown == render(json.loads(KEPT.read_text()))


def test_nothing_that_training_needs_is_refused():
    """The table may hold anything; this may not be among it."""
    seen = json.loads(KEPT.read_text())["seen"]
    assert set(seen) == {"2.11.0", "2.15.0"}
    for name in ("copies", "autograd", "optimizers", "mixed_precision", "checkpointing", "compile_eager", "graphs",
                 "loading", "streams", "out_of_memory", "data_parallel", "sharded_1", "sharded_2", "attention"):
        assert {version: seen[version]["native"][name][0] for version in seen} == dict.fromkeys(seen, "works"), name
