# SPDX-License-Identifier: Apache-2.0
"""The contract of the driver: an expectation without a source is a guess. Each test says above itself where it is
written, in the words that tests/contract/contract.h explains; the page about the device says how many there are."""

import re
from collections.abc import Iterator

from tree import Finding, Rule, Source, Tree

TEST = re.compile(r"^static void (test_\w+)\(void \*\*", re.MULTILINE)
# The comment that ends right above a test; it may not have another one inside.
ABOVE = re.compile(r"/\*((?:(?!\*/).)*)\*/\n\Z", re.DOTALL)
KINDS = re.compile(r"cuda\.h, (?:cu|CU)\w+|\bguide\b|\bnote:|\bours\b")


def check_sources(source: Source, tree: Tree) -> Iterator[Finding]:
    if not re.fullmatch(r"tests/contract/\w+\.c", source.path):
        return
    for test in TEST.finditer(source.text):
        above = ABOVE.search(source.text[: test.start()])
        if not above or not KINDS.search(above[1]):
            line = source.text.count("\n", 0, test.start()) + 1
            yield line, f'{test[1]}: no source above it; want "cuda.h, NAME", "guide", "note:" or that it is ours'


PAGE = "docs/simulated-device.md"
COUNT = re.compile(r"There are (\d+) tests in\s+(\d+) programs, and (\d+) rules")


def check_count(source: Source, tree: Tree) -> Iterator[Finding]:
    if source.path != PAGE:
        return
    programs = [s for path, s in tree.sources.items() if re.fullmatch(r"tests/contract/\w+\.c", path)]
    rules = tree.sources.get("sim/core/rules.h")
    there = (
        sum(len(TEST.findall(program.text)) for program in programs),
        len(programs),
        len(re.findall(r"^ {4}X\(", rules.text, re.MULTILINE)) if rules else 0,
    )
    said = COUNT.search(source.text)
    if not said or tuple(int(number) for number in said.groups()) != there:
        line = source.text.count("\n", 0, said.start()) + 1 if said else 1
        yield line, f"there are {there[0]} tests in {there[1]} programs, and {there[2]} rules"


EMPTY = "static void test_{}(void **state)\n{{\n}}\n"
TESTS = ("tests/contract/a.c", EMPTY.format("a") + EMPTY.format("b"))
HEADER = ("sim/core/rules.h", "#define SIM_RULES(X) \\\n    X(A, 1) \\\n    X(B, 2) \\\n    X(C, 3)\n")

RULES = (
    Rule(
        "contract-count",
        check_count,
        bad=(
            ((PAGE, "There are 1 tests in 1 programs, and 3 rules."), TESTS, HEADER),
            ((PAGE, "There are 2 tests in\n1 programs, and 2 rules."), TESTS, HEADER),
            ((PAGE, "There are many tests."), TESTS, HEADER),
        ),
        good=(
            ((PAGE, "There are 2 tests in\n1 programs, and 3 rules."), TESTS, HEADER),
            (("docs/other.md", "There are 1 tests in 1 programs, and 3 rules."), TESTS, HEADER),
        ),
    ),
    Rule(
        "contract-source",
        check_sources,
        bad=(
            ("tests/contract/a.c", "static void test_a(void **state)\n{\n}\n"),
            ("tests/contract/a.c", "/* It works. */\nstatic void test_a(void **state)\n{\n}\n"),
            ("tests/contract/a.c", "/* cuda.h */\nstatic void test_a(void **state)\n{\n}\n"),
            ("tests/contract/a.c", "/* guide: x. */\n\nstatic void test_a(void **state)\n{\n}\n"),
            (
                "tests/contract/a.c",
                "/* guide: x. */\nstatic void test_a(void **state)\n{\n}\n/* y */\nstatic void test_b(void **)\n{\n}\n",
            ),
        ),
        good=(
            ("tests/contract/a.c", "/* cuda.h, cuMemMap: x. */\nstatic void test_a(void **state)\n{\n}\n"),
            ("tests/contract/a.c", "/* cuda.h, CUDA_ERROR_ASSERT: x. */\nstatic void test_a(void **s)\n{\n}\n"),
            ("tests/contract/a.c", "/* guide, aliasing:\n * x. */\nstatic void test_a(void **state)\n{\n}\n"),
            ("tests/contract/a.c", "/* note: x. */\nstatic void test_a(void **state)\n{\n}\n"),
            ("tests/contract/a.c", "/* x is only ours. */\nstatic void test_a(void **state)\n{\n}\n"),
            ("tests/contract/a.c", "static void help(void)\n{\n}\n"),
            ("tests/unit/sim/a.c", "static void test_a(void **state)\n{\n}\n"),
        ),
    ),
)
