# SPDX-License-Identifier: Apache-2.0
"""The build: a source that no list of files names is never compiled, and a test that is never compiled never fails."""

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatch

from tree import Finding, Rule, Source, Tree

WORD = re.compile(r"[\w.*/+-]+\.(?:c|cc|cpp)\b")


def named_files(listing: Source, folder: str) -> set[str]:
    """The sources that a list in this folder names, from the root of the tree; a pattern stays one."""
    text = re.sub(r"#[^\n]*", "", listing.text)
    text = re.sub(r"\$\{CMAKE_(?:CURRENT_SOURCE|SOURCE)_DIR\}/?", "", text)
    text = re.sub(r"\$\{\w+\}", "*", text)  # the variable of a loop over names
    return {posixpath.normpath(posixpath.join(folder, word)) for word in WORD.findall(text)}


def listings(folder: str, tree: Tree) -> Iterator[Source]:
    """The folder's CMakeLists.txt, and the tables from which its libraries are generated."""
    for path, source in tree.sources.items():
        table = path.endswith(".tab") and posixpath.dirname(posixpath.dirname(path)) == folder
        if path == posixpath.join(folder, "CMakeLists.txt") or table:
            yield source


def check_built(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.path.endswith((".c", ".cc", ".cpp")):
        return
    folder = posixpath.dirname(source.path)
    while True:
        for listing in listings(folder, tree):
            if any(fnmatch(source.path, name) for name in named_files(listing, folder)):
                return
        if not folder:
            break
        folder = posixpath.dirname(folder)
    yield 1, "no CMakeLists.txt here or above names this file: it is never built"


RULES = (
    Rule(
        "built",
        check_built,
        bad=(
            (("base/a.c", ""), ("base/CMakeLists.txt", "add_library(base b.c) # a.c\n")),
            (("base/deep/a.c", ""), ("base/CMakeLists.txt", "add_library(base a.c)\n")),
            (("tests/unit/test_a.c", ""), ("tests/CMakeLists.txt", "")),
        ),
        good=(
            (("base/a.c", ""), ("base/CMakeLists.txt", "add_library(base a.c)\n")),
            (("tests/unit/test_a.c", ""), ("tests/unit/CMakeLists.txt", "foreach(x a b)\nseam_test(test_${x}.c)\n")),
            (("sim/core/a.c", ""), ("sim/CMakeLists.txt", "file(GLOB X CONFIGURE_DEPENDS core/*.c)\n")),
            (("sim/mathlibs/a.c", ""), ("sim/mathlibs/tables/a.tab", "source a.c\n")),
            (("base/a.h", ""),),
        ),
    ),
)
