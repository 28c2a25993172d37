# SPDX-License-Identifier: Apache-2.0
"""The policies native and expandable against PyTorch's own allocator, in one and the same program: after every step the
device was called as often, holds as much and held as much at the most, and the statistics say the same.

policy_loops.py is the program: training with lengths and batches that vary, blocks on several streams, and a device
that is full, where requests are retried and fail."""

import json
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("policy_loops.py")
EXPANDABLE = "expandable_segments:True"
DEVICE_MIB = 3072
ALL = ("gpt", "dcgan", "mixed", "shortage")
# What a run must have reached to say anything: calls of the device, retries and failed requests.
REACHED = {"native": ("cuMemAlloc", "cuMemFree"), "expandable": ("cuMemCreate", "cuMemMap", "cuMemUnmap")}

SETTINGS = [
    ("native", "", ALL),
    ("native", "max_split_size_mb:24", ALL),
    ("native", "max_split_size_mb:40,max_non_split_rounding_mb:64", ("dcgan", "mixed", "shortage")),
    ("native", "roundup_power2_divisions:[2:8,16:2]", ALL),
    ("native", "roundup_power2_divisions:[4:1,8:4,32:2,>:8],large_segment_size_mb:34", ("dcgan", "mixed", "shortage")),
    ("native", "per_process_memory_fraction:0.75,garbage_collection_threshold:0.3", ALL),
    ("native", "per_process_memory_fraction:0.5,garbage_collection_threshold:0.6,max_split_size_mb:24",
     ("mixed", "shortage")),
    ("expandable", EXPANDABLE, ALL),
    ("expandable", f"{EXPANDABLE},max_split_size_mb:24,roundup_power2_divisions:4", ("dcgan", "mixed", "shortage")),
    ("expandable", f"{EXPANDABLE},large_segment_size_mb:34,roundup_power2_divisions:[2:8,16:2]", ("mixed", "shortage")),
    ("expandable", f"{EXPANDABLE},per_process_memory_fraction:0.75,garbage_collection_threshold:0.3", ALL),
]


def steps(run, loops, settings, **more):
    """What the program noted, a dictionary a step."""
    if settings:
        more["PYTORCH_ALLOC_CONF"] = settings
    done = run.command(sys.executable, str(PROGRAM), *loops, SEAMALLOC_SIM_MIB=str(DEVICE_MIB), **more)
    assert done.stdout.endswith("DONE\n"), done.stderr
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("STEP ")]


@pytest.mark.parametrize("policy, settings, loops", SETTINGS, ids=[f"{s[0]}-{s[1] or 'plain'}" for s in SETTINGS])
def test_the_device_sees_what_it_sees_of_pytorch(run, policy, settings, loops):
    theirs = steps(run, loops, settings)
    ours = steps(run, loops, settings, SEAMALLOC_CONF=f"policy:{policy}")
    assert len(ours) == len(theirs) > 60
    for own, their in zip(ours, theirs, strict=True):
        unequal = {name: (own[name], their[name]) for name in their if own[name] != their[name]}
        assert not unequal, f"{their['step']}: seamalloc, PyTorch: {unequal}"
    last = theirs[-1]
    assert all(last[call] > 20 for call in REACHED[policy]), last
    if "shortage" in loops:
        assert last["retries"] > 10 and last["ooms"] > 5, last


def test_nothing_is_left_out_of_the_comparison(run):
    """The counts are the device's: a policy that places differently must show in them."""
    theirs = steps(run, ("mixed",), "")
    ours = steps(run, ("mixed",), "", SEAMALLOC_CONF="policy:expandable")
    names = ("cuMemAlloc", "cuMemCreate", "bytes", "peak", "reserved_bytes")
    assert all(ours[-2][name] != theirs[-2][name] for name in names)
    assert [step["requested_bytes"] for step in ours] == [step["requested_bytes"] for step in theirs]
