# SPDX-License-Identifier: Apache-2.0
"""The unmodified PyTorch on the simulated device: does it do all that a training program does, are its own figures the
device's, and is nothing that it calls a stub?"""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("sim_programs.py")
ALLOCATORS = {
    "native": "",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
}
MIB = 1 << 20
# The environment of this test's own interpreter is the one that is tested.
ENVIRONMENT = Path(sys.prefix)
VERSION = ["--torch-2.11"] if ENVIRONMENT.name == "env-2.11" else []


def run(program, folder, allocator="native", **settings):
    """Runs a program on a fresh device of 8 GiB; returns its figures, the device's record and what stderr said."""
    report = folder / f"{program}-{allocator}.json"
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SEAMALLOC_", "PYTORCH_"))}
    environment.update({"SEAMALLOC_SIM_MIB": "8192", "SEAMALLOC_SIM_REPORT": str(report), **settings})
    if ALLOCATORS[allocator]:
        environment["PYTORCH_ALLOC_CONF"] = ALLOCATORS[allocator]
    done = subprocess.run([ROOT / "scripts/with-sim", *VERSION, "python", PROGRAMS, program], env=environment,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    record = json.loads(report.read_text())
    return json.loads(done.stdout.splitlines()[-1]), record, done.stderr


def assert_clean(record):
    """No rule of the driver was broken, and nothing that the device cannot do was asked of it."""
    assert record["violations_total"] == 0, [device["violations"] for device in record["devices"]]
    assert record["unsupported_calls"] == {}


@pytest.fixture(scope="module", params=ALLOCATORS)
def tour(request, tmp_path_factory):
    figures, record, said = run("tour", tmp_path_factory.mktemp("tour"), request.param)
    return request.param, figures, record, said


def test_copies_and_fills_are_real(tour):
    assert tour[1]["tensors"] == {"round_trip": True, "device_to_device": True, "views": True, "zeros": 0.0}


def test_autograd_gives_every_parameter_a_gradient(tour):
    assert tour[1]["autograd"]["gradients"]


@pytest.mark.parametrize("kind", ["steady", "amp"])
def test_training_keeps_what_it_keeps_after_the_first_step(tour, kind):
    allocated = tour[1]["training"][kind]
    assert len(allocated) == 6
    assert len(set(allocated[1:])) == 1, allocated
    # Weights, gradients and two moments of 5.4 million parameters in 32 bits.
    assert 4 * 4 * 5.2e6 < allocated[-1] < 4 * 4 * 5.4e6 + 200 * MIB


def test_training_on_varying_lengths_ends_each_length_where_it_began(tour):
    allocated = tour[1]["training"]["varying"]
    assert len(allocated) == 12
    assert allocated[1:6] == allocated[7:12]


def test_convolutions_and_recurrent_layers_run_without_cudnn(tour):
    assert tour[1]["convolutions"] == {"shape": [4, 10], "cudnn": False}


def test_the_environment_says_once_what_it_is(tour):
    assert tour[3].count("torch.backends.cudnn.enabled = False") == 1
    assert tour[3].count("simulated CUDA device, 1 x 8192 MiB") == 1


def test_streams_and_events_complete(tour):
    streams = tour[1]["streams"]
    assert streams["done"] and streams["elapsed_ms"] >= 0 and streams["bytes"] == 16 * MIB


def test_graphs_are_captured_into_memory_of_their_own(tour):
    graphs = tour[1]["graphs"]
    assert graphs["address"]
    # cudaMallocAsync has no segments to show.
    assert graphs["private_bytes"] > 0 if tour[0] != "async" else graphs["private_bytes"] is None


def test_loader_workers_and_pinned_memory(tour):
    assert tour[1]["loading"] == {"pinned": True, "arrived": True}


def test_memory_statistics_are_those_of_the_device(tour):
    allocator, figures, record, _ = tour
    stats, device = figures["stats"], record["devices"][0]
    # 2.11 under cudaMallocAsync keeps workspaces that a capture made, and does not count them.
    uncounted = stats["graph_peak"] if allocator == "async" and VERSION else 0
    assert stats["device_bytes"] == stats["device_used"]
    assert 0 <= stats["device_bytes"] - stats["reserved"] <= uncounted
    # cudaMallocAsync has two kinds of memory, and PyTorch adds up their peaks, which need not fall together.
    graphs = stats["graph_peak"] if allocator == "async" else 0
    assert device["physical_peak_bytes"] <= stats["reserved_peak"] + uncounted
    assert stats["reserved_peak"] <= device["physical_peak_bytes"] + graphs
    assert stats["allocated"] <= stats["reserved"]


def test_record_shows_which_allocator_it_was(tour):
    allocator, _, record, _ = tour
    calls = record["devices"][0]["calls"]
    made = {name: calls.get(name, 0) > 0 for name in ("cuMemAlloc", "cuMemCreate", "cuMemAllocAsync")}
    # Graph pools of the native allocator are plain memory too; expandable segments make nothing else.
    assert made == {"cuMemAlloc": allocator == "native", "cuMemCreate": allocator == "expandable",
                    "cuMemAllocAsync": allocator == "async"}
    assert calls["cuLaunchKernel"] > 1000


def test_tour_calls_nothing_that_is_missing(tour):
    assert_clean(tour[2])


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_out_of_memory_is_an_exception_and_not_the_end(tmp_path, allocator):
    figures, record, _ = run("out_of_memory", tmp_path, allocator)
    assert re.search(r"CUDA out of memory|Allocation on device", figures["message"])
    assert figures["total"] == 8192 * MIB
    # Whatever the allocator keeps back, it cannot give more than there is, nor stop far below.
    assert figures["total"] - 512 * MIB <= figures["given_bytes"] <= figures["total"]
    assert figures["again"] == figures["total"] // 2
    assert record["devices"][0]["physical_peak_bytes"] <= figures["total"]
    assert record["violations_total"] == 0


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_same_program_gets_the_same_addresses(tmp_path, allocator):
    first, second = (run("repeat", tmp_path, allocator) for _ in range(2))
    assert first[0] == second[0]
    assert len(set(first[0]["addresses"])) > 20
    assert first[1]["devices"] == second[1]["devices"]


def in_order_of_size(requests):
    """The requests with frees that follow each other sorted: PyTorch's autocast keeps its casts in a table by the host
    addresses of the originals, and frees them in the table's order, which is another in each run."""
    sorted_requests = []
    for frees, group in itertools.groupby(requests, key=lambda request: request[0] == "free_requested"):
        part = list(group)
        sorted_requests += sorted(part) if frees else part
    return sorted_requests


def test_the_same_program_makes_the_same_requests(tmp_path):
    """Whatever differs between two runs that a program should not notice: hash seeds, the allocator, the device's size,
    how far its work lags behind."""
    runs = [run("requests", tmp_path, "native", PYTHONHASHSEED="1"),
            run("requests", tmp_path, "native", PYTHONHASHSEED="2", SEAMALLOC_SIM_MIB="20000"),
            run("requests", tmp_path, "expandable", PYTHONHASHSEED="3", SEAMALLOC_SIM_STREAMS="lag:50")]
    first, *others = (figures for figures, _, _ in runs)
    assert len(first["plain"]) > 1500 < len(first["amp"])
    assert len({stream for _, _, stream in first["plain"]}) >= 3
    assert {what for what, _, _ in first["plain"]} == {"alloc", "free_requested"}
    for other in others:
        assert other["plain"] == first["plain"]
        assert in_order_of_size(other["amp"]) == in_order_of_size(first["amp"])


def test_work_that_lags_behind_keeps_memory_busy(tmp_path):
    found = {mode: run("lag", tmp_path, SEAMALLOC_SIM_STREAMS=mode, SEAMALLOC_SIM_STRICT="1")[0]["addresses"]
             for mode in ("immediate", "lag:50", "lag:500")}
    # Nothing waits when work is done at once; a backlog of 50 calls holds some ten tensors, one of 500 most of them.
    assert found["immediate"] == 1
    assert 5 < found["lag:50"] < 30 < 60 < found["lag:500"]


@pytest.mark.parametrize("allocator, call", [("native", "cuMemAlloc"), ("expandable", "cuMemCreate")])
def test_a_device_that_refuses_is_out_of_memory(tmp_path, allocator, call):
    figures, record, _ = run("refused_memory", tmp_path, allocator, SEAMALLOC_SIM_FAIL=f"{call}:5+")
    assert "CUDA out of memory" in figures["message"]
    assert figures["given"] < 40
    assert record["faults"] >= 1
    assert record["devices"][0]["physical_peak_bytes"] < 512 * MIB


def test_functions_that_read_back_or_use_a_math_library(tmp_path):
    figures, record, _ = run("features", tmp_path)
    assert figures["failed"] == {}
    assert figures["tried"] >= 25
    assert_clean(record)


def test_a_stub_refuses_and_is_counted_by_name(tmp_path):
    figures, record, _ = run("refusal", tmp_path)
    assert "cuDNN" in figures["error"]
    assert any(name.startswith("cudnn") for name in record["unsupported_calls"])


def test_zeros_take_no_memory_of_the_host(tmp_path):
    figures, _, _ = run("zeros", tmp_path, SEAMALLOC_SIM_MIB="32768")
    assert figures["device_bytes"] > 16 << 30
    assert figures["grown_kib"] < 64 << 10, figures
    assert figures["values"] == [0.0, 0.0]


def test_two_processes_on_two_devices(tmp_path):
    figures, _, _ = run("distributed", tmp_path, SEAMALLOC_SIM_DEVICES="2", SIM_PROGRAM_STORE=str(tmp_path / "store"))
    assert figures["devices"] == 2
    shown = [[1.0, 0.0, 5.0, 0.0], [1.0, 1.0, 5.0, -1.0]]
    for rank, found in enumerate(figures["ranks"]):
        assert found["gathered"] == shown
        assert found["summed"] == [2.0, 1.0, 10.0, -1.0]
        assert found["top"] == [1.0, 1.0, 5.0, 0.0]
        assert found["root"] == shown[1]
        assert found["scattered"] == found["summed"][2 * rank:2 * rank + 2]
        assert found["passed"] == shown[1 - rank]
        # A shard has half of the weights, gradients and moments, and none of the one or two buckets.
        assert 0.3 * found["data_parallel"] < found["sharded"] < 0.5 * found["data_parallel"]


# ---- what the libraries are made of ----


def dynamic_symbols(path):
    """(name, version, defined) of each dynamic symbol."""
    output = subprocess.run(["readelf", "-W", "--dyn-syms", path], check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            name, _, version = fields[7].partition("@")
            yield name, version.strip("@"), fields[6] != "UND"


def installed_torch():
    for env in ("env", "env-2.11"):
        yield from (ROOT / "build").glob(f"{env}/lib/python3.*/site-packages/torch")


@pytest.mark.parametrize("torch", list(installed_torch()), ids=lambda path: path.parents[3].name)
def test_every_import_of_torch_is_there_with_its_version(torch):
    nvidia = torch.parent / "nvidia"
    offered = {(name, version) for path in nvidia.glob("*/lib/*.so.*")
               for name, version, defined in dynamic_symbols(path) if defined}
    names = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+|NVSHMEM")
    prefixes = re.compile(r"(nccl|nvshmem|cusparseLt|cuFile|cu)[A-Z_]")
    wanted = set()
    for path in [*torch.glob("lib/lib*.so"), *torch.glob("_C*.so")]:
        for name, version, defined in dynamic_symbols(path):
            if not defined and (names.fullmatch(version) or (not version and prefixes.match(name))):
                wanted.add((name, version))
    offered |= {(name, "") for name, _ in offered}
    assert len(wanted) > 500
    assert sorted(wanted - offered) == []


def test_no_library_of_nvidias_is_in_the_environment():
    for path in ENVIRONMENT.glob("lib/python3.*/site-packages/nvidia/*/lib/*"):
        assert path.stat().st_size < 4 * MIB, path
    installed = {path.name for path in ENVIRONMENT.glob("lib/python3.*/site-packages/nvidia_*")}
    assert installed == set()
