# SPDX-License-Identifier: Apache-2.0
"""The maker of the math stand-ins: does a table mean what it says, and is a wrong one refused?"""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "sim/mathlibs"
SPEC = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


def table(tmp_path, text):
    path = tmp_path / "cuthing.tab"
    path.write_text(text)
    return generate.Table(path)


def test_braces_multiply():
    assert generate.expand_braces("a{S,D}b{_x,}") == ["aSb_x", "aSb", "aDb_x", "aDb"]
    assert generate.expand_braces("plain") == ["plain"]


def test_the_first_rule_that_names_a_function_holds(tmp_path):
    read = table(tmp_path, "prefix cuthing\nrefuses 7 # why\n\ncuthing{A,B} returns 3\ncuthing? nothing\n")
    assert (read.library, read.prefix, read.refuses) == ("libcuthing", "cuthing", "7")
    assert [read.action(name) for name in ("cuthingB", "cuthingC", "cuthingLong")] == ["returns 3", "nothing", None]


@pytest.mark.parametrize("action", ["nought", "int = 3", "size 4 = a1; drop()", "text \"a\\\"b\"", "returns x"])
def test_an_action_that_is_none_stops_with_its_line(tmp_path, action):
    with pytest.raises(SystemExit, match=r"cuthing\.tab:2: unknown action"):
        table(tmp_path, f"prefix cuthing\ncuthingA {action}\n")


def test_out_parameters_are_written_where_they_are():
    source = generate.function_source("f", "int 2 = 32 * a1; size 3 = 8 * l0", "9")
    assert "long f(long a0, long a1, long a2, long a3)" in source
    assert "if (a2) *(int *)a2 = (int)(32 * (int64_t)(int)a1);" in source
    assert "if (a3) *(size_t *)a3 = (size_t)(8 * (int64_t)a0);" in source


def test_a_function_in_no_table_refuses():
    assert 'return mathlib_refuse("f", 9);' in generate.function_source("f", None, "9")


def test_imports_go_to_the_library_of_their_version_or_prefix(tmp_path):
    tables = [table(tmp_path, "prefix cuthing\n")]
    symbols = {("cuthingA", "libcuthing.so.3", False), ("cuthingB", "", False), ("cuthingV", "", True),
               ("other", "", False), ("cuthingC", "libelse.so.1", False)}
    (share,) = generate.share_out(symbols, {"libcuthing.so.3", "libc.so.6"}, tables).values()
    assert share == ("libcuthing.so.3", ["cuthingA", "cuthingB"], ["cuthingV"])


def test_a_library_that_nobody_needs_is_not_made(tmp_path):
    assert generate.share_out(set(), {"libc.so.6"}, [table(tmp_path, "prefix cuthing\n")]) == {}


def test_every_table_can_be_read():
    tables = [generate.Table(path) for path in sorted((FOLDER / "tables").glob("*.tab"))]
    assert len(tables) >= 13
    for read in tables:
        assert read.prefix and int(read.refuses) > 0
        assert all((FOLDER / name).is_file() for name in (read.source or "").split())
