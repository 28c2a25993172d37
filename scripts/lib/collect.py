# SPDX-License-Identifier: Apache-2.0
"""collect.py RESULTS_FOLDER: one count over everything that a test run left behind.

Each stage of a run has a file STAGE.stage with three words: its kind (ctest, pytest, tap or step), its exit status, and
"whole" or "narrowed" (somebody asked for some tests only). Beside it lies what the stage's runner wrote: STAGE.xml
(ctest's or pytest's JUnit file) or STAGE.tap; a step (a build) leaves nothing and counts only when it fails. Every
test function counts: a ctest program that prints TAP lines (CMocka does so when told) counts once for each line,
another program counts once.

A stage counts against itself what its runner could not tell: an exit status that no failed test explains, a runner
that left no file, a program that died before all of its planned tests had run, a stage that ran nothing although
nobody had narrowed the choice.

Prints the failures, then each skip with its reason, then alone on the last line "N passed, N failed, N skipped".
Exits 0 only if something passed and nothing failed."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

TAP_LINE = re.compile(r"^(not ok|ok) (\d+)\b(?: - )?(.*)$")
TAP_PLAN = re.compile(r"^(\d+)\.\.(\d+)\s*$")
TAP_SKIP = re.compile(r"#\s*SKIP\b\s*(.*)$", re.IGNORECASE)
# What XML cannot hold comes from ctest as is or as this marker.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]|\\[NON-XML-CHAR-0x[0-9A-F]+\\]")
PYTEST_NOTHING_COLLECTED = 5


@dataclass
class Tally:
    passed: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)  # (name, reason)

    def skip(self, name, reason):
        """A skip that tells no reason hides something: it fails."""
        if reason:
            self.skipped.append((name, reason))
        else:
            self.failed.append(f"{name}: skipped without a reason")

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def read_tap(name, text):
    """The tests that a program's output tells of. Numbers may begin again at 1: one program, several groups. A skip
    gives its reason on its own line, or, as CMocka does, prints it on the line before."""
    tally = Tally()
    planned = run = 0
    before = ""
    for line in NOT_XML.sub("", text).splitlines():
        if plan := TAP_PLAN.match(line):
            planned += int(plan[2]) - int(plan[1]) + 1
        elif found := TAP_LINE.match(line):
            run += 1
            skip = TAP_SKIP.search(line)
            label = f"{name}: {TAP_SKIP.sub('', found[3]).strip() or found[2]}"
            if skip:
                # CMocka writes "not ok 1 # SKIP name"; others write "ok 1 - name # SKIP reason".
                as_cmocka = found[1] == "not ok"
                label = f"{name}: {skip[1].strip()}" if as_cmocka else label
                reason = before if as_cmocka else skip[1].strip()
                tally.skip(label, reason)
            elif found[1] == "ok":
                tally.passed.append(label)
            else:
                tally.failed.append(label)
            before = ""
        elif line.strip() and not line.startswith("#"):
            before = line.strip()
    if run < planned:
        tally.failed.append(f"{name}: {planned - run} of {planned} planned tests did not report")
    return tally


def read_ctest_case(stage, case):
    """One ctest test: its TAP lines, or itself."""
    name = f"{stage}: {case.get('name')}"
    output = case.findtext("system-out") or ""
    status = case.get("status")
    tally = read_tap(name, output)
    told = tally.passed or tally.failed or tally.skipped
    if status == "run":
        if not told:
            tally.passed.append(name)
    elif status == "notrun" or status == "disabled":
        message = (case.find("skipped").get("message") or "") if case.find("skipped") is not None else status
        if "SKIP_RETURN_CODE" not in message and "SKIP_REGULAR_EXPRESSION" not in message:
            tally.failed.append(f"{name}: not run ({message or status})")
        elif not tally.skipped:
            tally.skip(name, last_line(NOT_XML.sub("", output)))
    elif not tally.failed:
        failure = case.find("failure")
        tally.failed.append(f"{name}: {(failure.get('message') if failure is not None else '') or 'failed'}")
    return tally


def read_pytest_case(stage, case):
    name = f"{stage}: {case.get('classname')}.{case.get('name')}"
    tally = Tally()
    skip = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None:
        tally.failed.append(name)
    elif skip is not None:
        tally.skip(name, " ".join((skip.get("message") or "").split()))
    else:
        tally.passed.append(name)
    return tally


def read_cases(path, read_case, stage):
    tally = Tally()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        tally.add(read_case(stage, case))
    return tally


def read_stage(path):
    """One stage: what its runner told, then what its exit status says that the runner did not."""
    stage = path.stem
    kind, status, narrowed = path.read_text().split()
    tally = Tally()
    readers = {"ctest": ("xml", lambda p: read_cases(p, read_ctest_case, stage)),
               "pytest": ("xml", lambda p: read_cases(p, read_pytest_case, stage)),
               "tap": ("tap", lambda p: read_tap(stage, p.read_text(errors="replace")))}
    if kind in readers:
        suffix, read = readers[kind]
        try:
            tally = read(path.with_suffix("." + suffix))
        except (OSError, ElementTree.ParseError) as error:
            tally.failed.append(f"{stage}: no result can be read ({error})")
    elif kind != "step":
        tally.failed.append(f"{stage}: unknown kind of stage {kind!r}")
    nothing = not (tally.passed or tally.failed or tally.skipped)
    if nothing and kind != "step" and narrowed != "narrowed":
        tally.failed.append(f"{stage}: ran no test")
    excused = nothing and narrowed == "narrowed" and kind == "pytest" and int(status) == PYTEST_NOTHING_COLLECTED
    if int(status) != 0 and not tally.failed and not excused:
        tally.failed.append(f"{stage}: ended with status {status}")
    return tally


def collect(folder):
    tally = Tally()
    for path in sorted(folder.glob("*.stage")):
        tally.add(read_stage(path))
    return tally


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: collect.py RESULTS_FOLDER")
    tally = collect(Path(sys.argv[1]))
    for name, reason in tally.skipped:
        print(f"skipped  {name} ({reason})")
    for name in tally.failed:
        print(f"FAILED   {name}")
    if not (tally.passed or tally.failed):
        tally.failed.append("nothing ran")
        print("FAILED   no test passed or failed at all")
    print(f"{len(tally.passed)} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    sys.exit(1 if tally.failed or not tally.passed else 0)


if __name__ == "__main__":
    main()
