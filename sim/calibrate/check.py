#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the simulator take all that the probe finds?

  check.py PROBE LIBRARIES FOLDER

The probe asks a simulated device with odd rules and prices, in virtual time, so that its clock shows the prices. A
second device is given the file that came out, and nothing else; asked in its turn it must have the same rules and
prices. Then each rule is said wrongly, in the file and in its variable, and must be refused by name."""

import os
import re
import subprocess
import sys
from pathlib import Path

PROBE, LIBRARIES, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
MOST = 3000
WRONG = {"granularity_kib": "96", "recommended_kib": "1", "partial": "half", "unmap": "all", "mappings": "-1"}
# Rules: each differs from the default in one of the cases at least. The last one finds no ceiling.
CASES = [
    {"granularity_kib": "2048", "recommended_kib": "2048", "partial": "whole", "unmap": "several", "mappings": "700"},
    {"granularity_kib": "64", "recommended_kib": "512", "partial": "prefix", "unmap": "one", "mappings": "2500"},
    {"granularity_kib": "4096", "recommended_kib": "4096", "partial": "inner", "unmap": "several", "mappings": "0"},
]
PRICES = """cuMemAddressReserve 1234
cuMemAddressFree 777
cuMemCreate 5000 0 4000000
cuMemMap 321 0 8000000
cuMemSetAccess 4100 30000 2000000
cuMemUnmap {unmap}
cuMemRelease 900
cuMemAlloc 40000 0 700000
cuMemFree 30000 0 100000
cuMemGetInfo 555
cuEventCreate 111
cuEventRecord 222
cuEventQuery 333
cuEventDestroy 444
cuStreamSynchronize 666
cuCtxSynchronize 888
default 50
"""


def probe(**settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEAMALLOC_SIM_")}
    environment |= {"LD_LIBRARY_PATH": LIBRARIES, "SEAMALLOC_SIM_STREAMS": "timed", "SEAMALLOC_SIM_MIB": "16384",
                    "SEAMALLOC_SIM_PROBE": "/nonexistent"}  # also on a machine with a GPU
    return subprocess.run([PROBE, "--mappings", str(MOST)], env=environment | settings, capture_output=True, text=True,
                          timeout=300)


def found(done):
    """({rule: value}, {call: prices}) of what the probe printed."""
    assert done.returncode == 0, done.stderr
    rules = dict(re.findall(r"^rule\.(\w+) (\S+)", done.stdout, re.MULTILINE))
    prices = {name: [int(part) for part in parts.split()]
              for name, parts in re.findall(r"^(cu\w+) ([\d ]+)$", done.stdout, re.MULTILINE)}
    assert re.match(r"# .+, 16384 MiB, driver \d+\.\d+, \d{4}-\d\d-\d\d, virtual time", done.stdout), done.stdout
    assert "shows the same bytes: yes" in done.stdout
    return rules, prices


def close(one, other):
    """Prices of a GiB are read off a few MiB, in whole nanoseconds."""
    return len(one) == len(other) and all(abs(a - b) <= 2 + 0.001 * max(a, b) for a, b in zip(one, other, strict=True))


def check_case(number, case):
    said, file = FOLDER / f"said-{number}.conf", FOLDER / f"found-{number}.conf"
    prices = PRICES.format(unmap="20 9000" if case["unmap"] == "several" else "9020")
    said.write_text(prices)
    variables = {f"SEAMALLOC_SIM_{name.upper()}": value for name, value in case.items()}
    first = probe(SEAMALLOC_SIM_COST=str(said), **variables)
    rules, costs = found(first)
    assert rules == {name: value for name, value in case.items() if (name, value) != ("mappings", "0")}, rules
    expected = {name: [int(part) for part in parts.split()]
                for name, parts in re.findall(r"^(cu\w+) ([\d ]+)$", prices, re.MULTILINE)}
    for name, parts in expected.items():
        assert close((parts + [0, 0])[:len(costs[name])], costs[name]), (name, parts, costs[name])
    file.write_text(first.stdout)
    again_rules, again_costs = found(probe(SEAMALLOC_SIM_COST=str(file)))
    assert again_rules == rules, (rules, again_rules)
    assert sorted(again_costs) == sorted(costs)
    for name, parts in costs.items():
        assert close(parts, again_costs[name]), (name, parts, again_costs[name])


def check_wrong():
    for name, value in WRONG.items():
        file, variable = FOLDER / "wrong.conf", f"SEAMALLOC_SIM_{name.upper()}"
        file.write_text(f"like h100\nrule.{name} {value}\n")
        for settings, wanted in (({"SEAMALLOC_SIM_COST": str(file)}, f"{file.name}:2: want "),
                                 ({variable: value}, f"{variable}={value} is not valid: want ")):
            done = probe(**settings)
            assert done.returncode == 1 and wanted in done.stderr, (settings, done.stderr)


FOLDER.mkdir(parents=True, exist_ok=True)
for index, rules_of_case in enumerate(CASES):
    check_case(index, rules_of_case)
check_wrong()
print(f"{len(CASES)} devices were found again by their files; {2 * len(WRONG)} wrong values were refused")
