# SPDX-License-Identifier: Apache-2.0
"""The tree as the rules see it: which files there are, and a C text without its comments and literals."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
C_SUFFIXES = (".c", ".h", ".cc", ".cpp", ".hpp", ".h.in")
CODE_SUFFIXES = (*C_SUFFIXES, ".py", ".sh", ".cmake", ".cmake.in", ".map")

# A comment or a literal. The order matters: each begins where the earlier ones do not reach.
TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<literal>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)


@dataclass(frozen=True)
class Source:
    """A file: its path from the root, its text. Samples of the self-tests are sources without a file."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def is_c(self) -> bool:
        return self.path.endswith(C_SUFFIXES)

    @property
    def is_code(self) -> bool:
        """Written by people for a machine: C, Python, CMake, shell (a script may have no suffix)."""
        name = Path(self.path).name
        return self.path.endswith(CODE_SUFFIXES) or name == "CMakeLists.txt" or self.text.startswith("#!")

    def c_lines(self, literals: bool) -> list[str]:
        """The lines of a C file with comments blanked, and literals too unless wanted; lines keep their numbers."""

        def blank(match: re.Match[str]) -> str:
            if match["literal"] and literals:
                return match[0]
            return re.sub(r"[^\n]", " ", match[0])

        return TOKEN.sub(blank, self.text).splitlines()


@dataclass(frozen=True)
class Tree:
    """All paths that exist, so that a rule can ask whether something is there, and the texts by path."""

    sources: dict[str, Source]

    def has(self, path: str) -> bool:
        return path in self.sources or any(known.startswith(path.rstrip("/") + "/") for known in self.sources)


Finding = tuple[int, str]  # line, what is wrong and what would be right


# The path and the text of a file; or of several, of which the first is checked and the others exist.
Sample = tuple[str, str] | tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Rule:
    """One rule, with samples that show it works: each bad one must be found, each good one must not."""

    name: str
    check: Callable[[Source, Tree], Iterator[Finding]]
    bad: tuple[Sample, ...]
    good: tuple[Sample, ...]


def listed_paths() -> list[str]:
    """What git tracks or would track; in an unpacked archive, every file outside build/."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    git = subprocess.run(command, capture_output=True) if shutil.which("git") else None
    if git and git.returncode == 0:
        return sorted(path for path in git.stdout.decode().split("\0") if path and (ROOT / path).is_file())
    paths = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name == ".ci" or not name.startswith((".", "build", "__py"))]
        paths += [str((Path(folder) / name).relative_to(ROOT)) for name in files]
    return sorted(paths)


def read_tree() -> Tree:
    """Files that are no UTF-8 text (pictures, compressed traces) count as present and empty."""
    sources = {}
    for path in listed_paths():
        try:
            sources[path] = Source(path, (ROOT / path).read_text())
        except UnicodeDecodeError:
            sources[path] = Source(path, "")
    return Tree(sources)
