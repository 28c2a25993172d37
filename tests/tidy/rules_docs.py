# SPDX-License-Identifier: Apache-2.0
"""Documents: a link leads to a file and a heading that exist, and a comment names no document that is not there."""

import posixpath
import re
from collections.abc import Iterator

from tree import Finding, Rule, Source, Tree

LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
REFERENCE = re.compile(r"^\s*\[[^\]]+\]:\s*(\S+)")
DOCUMENT = re.compile(r"(?<![\w/.-])((?:docs|alloc|sim|stress|tests|tools|policies|stats|base)/[\w/.-]*\w\.md)\b")
TEST_FILE = re.compile(r"`(\w+)` is `(tests/[\w/.-]+)`")
TEST_NAME = re.compile(r"`(\w+)::(\w+)`")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")


def prose_lines(source: Source) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced code, without the code between backticks."""
    fenced = False
    for number, line in enumerate(source.lines, 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", lambda found: " " * len(found[0]), line)


def anchors(source: Source) -> set[str]:
    """The anchors of a document's headings, as the usual viewers make them: a repeated one gets a number."""
    found: set[str] = set()
    fenced = False
    for line in source.lines:
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        heading = HEADING.match(line)
        if fenced or not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = 0
        while (name := f"{slug}-{count}" if count else slug) in found:
            count += 1
        found.add(name)
    return found


def check_links(source: Source, tree: Tree) -> Iterator[Finding]:
    if not source.path.endswith(".md"):
        return
    for number, line in prose_lines(source):
        targets = LINK.findall(line) + REFERENCE.findall(line)
        for target in targets:
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            place = posixpath.normpath(posixpath.join(posixpath.dirname(source.path), path)) if path else source.path
            if not tree.has(place) and place != ".":
                yield number, f"{target}: there is no {place}"
            elif anchor and place in tree.sources and anchor not in anchors(tree.sources[place]):
                yield number, f"{target}: {place} has no such heading"


def check_mentions(source: Source, tree: Tree) -> Iterator[Finding]:
    if source.path.startswith("tests/tidy/"):
        return
    for number, line in enumerate(source.lines, 1):
        for name in DOCUMENT.findall(line):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(source.path), name))
            if not tree.has(name) and not tree.has(beside):
                yield number, f"{name} is named here and does not exist"


def check_tests(source: Source, tree: Tree) -> Iterator[Finding]:
    """A document may name tests as `file::function`, each file by a short name that it explains."""
    files = dict(TEST_FILE.findall(source.text))
    if not source.path.endswith(".md") or not files:
        return
    for number, line in enumerate(source.lines, 1):
        for name, path in TEST_FILE.findall(line):
            if not tree.has(path):
                yield number, f"{name}: there is no {path}"
        for name, function in TEST_NAME.findall(line):
            if name not in files:
                yield number, f"{name}::{function}: no line says which file {name} is"
            elif files[name] in tree.sources:
                text = tree.sources[files[name]].text
                if not re.search(rf"^(?:(?:static )?void|def) {function}\(", text, re.MULTILINE):
                    yield number, f"{name}::{function}: {files[name]} has no such test"


RULES = (
    Rule(
        "tests",
        check_tests,
        bad=(
            ("docs/a.md", "`a` is `tests/a.c`\n"),
            (("docs/a.md", "`a` is `tests/a.c`\n`b::works`\n"), ("tests/a.c", "static void works(void **s)\n{}\n")),
            (("docs/a.md", "`a` is `tests/a.c`\n`a::work`\n"), ("tests/a.c", "static void works(void **s)\n{}\n")),
        ),
        good=(
            (("docs/a.md", "`a` is `tests/a.c`\n`a::works`\n"), ("tests/a.c", "static void works(void **s)\n{}\n")),
            ("docs/b.md", "`seam::alloc` of CMake\n"),
            (("docs/a.md", "`a` is `tests/a.py`\n`a::test_a`\n"), ("tests/a.py", "def test_a(run):\n    pass\n")),
        ),
    ),
    Rule(
        "links",
        check_links,
        bad=(
            ("docs/a.md", "see [b](b.md)\n"),
            ("a.md", "# One\n\n[two](#two)\n"),
            ("a.md", "![picture](docs/picture.png)\n"),
            ("a.md", "[b]: docs/b.md\n"),
        ),
        good=(
            ("a.md", "# One two!\n\n[x](#one-two) [y](https://example.net/y) [z](a.md)\n"),
            ("a.md", "```\n[b](b.md)\n```\n`[c](c.md)`\n"),
            ("docs/a.md", "[self](../docs/a.md) [folder](../docs)\n"),
        ),
    ),
    Rule(
        "mentions",
        check_mentions,
        bad=(("base/a.c", "/* docs/nowhere.md tells why */\n"), ("README.md", "`docs/nowhere.md`\n")),
        good=(("docs/a.md", "docs/a.md\n"), ("base/a.c", "/* a document of yours */\n")),
    ),
)
