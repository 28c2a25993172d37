# SPDX-License-Identifier: Apache-2.0
"""The device's record against docs/device-record.schema.json and docs/device-record.md, and its figures against each
other. The records are those of a program that breaks a rule, meets a stub and leaves things behind, and of PyTorch."""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fastjsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/device-record.schema.json").read_text())

DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address, handle, event = (ctypes.c_uint64() for _ in range(4))
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(3 << 20)) == 2      # a fault that was ordered
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(3 << 20)) == 0
assert cuda.cuMemUnmap(address, ctypes.c_size_t(2 << 20)) != 0                       # a broken rule
assert cuda.cuMemFree_v2(ctypes.c_uint64(12345)) != 0                                # another
assert cuda.cuGraphCreate(ctypes.byref(handle), 0) == 801                            # a stub
assert cuda.cuEventCreate(ctypes.byref(event), 0) == 0                               # left behind
"""
TORCH = """
import torch
stream = torch.cuda.Stream()
x = torch.zeros(1 << 20, device="cuda:1")
with torch.cuda.stream(stream):
    y = torch.ones(1 << 20).cuda()
    z = (y @ y) + 1
torch.cuda.synchronize()
kept = torch.empty(1 << 20).pin_memory()
"""


def record_of(program, folder, **settings):
    file = folder / "device.json"
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SEAMALLOC_SIM", "PYTORCH_"))}
    environment |= {"SEAMALLOC_SIM_MIB": "4096", "SEAMALLOC_SIM_DEVICES": "2", "SEAMALLOC_SIM_REPORT": str(file)}
    done = subprocess.run([sys.executable, "-c", program], env=environment | settings, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    return record_of(DRIVER, tmp_path_factory.mktemp("broken"), SEAMALLOC_SIM_FAIL="cuMemAlloc:1")


def source_has(word):
    return word in (ROOT / "sim/core/config.c").read_text()


ALLOCATORS = {"native": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
RUNS = [("native", "immediate"), ("expandable", "lag:5"), ("async", "random:3"), ("native", "late"),
        ("expandable", "timed")]


@pytest.mark.parametrize("allocator, mode", RUNS)
def test_a_record_of_pytorch_is_what_the_schema_says(tmp_path, allocator, mode):
    if mode == "timed" and source_has("this mode is not there yet"):
        pytest.skip("this simulated device has no virtual time")
    more = {"PYTORCH_ALLOC_CONF": ALLOCATORS[allocator]} if ALLOCATORS[allocator] else {}
    record = record_of(TORCH, tmp_path, SEAMALLOC_SIM_STREAMS=mode, **more)
    fastjsonschema.validate(SCHEMA, record)
    assert record["streams"] == mode and record["cost"] == "h100" and not record["strict"]
    assert ("virtual_ns" in record) == (mode == "timed")
    check_figures(record)
    # Four MiB each of x, y, and the pinned memory; pieces of the device are of 2 MiB.
    assert record["devices"][1]["physical_peak_bytes"] >= 4 << 20
    assert record["devices"][0]["physical_peak_bytes"] >= 8 << 20
    assert record["live"]["host"] >= 1 and record["violations_total"] == 0 and record["unsupported_calls"] == {}


@pytest.mark.skipif(not source_has("SEAMALLOC_SIM_SHARE"), reason="this simulated device cannot be shared")
def test_a_record_of_a_shared_device_is_what_the_schema_says(tmp_path):
    record = record_of(DRIVER, tmp_path, SEAMALLOC_SIM_FAIL="cuMemAlloc:1", SEAMALLOC_SIM_SHARE=f"record-{os.getpid()}")
    fastjsonschema.validate(SCHEMA, record)
    assert record["shared"]["violations_total"] == 2 and len(record["shared"]["devices"]) == 2
    assert record["shared"]["devices"][0]["calls"] == record["devices"][0]["calls"]


def check_figures(record):
    for index, device in enumerate(record["devices"]):
        assert device["index"] == index
        assert device["physical_bytes"] <= device["physical_peak_bytes"] <= device["bytes"] == 4096 << 20
        assert device["mappings"] <= device["mappings_peak"]
        assert device["address_bytes"] <= device["address_peak_bytes"]
        assert set(device["driver_ns"]) == set(device["calls"]) and min(device["calls"].values(), default=1) > 0
        assert sum(device["driver_ns"].values()) == device["driver_ns_total"]
    assert sum(device["mappings"] for device in record["devices"]) == record["live"]["mappings"]
    assert sum(device["address_bytes"] for device in record["devices"]) >= record["live"]["reserved_bytes"]


def test_a_record_of_a_faulty_program_tells_what_it_did(broken):
    fastjsonschema.validate(SCHEMA, broken)
    check_figures(broken)
    rules = [violation["rule"] for violation in broken["devices"][0]["violations"]]
    assert rules == ["unmap-unmapped", "unknown-pointer"] and broken["violations_total"] == 2
    assert [violation["call"] for violation in broken["devices"][0]["violations"]] == ["cuMemUnmap", "cuMemFree"]
    assert broken["unsupported_calls"] == {"cuGraphCreate": 1} and broken["faults"] == 1
    assert broken["devices"][0]["calls"]["cuMemAlloc"] == 2
    assert broken["live"]["allocations"] == 1 and broken["live"]["events"] == 1


def objects_of(schema, part, path=""):
    """(path, schema) of each object with named fields, references followed."""
    if "$ref" in part:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]]
    if "properties" in part:
        yield path, part
        for name, below in part["properties"].items():
            yield from objects_of(schema, below, f"{path}.{name}" if path else name)
    elif part.get("type") == "array":
        yield from objects_of(schema, part["items"], path + "[]")


def field_name(schema, part):
    part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    maps = part.get("type") == "object" and "properties" not in part
    return "[]" if part.get("type") == "array" else "{}" if maps else ""


def test_the_page_has_the_same_fields_as_the_schema():
    wanted = {(f"{path}.{name}" if path else name) + field_name(SCHEMA, part)
              for path, holder in objects_of(SCHEMA, SCHEMA) for name, part in holder["properties"].items()}
    page = (ROOT / "docs/device-record.md").read_text()
    shown = re.findall(r"^\| `([^`]+)` \| \S", page, re.MULTILINE)
    assert len(shown) == len(set(shown)) > 50
    assert set(shown) == wanted


def test_every_variable_of_the_device_is_described():
    read = set(re.findall(r'"(SEAMALLOC_SIM_[A-Z_]+)"',
                          "".join((ROOT / f"sim/core/{name}.c").read_text() for name in ("config", "terms"))))
    page = (ROOT / "docs/simulated-device.md").read_text()
    assert len(read) >= 9
    assert read <= set(re.findall(r"^\| `(SEAMALLOC_SIM_[A-Z_]+)` \|", page, re.MULTILINE))


def test_the_rules_are_the_same_in_the_source_the_page_and_the_record(broken):
    """Names, variables and what is usual: of the table in terms.c, of the table of the page, of a device that nobody
    told anything."""
    source = re.findall(r'= \{"(\w+)", "(SEAMALLOC_SIM_\w+)"\}', (ROOT / "sim/core/terms.c").read_text())
    page = re.findall(r"^\| `rule\.(\w+)` \| `(SEAMALLOC_SIM_\w+)` \| [^|]+ \| `(\w+)` \|",
                      (ROOT / "docs/simulated-device-limits.md").read_text(), re.MULTILINE)
    assert len(source) == 5
    assert [row[:2] for row in page] == source
    assert {name: usual for name, _, usual in page} == {name: str(value) for name, value in broken["rules"].items()}


def test_the_rules_in_force_are_recorded(tmp_path):
    file = tmp_path / "found.conf"
    file.write_text("like h100\nrule.granularity_kib 64\nrule.unmap one\nrule.mappings 12\n")
    record = record_of("import torch; torch.cuda.init()", tmp_path, SEAMALLOC_SIM_COST=str(file),
                       SEAMALLOC_SIM_MAPPINGS="34", SEAMALLOC_SIM_PARTIAL="inner", SEAMALLOC_SIM_TENANT="7@0,5@9calls",
                       SEAMALLOC_SIM_DRIVER="copies-fault,access-whole", SEAMALLOC_SIM_LACKS="rdma,pools",
                       SEAMALLOC_SIM_LIES="fabric")
    fastjsonschema.validate(SCHEMA, record)
    assert record["rules"] == {"granularity_kib": 64, "recommended_kib": 2048, "partial": "inner", "unmap": "one",
                               "mappings": 34}
    assert record["driver"] == ["access-whole", "copies-fault"]
    assert record["lacks"] == ["pools", "rdma"] and record["lies"] == ["fabric"]
    assert record["tenant"] == "7@0,5@9calls" and record["cost"] == str(file)
    assert [(device["tenant_peak_bytes"], device["tenant_bytes"]) for device in record["devices"]] == [
        (7 << 20, 5 << 20)] * 2


def test_the_schema_refuses_what_is_no_record(broken):
    """A field too many, one too few, one of another type: in every object that the record of a run has."""
    check = fastjsonschema.compile(SCHEMA)

    def objects(value):
        if isinstance(value, dict):
            yield value
        for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from objects(below)

    count = len(list(objects(broken)))
    assert count > 8
    for number in range(count):
        for change in ("add", "alter", "remove"):
            record = copy.deepcopy(broken)
            part = list(objects(record))[number]
            if change == "remove" and all(name.startswith("cu") for name in part):
                continue  # a count that is missing among those by name is a call that was not made
            first = next(iter(part), "surprise")
            if change == "remove":
                del part[first]
            else:
                part["surprise" if change == "add" else first] = None
            with pytest.raises(fastjsonschema.JsonSchemaException):
                check(record)
