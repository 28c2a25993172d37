# SPDX-License-Identifier: Apache-2.0
"""missing_wheels.py WHEEL_FOLDER REQUIREMENTS...: prints the pinned requirements that have no wheel for this
interpreter in the folder, one a line. Uses pip's own parser of wheel names, so it must run where pip is."""

import re
import sys
from pathlib import Path

from pip._vendor.packaging.tags import sys_tags
from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename


def read_pins(path):
    """Yields (line, name, version) of each `name==version`; anything else in the file is an error."""
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line)
        if not match:
            sys.exit(f"{path}:{number}: not a pinned requirement: {line}")
        yield line, canonicalize_name(match[1]), match[2]


def usable_wheels(folder):
    """The (name, version) of each wheel in the folder that this interpreter can install."""
    supported = set(sys_tags())
    found = {}
    for path in Path(folder).glob("*.whl"):
        name, version, _, tags = parse_wheel_filename(path.name)
        if not supported.isdisjoint(tags):
            found[name, str(version)] = path
    return found


if __name__ == "__main__":
    wheels = usable_wheels(sys.argv[1])
    for path in sys.argv[2:]:
        for line, name, version in read_pins(path):
            if (name, version) not in wheels:
                print(line)
