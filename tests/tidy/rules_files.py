# SPDX-License-Identifier: Apache-2.0
"""The form of each file: licence line, prologue, header guard, lengths, and words that do not belong into the tree."""

import re
from collections.abc import Iterator
from pathlib import Path

from tree import Finding, Rule, Source, Tree

LINE_MAX = 110  # C, where clang-format sees to it
SCRIPT_LINE_MAX = 120  # Python, shell, CMake
FILE_MAX = 800
LICENCE = "SPDX-License-Identifier: Apache-2.0"
# Files that speak for themselves: a list of targets, of requirements.
NO_PROLOGUE = ("CMakeLists.txt", "__init__.py", "conftest.py", "py.typed")
PROLOGUE_MIN = 25  # characters; less says nothing, except that all is said in the header
SEE_HEADER = re.compile(r"\bsee [\w/]+\.h\b")

C_HEAD = f"/* {LICENCE} */\n"
HASH_HEAD = f"# {LICENCE}\n"
PROLOGUE = "/* sample: shows the rule a file that is long enough to say something. */\n"


def skip_shebang(source: Source) -> int:
    return 1 if source.lines and source.lines[0].startswith("#!") else 0


def check_licence(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.is_code or not source.text:
        return
    first = skip_shebang(source)
    wanted = C_HEAD if source.is_c else HASH_HEAD
    accepted = {wanted.strip(), f"// {LICENCE}", f"/* {LICENCE} */"} if source.is_c else {wanted.strip()}
    if source.path.endswith(".map"):
        accepted.add(C_HEAD.strip())
    if len(source.lines) <= first or source.lines[first] not in accepted:
        yield first + 1, f"the first line must be: {wanted.strip()}"


def check_prologue(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.is_code or not source.text or Path(source.path).name in NO_PROLOGUE:
        return
    first = skip_shebang(source) + 1
    rest = "\n".join(source.lines[first:]).lstrip()
    if source.is_c:
        found = re.match(r"/\*.*?\*/|(?://[^\n]*\n)+", rest, re.DOTALL)
    elif source.path.endswith(".py"):
        found = re.match(r'""".*?"""|(?:#[^\n]*\n)+', rest, re.DOTALL)
    else:
        found = re.match(r"/\*.*?\*/|(?:#[^\n]*(?:\n|$))+", rest, re.DOTALL)
    if not found or len(found[0]) < PROLOGUE_MIN and not SEE_HEADER.search(found[0]):
        yield first + 1, "after the licence line comes a comment: what this file is, what it owns, what protects it"


def check_guard(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.path.endswith((".h", ".h.in")):
        return
    stem = re.sub(r"\W", "_", source.path.removesuffix(".in").removesuffix(".h")).upper()
    inner = stem.removeprefix("INCLUDE_SEAMALLOC_").removeprefix("TORCH_GLUE_")
    short = stem.replace("TESTS_UNIT_", "TESTS_")
    tails = {f"{name}_H" for name in (stem, inner, short, f"TORCH_{inner.removeprefix('SHIM_')}")}
    found = re.search(r"^#ifndef (\w+)\n#define (\w+)$", source.text, re.MULTILINE)
    if not found or found[1] != found[2]:
        yield 1, "a header has a guard: #ifndef and #define of one name, before all else"
    elif re.sub(r"^(SEAMALLOC_|SEAM_)", "", found[1]) not in tails and found[1] not in tails:
        yield 1, f"the guard {found[1]} does not name the header: SEAM_{stem}_H"


def check_lengths(source: Source, tree: Tree) -> Iterator[Finding]:
    """A line that cannot be broken is left: an address of the web, or a single word."""
    if not source.is_code:
        return
    most = LINE_MAX if source.is_c else SCRIPT_LINE_MAX
    for number, line in enumerate(source.lines, 1):
        breakable = "://" not in line and len(line.strip(" */#").split()) > 1
        if len(line) > most and breakable:
            yield number, f"{len(line)} columns; at most {most}"
    if len(source.lines) > FILE_MAX:
        yield FILE_MAX + 1, f"{len(source.lines)} lines; at most {FILE_MAX}: split what has two subjects"


def check_space(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.text or Path(source.path).name == "LICENSE":
        return
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if "\t" in line and source.is_code:
            yield number, "a tab; four spaces are used"
    if not source.text.endswith("\n"):
        yield len(source.lines), "no line end at the end of the file"
    if "\r" in source.text:
        yield 1, "line ends of another system"


# Written in two parts, so that this file does not find itself.
WORDS = (
    (re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b"), "unfinished work belongs into the tracker"),
    (re.compile(r"\.\./" + r"shared\b"), "the tree needs nothing outside of itself"),
    (re.compile(r"(?<![\w.~$}>-])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me|Us" + r"ers)/"), "a path of somebody's machine"),
    (
        re.compile(r"\b(?:py" + r"pi|python" + r"hosted|deb\.de" + r"bian|download\.py" + r"torch)\.org\b"),
        "package clients know where their registry is",
    ),
    (re.compile(r"\bissue" + r"s? #?\d", re.IGNORECASE), "the reason belongs here, not a number in a tracker"),
)


def check_words(source: Source, tree: Tree) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        for pattern, reason in WORDS:
            if found := pattern.search(line):
                yield number, f"{found[0]!r}: {reason}"


RULES = (
    Rule(
        "licence",
        check_licence,
        bad=(
            ("base/a.c", "/* a: something. */\n"),
            ("base/a.c", "\n" + C_HEAD),
            ("base/a.c", HASH_HEAD),
            ("scripts/a", "#!/bin/sh\necho\n"),
            ("base/CMakeLists.txt", "add_library(a)\n"),
            ("scripts/a.py", "import os\n"),
        ),
        good=(
            ("base/a.c", C_HEAD),
            ("scripts/a", "#!/bin/sh\n" + HASH_HEAD),
            ("alloc/a.map", C_HEAD),
            ("docs/a.md", "# Title\n"),
        ),
    ),
    Rule(
        "prologue",
        check_prologue,
        bad=(
            ("base/a.c", C_HEAD + "#include <stdio.h>\n"),
            ("base/a.h", C_HEAD + "/* a.h */\n"),
            ("scripts/a.py", HASH_HEAD + "import os\n"),
            ("scripts/a", "#!/bin/sh\n" + HASH_HEAD + "set -e\n"),
        ),
        good=(
            ("base/a.c", C_HEAD + PROLOGUE),
            ("base/a.c", C_HEAD + "/* a: see a.h. */\n"),
            ("scripts/a", "#!/bin/sh\n" + HASH_HEAD + "# Shows the rule a script that says what it does.\nset -e\n"),
            ("tests/a.py", HASH_HEAD + '"""Shows the rule a module that says what it does."""\n'),
            ("base/CMakeLists.txt", HASH_HEAD + "add_library(a)\n"),
        ),
    ),
    Rule(
        "guard",
        check_guard,
        bad=(
            ("base/a.h", C_HEAD + PROLOGUE + "int a;\n"),
            ("base/a.h", "#ifndef SEAM_BASE_A_H\n#define SEAM_BASE_B_H\n"),
            ("base/a.h", "#ifndef SEAM_STATS_A_H\n#define SEAM_STATS_A_H\n"),
            ("include/seamalloc/a.h", "#ifndef A\n#define A\n"),
        ),
        good=(
            ("base/a.h", "#ifndef SEAM_BASE_A_H\n#define SEAM_BASE_A_H\n"),
            ("sim/core/a.h", "#ifndef SEAMALLOC_SIM_CORE_A_H\n#define SEAMALLOC_SIM_CORE_A_H\n"),
            ("include/seamalloc/result.h", "#ifndef SEAMALLOC_RESULT_H\n#define SEAMALLOC_RESULT_H\n"),
            ("include/seamalloc/seamalloc.h", "#ifndef SEAMALLOC_H\n#define SEAMALLOC_H\n"),
        ),
    ),
    Rule(
        "lengths",
        check_lengths,
        bad=(
            ("base/a.c", "int " + "a, " * 40 + "b;\n"),
            ("base/a.c", "\n" * (FILE_MAX + 1)),
            ("scripts/a.py", "# word" * 21 + "\n"),
        ),
        good=(
            ("base/a.c", "x " * (LINE_MAX // 2) + "\n"),
            ("scripts/a.py", "x " * (SCRIPT_LINE_MAX // 2) + "\n"),
            ("base/a.c", "/* " + "x" * 150 + " */\n"),
            ("base/a.c", "/* see https://example.net/" + "a" * 100 + " there */\n"),
            ("docs/a.md", "word " * 100 + "\n"),
        ),
    ),
    Rule(
        "space",
        check_space,
        bad=(
            ("base/a.c", "int a; \n"),
            ("base/a.c", "int a;"),
            ("base/a.c", "\tint a;\n"),
            ("docs/a.md", "a\r\nb\r\n"),
        ),
        good=(("base/a.c", "int a;\n"), ("docs/a.md", "a\n\nb\n")),
    ),
    Rule(
        "words",
        check_words,
        bad=(
            ("base/a.c", "/* TO" + "DO: more */\n"),
            ("docs/a.md", "FIX" + "ME\n"),
            ("docs/a.md", "see ../" + "shared/design.md\n"),
            ("scripts/a", "cd /wo" + "rk/main\n"),
            ("docs/a.md", "in /ho" + "me/someone/src\n"),
            ("scripts/a", "pip install -i https://py" + "pi.org/simple\n"),
            ("base/a.c", "/* as issue" + " #12 asks */\n"),
        ),
        good=(
            ("base/a.c", "/* todo lists are not our subject; a home/extent path, framework/a */\n"),
            ("docs/a.md", "Issues are read by people.\n"),
            ("scripts/a", 'cd "$here/work/x"\n'),
        ),
    ),
)
