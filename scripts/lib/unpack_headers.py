# SPDX-License-Identifier: Apache-2.0
"""unpack_headers.py WHEEL_FOLDER REQUIREMENTS TARGET: copies the include folders of the pinned wheels into TARGET.
The folder appears whole or not at all: it is filled beside its place and then renamed."""

import shutil
import sys
import zipfile
from pathlib import Path

from missing_wheels import read_pins, usable_wheels


def unpack(wheel, target):
    """Writes every file below an `include` folder of the wheel to the same place below target."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, found, inside = name.partition("/include/")
            if found and inside and not name.endswith("/"):
                path = target / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))


if __name__ == "__main__":
    folder, requirements, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    wheels = usable_wheels(folder)
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for _, name, version in read_pins(requirements):
        unpack(wheels[name, version], fresh)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
