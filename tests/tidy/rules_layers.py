# SPDX-License-Identifier: Apache-2.0
"""The layers: which room may include which. An edge that is not in the table is an error, so a new dependency between
rooms is a decision that somebody writes down here and in docs/design.md."""

import re
from collections.abc import Iterator

from tree import Finding, Rule, Source, Tree

# Room: the rooms it may include, besides itself. "include" stands for the public headers, "cuda" for the driver's.
ALLOWED = {
    "include": (),
    "base": ("include",),
    "policies": ("include", "base"),
    "stats": ("include", "base"),
    "stats/trace": ("include", "base"),
    "alloc/heap": ("include", "base"),
    "alloc/driver": ("include", "base", "cuda"),
    "alloc": ("include", "base", "policies", "stats", "stats/trace", "alloc/heap", "alloc/driver", "cuda"),
    "torch-glue": ("include",),
    "sim": ("base", "cuda"),
    "tools": ("include", "stats/trace", "sim", "cuda"),
    "stress": ("include", "sim", "cuda"),
    "examples": ("include", "cuda"),
}
# A test may look into the room it tests, and into all below.
UNBOUND = ("tests/",)
# Headers that a build writes, and the room they belong to.
GENERATED = {"names.h": "sim"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path: str) -> str | None:
    """The innermost room that a path lies in."""
    rooms = [room for room in ALLOWED if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def included_room(bracket: str, name: str) -> str | None:
    """The room of an included header; None for one that is not the project's."""
    if name.startswith("seamalloc/"):
        return "include"
    if re.match(r"cuda\w*\.h$", name):
        return "cuda"
    if name in GENERATED:
        return GENERATED[name]
    return room_of(name) if bracket == '"' else None


def check_layers(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.is_c:
        return
    room = room_of(source.path)
    for number, line in enumerate(source.c_lines(literals=True), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        bracket, name = found.groups()
        target = included_room(bracket, name)
        if name.endswith((".c", ".cc", ".cpp")):
            yield number, f'"{name}": a source file is compiled, not included'
        elif bracket == '"' and target is None and not name.startswith(UNBOUND):
            yield number, f'"{name}": write it from the root of the tree, as in "base/align.h"'
        elif room and bracket == '"' and name.startswith(UNBOUND):
            yield number, f'"{name}": {room} may not include what belongs to the tests'
        elif room and target and target != room and target not in ALLOWED[room]:
            allowed = ", ".join(ALLOWED[room]) or "nothing"
            yield number, f'"{name}": {room} may include {allowed} and itself, not {target}'


RULES = (
    Rule(
        "layers",
        check_layers,
        bad=(
            ("base/a.c", '#include "policies/fit.h"\n'),
            ("policies/a.c", '#include "stats/stats.h"\n'),
            ("stats/a.c", '#include "alloc/heap/heap.h"\n'),
            ("alloc/heap/a.c", '#include "policies/fit.h"\n'),
            ("alloc/heap/a.c", "#include <cuda.h>\n"),
            ("alloc/heap/a.c", '#include "alloc/driver/driver.h"\n'),
            ("alloc/driver/a.c", '#include "alloc/pool.h"\n'),
            ("torch-glue/shim/a.c", '#include "alloc/pool.h"\n'),
            ("tools/a.c", '#  include   "base/align.h"\n'),
            ("stress/a.c", '#include "stats/stats.h"\n'),
            ("sim/core/a.c", '#include "alloc/pool.h"\n'),
            ("sim/core/a.c", "#include <seamalloc/seamalloc.h>\n"),
            ("include/seamalloc/a.h", '#include "base/align.h"\n'),
            ("alloc/a.c", '#include "pool.h"\n'),
            ("alloc/a.c", '#include "../base/align.h"\n'),
            ("alloc/a.c", '#include "alloc/pool.c"\n'),
            ("alloc/a.c", '#include "tests/support/seam_test.h"\n'),
            ("tests/unit/a.c", '#include "support.h"\n'),
        ),
        good=(
            ("base/a.c", '#include "base/align.h"\n#include <seamalloc/result.h>\n#include <stdlib.h>\n'),
            ("alloc/a.c", '#include "policies/fit.h"\n#include "alloc/driver/driver.h"\n#include <cuda.h>\n'),
            ("alloc/driver/a.c", "#include <cuda.h>\n"),
            ("policies/a.c", '/* #include "stats/stats.h" */\n'),
            ("tools/a.c", '#include "sim/sim.h"\n#include <seamalloc/seamalloc.h>\n'),
            ("tests/unit/a.c", '#include "alloc/heap/internal.h"\n#include "tests/support/seam_test.h"\n'),
        ),
    ),
)
