# SPDX-License-Identifier: Apache-2.0
"""Functions that only one file may call. The libraries live in other people's processes: they must not print to their
terminals, end them, read their environment here and there, or take memory that nobody counts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

from tree import Finding, Rule, Source, Tree

LIBRARIES = ("base/*", "policies/*", "stats/*", "alloc/*", "torch-glue/*")
# Whole programs, and the device that stands in for a driver: their memory and their terminal are their own.
PROGRAMS = ("sim/*", "tools/*", "stress/*", "tests/*", "examples/*")


@dataclass(frozen=True)
class Ban:
    """Names that the files of `rooms` may not use, except in `homes`."""

    names: str
    rooms: tuple[str, ...]
    homes: tuple[str, ...]
    instead: str

    def covers(self, path: str) -> bool:
        return any(fnmatch(path, room) for room in self.rooms) and not any(fnmatch(path, home) for home in self.homes)

    def find(self, line: str) -> str | None:
        """A call by this name; not a member's, as in table->free(x), nor a longer name's."""
        found = re.search(rf"(?<![\w.>])({self.names})\s*(?=\()", line)
        return found[1] if found else None


BANS = (
    Ban(
        "getenv|secure_getenv|setenv|unsetenv|putenv",
        (*LIBRARIES, "sim/*"),
        ("policies/options*.c", "sim/core/config*.c"),
        "the environment is read in one place: policies/options, for the simulated device sim/core/config",
    ),
    Ban(
        "malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|memalign|valloc|strdup|strndup|"
        "asprintf|vasprintf|getline|open_memstream|mallocx|rallocx|sdallocx|dallocx",
        LIBRARIES,
        ("base/hostmem.c",),
        "host memory comes from base/hostmem.h, which counts it and can make it fail",
    ),
    Ban(
        "printf|fprintf|vprintf|vfprintf|dprintf|puts|fputs|putchar|fputc|perror",
        LIBRARIES,
        ("base/log.c",),
        "a library speaks through base/log.h",
    ),
    Ban(
        "exit|_exit|_Exit|quick_exit|abort|raise|terminate",
        LIBRARIES,
        # A broken lock rank or a lost mutex leaves nothing that could be reported in another way.
        ("base/log.c", "base/lock.c"),
        "a library does not end the process that uses it: return an error",
    ),
)


def check_calls(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.is_c:
        return
    bans = [ban for ban in BANS if ban.covers(source.path)]
    if not bans:
        return
    for number, line in enumerate(source.c_lines(literals=False), 1):
        for ban in bans:
            if name := ban.find(line):
                yield number, f"{name}(): {ban.instead}"


RULES = (
    Rule(
        "calls",
        check_calls,
        bad=(
            ("alloc/a.c", 'const char *a = getenv("A");\n'),
            ("base/log.c", 'const char *a = getenv("A");\n'),
            ("sim/libcuda/a.c", 'if (getenv("A"))\n'),
            ("stats/a.c", "void *a = malloc(4);\n"),
            ("alloc/heap/a.c", "    free (a);\n"),
            ("torch-glue/shim/a.cc", "char *a = strdup(b);\n"),
            ("alloc/a.c", 'printf("%d", 1);\n'),
            ("base/error.c", "fprintf(stderr, b);\n"),
            ("policies/a.c", "abort();\n"),
            ("alloc/a.c", "if (a)\n    exit(1);\n"),
            ("torch-glue/a.cc", "std::terminate();\n"),
        ),
        good=(
            ("policies/options.c", 'getenv("A");\n'),
            ("policies/options_read.c", 'getenv("A");\n'),
            ("sim/core/config.c", 'getenv("A");\n'),
            ("base/hostmem.c", "return calloc(1, size);\n"),
            ("base/log.c", "vfprintf(stderr, a, b);\nabort();\n"),
            ("sim/core/a.c", "void *a = malloc(1);\n"),
            ("alloc/a.c", "table->free(a);\nsm_host_free(a);\nops.exit(b);\nsnprintf(a, 1, b);\n"),
            ("alloc/a.c", '/* free(a) */ const char *b = "abort()";\n'),
        ),
    ),
)
