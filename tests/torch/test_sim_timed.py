# SPDX-License-Identifier: Apache-2.0
"""Virtual time under the real PyTorch: is the timeline of a training step plausible, is it the same each time, and does
a wait that nobody needs show in it by as much as it costs?"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("timed_programs.py")
STEPS = 4
# Of the model and the batch in timed_programs.py: 6 blocks of 12 x 512 x 512 weights, a head, 8 x 512 tokens; forward
# and backward, two operations for each weight and token. Attention itself is not in it.
MATRIX_OPERATIONS = 6 * (6 * 12 * 512 * 512 + 512 * 8192) * 8 * 512
# The h100 preset.
OPERATIONS_PER_MS, MEMORY_BYTES_PER_MS, LINK_BYTES_PER_MS = 500e9, 2600e6, 350e6
EVENT_PRICES = {"cuEventCreate": 1000, "cuEventDestroy": 500, "cuEventQuery": 700}
BLOCK_GRADIENT_BYTES = 4 * (12 * 512 * 512 + 13 * 512)


class Run:
    """One process: its modelled milliseconds of each step, the device's record, the trace."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.record_file, self.trace_file = folder / f"{name}.json", folder / f"{name}.trace.json"

    def start(self, program, **settings):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("SEAMALLOC_", "PYTORCH_"))}
        environment.update(SEAMALLOC_SIM_STREAMS="timed", SEAMALLOC_SIM_REPORT=str(self.record_file),
                           SEAMALLOC_SIM_TRACE=str(self.trace_file), **settings)
        self.process = subprocess.Popen([sys.executable, PROGRAMS, program], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def finish(self):
        out, errors = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, errors
        self.steps = json.loads(out.splitlines()[-1])["steps"]
        self.record = json.loads(self.record_file.read_text())
        self.trace = json.loads(self.trace_file.read_text())["traceEvents"]
        assert self.record["violations_total"] == 0
        return self

    @property
    def step(self):
        """A step after the first, which also makes the optimiser's state."""
        assert len(self.steps) == STEPS
        assert len(set(self.steps[1:])) == 1, self.steps
        return self.steps[1]

    def streams(self):
        """{number: account} of the streams that did something, of all devices."""
        return {stream["stream"]: stream for device in self.record["devices"] for stream in device["streams"]}

    def default_stream(self):
        return next(stream for stream in self.streams().values() if stream["default"])

    def slices(self, kind, part=""):
        return [event for event in self.trace if event["ph"] == "X" and event["cat"] == kind and part in event["name"]]


def run_one(folder, program, name=None):
    run = Run(folder, name or program)
    run.start(program)
    return run.finish()


def run_two(folder, program, name=None):
    """Two ranks in two processes, with the usual prices."""
    name = name or program
    store = folder / f"{name}.store"
    runs = [Run(folder, f"{name}-{rank}") for rank in range(2)]
    for rank, run in enumerate(runs):
        run.start(program, RANK=str(rank), TIMED_STORE=str(store), SEAMALLOC_SIM_DEVICES="2")
    return [run.finish() for run in runs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("timed")


@pytest.fixture(scope="module")
def single(folder):
    return run_one(folder, "single")


@pytest.fixture(scope="module")
def overlapping(folder):
    return run_two(folder, "overlapping")


@pytest.fixture(scope="module")
def sharded(folder):
    return run_two(folder, "sharded")


def test_a_step_takes_the_time_of_its_arithmetic_and_not_much_more(single):
    arithmetic = MATRIX_OPERATIONS / OPERATIONS_PER_MS
    assert arithmetic < single.step < 8 * arithmetic
    # Elementwise kernels and copies of this small model cost more than its products; both are there.
    products = sum(event["dur"] for event in single.slices("work", "matrix product")) / 1e3 / STEPS
    assert arithmetic < products < 2 * arithmetic


def test_one_stream_waits_for_nobody_and_is_busy_most_of_the_time(single):
    stream = single.default_stream()
    assert len(single.streams()) == 1
    assert stream["waiting_ns"] == 0
    assert stream["busy_ns"] > 0.75 * (stream["end_ns"] - stream["begin_ns"])


def test_all_time_is_accounted_for(single, sharded):
    for run in [single, *sharded]:
        host = run.record["host"]
        assert host["ns"] == sum(host[part] for part in ("calls_ns", "launches_ns", "program_ns", "waiting_ns"))
        assert sum(host["waiting_in"].values()) == host["waiting_ns"]
        for stream in run.streams().values():
            assert stream["busy_ns"] + stream["waiting_ns"] + stream["idle_ns"] == stream["end_ns"] - stream["begin_ns"]
            assert sum(reason["ns"] for reason in stream["waiting_for"]) == stream["waiting_ns"]
            assert stream["end_ns"] <= run.record["virtual_ns"]


def test_the_same_program_takes_the_same_time(folder, single):
    again = run_one(folder, "single", "single-again")
    assert again.steps == single.steps
    assert again.record == single.record
    assert again.trace == single.trace


def test_two_ranks_take_the_same_time_each_and_again(folder, sharded):
    again = run_two(folder, "sharded", "sharded-again")
    assert sharded[0].steps == sharded[1].steps
    for first, second in zip(sharded, again, strict=True):
        assert second.steps == first.steps
        assert second.streams() == first.streams()
        assert second.record["host"] == first.record["host"]
        assert second.trace == first.trace
        # Prices are those of the preset: calls that the clock leaves out are counted and priced in the record.
        for record in (first.record, second.record):
            for device in record["devices"]:
                calls, spent = device["calls"], device["driver_ns"]
                assert all(spent.get(name, 0) == calls.get(name, 0) * price for name, price in EVENT_PRICES.items())


def test_slices_of_a_row_do_not_overlap(sharded):
    ends = {}
    rows = set()
    for event in sharded[0].trace:
        row = event["pid"], event["tid"]
        rows.add(row)
        if event["ph"] == "X":
            assert event["ts"] >= ends.get(row, 0) - 1e-3, event
            ends[row] = event["ts"] + event["dur"]
    assert len([row for row in ends if row[0] == 1]) >= 3  # computing, and streams of FSDP's own
    named = {(event["pid"], event["tid"]) for event in sharded[0].trace if event["name"] == "thread_name"}
    assert rows - {(1, 0), (2, 0)} <= named


def test_sharded_training_gathers_and_reduces_beside_the_computation(sharded):
    run = sharded[0]
    default = run.default_stream()
    moved = [event for what in ("all-gather", "reduce-scatter") for event in run.slices("work", what)]
    computing = {event["tid"] for event in run.slices("work", "matrix product")}
    assert computing == {default["stream"]}
    assert not computing & {event["tid"] for event in moved}
    # Most of the traffic is hidden: the computation stands still for less than it takes.
    assert 0 < default["waiting_ns"] < 0.6 * sum(event["dur"] for event in moved) * 1e3


def test_reductions_beside_the_backward_pass_cost_nothing(overlapping):
    for run in overlapping:
        default = run.default_stream()
        reduced = run.slices("work", "all-reduce")
        assert len(reduced) == 6 * STEPS
        # A ring of two ranks sends as many bytes as the message has.
        assert all(event["dur"] > 1e3 * BLOCK_GRADIENT_BYTES / LINK_BYTES_PER_MS for event in reduced)
        assert default["waiting_ns"] == 0


def test_a_planted_wait_between_streams_slows_the_step_by_what_it_waits_for(folder, overlapping):
    for patient, good in zip(run_two(folder, "patient"), overlapping, strict=True):
        reductions = sum(event["dur"] for event in patient.slices("work", "all-reduce")) / 1e3
        slower = sum(patient.steps) - sum(good.steps)
        assert slower == pytest.approx(reductions, rel=0.02)
        assert patient.step - good.step > 6 * BLOCK_GRADIENT_BYTES / LINK_BYTES_PER_MS
        (reason,) = patient.default_stream()["waiting_for"]
        assert patient.streams()[reason["stream"]]["busy_ns"] == pytest.approx(reason["ns"], rel=0.02)


def test_a_wait_for_a_copy_slows_the_step_by_the_copy(folder, single):
    waiting = run_one(folder, "waiting")
    copied = 2 * 4 * (1 << 27) / MEMORY_BYTES_PER_MS  # read and written
    assert waiting.step - single.step >= 0.98 * copied
    assert waiting.step - single.step <= 1.05 * copied
    (reason,) = waiting.default_stream()["waiting_for"]
    assert reason["ns"] / 1e6 >= 0.98 * STEPS * copied
