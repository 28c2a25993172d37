# SPDX-License-Identifier: Apache-2.0
"""check_names.py [--must-fail] FILE...: every name that crosses files inside our libraries has our prefix.

A static library's names share one space with those of the program it is linked into, so none may be a common word.
With --must-fail each file is expected to hold a name without the prefix: that is how the check is tested."""

import subprocess
import sys
from pathlib import Path

PREFIXES = ("seam_", "sm_")


def foreign_names(file: str) -> list[str]:
    listing = subprocess.run(["nm", "-g", "--defined-only", file], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in listing.splitlines() if len(line.split()) == 3]
    if not names:
        return ["no name at all: is this the right file?"]
    # What the C and C++ compilers make begins otherwise than any name of ours.
    return sorted(name for name in set(names) if not name.startswith((*PREFIXES, "__", "DW.ref.", "_ZT")))


def main() -> int:
    must_fail = sys.argv[1:2] == ["--must-fail"]
    files = sys.argv[1 + must_fail :]
    failures = not files
    print(f"1..{len(files)}")
    for number, file in enumerate(files, 1):
        foreign = foreign_names(file)
        good = bool(foreign) == must_fail
        if not good:
            print("\n".join(f"without our prefix: {name}" for name in foreign) or "the bad library was not noticed")
        print(f"{'ok' if good else 'not ok'} {number} - names of {Path(file).name}")
        failures += not good
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
