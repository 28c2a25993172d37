# SPDX-License-Identifier: Apache-2.0
"""generate.py --out FOLDER [--readelf PROGRAM] TORCH...

Makes the sources of the math stand-ins: one library for each of NVIDIA's that the PyTorch installations TORCH import
from. What a library must have is read from their import tables; what each function answers stands in tables/NAME.tab
beside this file. A function that is imported and stands in no table refuses, and is counted by the device.

A table has a head and then one line for each function or group of functions:

    prefix NAME          names that start so belong to this library, where their version does not say it
    refuses STATUS       the status of a function that is not in the table (default 1)
    version NODE         the version node of its symbols (default: the library's file name; "none": no versions)
    source FILE.c...     what it has beside the generated file

    NAMES  nothing                 does nothing and succeeds, as it only computes or sets what nobody reads
    NAMES  new K                   writes a new handle to where argument K points
    NAMES  delete K                gives back the handle that argument K is
    NAMES  int|int64|size K = X    writes X to where argument K points, unless that is NULL; "; " between several
    NAMES  stream K                keeps argument K as the stream of the handle that is argument 0
    NAMES  status K [* aN]         writes zeros, one or aN ints, to device memory at argument K, on that stream
    NAMES  returns X               returns X
    NAMES  text "X"                returns a text
    NAMES  own                     is written by hand, in the source file

NAMES may use {a,b} and the wildcards of a shell. K counts integer and pointer arguments only, from 0, as the calling
convention does. X is arithmetic over numbers and aK (argument K as a C int) or lK (as a 64-bit integer)."""

import argparse
import fnmatch
import itertools
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
C_TYPES = {"int": "int", "int64": "int64_t", "size": "size_t"}


class Table:
    """One tables/NAME.tab: what a library's functions answer."""

    def __init__(self, path):
        self.library = "lib" + path.stem
        self.prefix = self.source = self.version = None
        self.refuses = "1"
        self.rules = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.partition("#")[0].strip()
            if line:
                self.read_line(line, f"{path}:{number}")

    def read_line(self, line, place):
        names, _, action = line.partition(" ")
        action = action.strip()
        if names in ("prefix", "refuses", "version", "source"):
            setattr(self, names, action)
        elif parse_action(action) is None:
            sys.exit(f"{place}: unknown action: {action}")
        else:
            self.rules += [(name, action) for name in expand_braces(names)]

    def action(self, name):
        """The action of the first rule that names the function; None when there is none."""
        return next((action for names, action in self.rules if fnmatch.fnmatchcase(name, names)), None)


def expand_braces(names):
    """`a{b,c}d` -> [`abd`, `acd`]; several braces multiply."""
    parts = [part.split(",") for part in re.split(r"[{}]", names)]
    # Text outside braces has no comma in these names, so each part is a list of choices.
    return ["".join(choice) for choice in itertools.product(*parts)]


def parse_action(action):
    """The C statements of an action, or None when it is none."""
    if action in ("nothing", "own"):
        return []
    if match := re.fullmatch(r"new (\d+)", action):
        return [f"*(void **)a{match[1]} = mathlib_new();"]
    if match := re.fullmatch(r"delete (\d+)", action):
        return [f"mathlib_delete((void *)a{match[1]});"]
    if match := re.fullmatch(r"stream (\d+)", action):
        return [f"mathlib_set_stream((void *)a0, (CUstream)a{match[1]});"]
    if match := re.fullmatch(r"status (\d+)(?: \* a(\d+))?", action):
        count = f"(int)a{match[2]}" if match[2] else "1"
        return [f"mathlib_succeed((void *)a0, (CUdeviceptr)a{match[1]}, {count});"]
    if match := re.fullmatch(r"returns ([0-9+*()]+)", action):
        return [f"return {match[1]};"]
    if match := re.fullmatch(r'text ("[^"\\]*")', action):
        return [f"return (long){match[1]};"]
    statements = []
    for part in action.split(";"):
        match = re.fullmatch(r"(int|int64|size) (\d+) = ([-0-9al+*() ]+)", part.strip())
        if not match:
            return None
        value = re.sub(r"\ba(\d+)", r"(int64_t)(int)a\1", match[3])
        value = re.sub(r"\bl(\d+)", r"(int64_t)a\1", value)
        kind = C_TYPES[match[1]]
        statements.append(f"if (a{match[2]}) *({kind} *)a{match[2]} = ({kind})({value});")
    return statements


def function_source(name, action, refuses):
    """One function of the generated file."""
    if action is None:
        body = [f'return mathlib_refuse("{name}", {refuses});']
    else:
        body = parse_action(action)
        if not body or not body[-1].startswith("return"):
            body = body + ["return 0;"]
    used = [int(number) for line in body for number in re.findall(r"\ba(\d+)\b", line)]
    count = max(used) + 1 if used else 0
    parameters = ", ".join(f"long a{i}" for i in range(count)) or "void"
    unused = [f"    (void)a{i};\n" for i in range(count) if i not in used]
    lines = "".join(f"    {line}\n" for line in body)
    return f"long {name}({parameters});\nlong {name}({parameters})\n{{\n{''.join(unused)}{lines}}}\n"


def read_imports(readelf, files):
    """Yields (name, version, is_variable) of every undefined dynamic symbol, and the set of libraries needed."""
    symbols, needed = set(), set()
    for path in files:
        output = subprocess.run([readelf, "-W", "--dyn-syms", "-d", str(path)], check=True, capture_output=True,
                                text=True).stdout
        needed.update(re.findall(r"\(NEEDED\).*\[(.+)\]", output))
        for line in output.splitlines():
            fields = line.split()
            if len(fields) >= 8 and fields[6] == "UND":
                name, _, version = fields[7].partition("@")
                symbols.add((name, version.strip("@"), fields[3] == "OBJECT"))
    return symbols, needed


def torch_files(folder):
    """The shared objects of a PyTorch installation."""
    files = sorted(Path(folder).glob("lib/lib*.so*")) + sorted(Path(folder).glob("_C*.so"))
    return files or sys.exit(f"no PyTorch in {folder}")


def share_out(symbols, needed, tables):
    """{table: (file name, functions, variables)}: which library each import is of."""
    by_library = {name.split(".so")[0]: name for name in sorted(needed)}
    shares = {}
    for table in tables:
        soname = by_library.get(table.library)
        mine = [(name, is_variable) for name, version, is_variable in symbols
                if version.split(".so")[0] == table.library or (table.version and version == table.version)
                or (not version and table.prefix and name.startswith(table.prefix))]
        if not soname:
            versions = {version for _, version, _ in symbols if version.split(".so")[0] == table.library}
            soname = versions.pop() if versions else None
        if soname:
            shares[table] = (soname, sorted(n for n, v in mine if not v), sorted(n for n, v in mine if v))
    return shares


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def write_library(table, soname, functions, variables, out):
    """Writes NAME.c and NAME.map; returns the line for CMake. (That a function called `own` is there, a test sees.)"""
    parts = ["/* Generated by sim/mathlibs/generate.py. */\n", '#include "sim/mathlibs/mathlib.h"\n\n',
             "#pragma GCC visibility push(default)\n"]
    parts += [function_source(name, table.action(name), table.refuses) for name in functions
              if table.action(name) != "own"]
    parts += [f"extern long {name}[8];\nlong {name}[8];\n" for name in variables]
    short = table.library[3:]
    write_if_changed(out / f"{short}.c", "".join(parts))
    node = {"none": "", None: soname}.get(table.version, table.version)
    exported = "".join(f"        {name};\n" for name in functions + variables)
    listed = f"    global:\n{exported}" if exported else ""
    write_if_changed(out / f"{short}.map", f"{node} {{\n{listed}    local:\n        *;\n}};\n".lstrip())
    sources = [f"${{CMAKE_CURRENT_SOURCE_DIR}}/{name}" for name in (table.source or "").split()]
    return f"sim_math_library({' '.join([short, soname, *sources])})\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("torch", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    symbols, needed = read_imports(options.readelf, [f for folder in options.torch for f in torch_files(folder)])
    tables = [Table(path) for path in sorted((HERE / "tables").glob("*.tab"))]
    shares = share_out(symbols, needed, tables)
    lines = [write_library(table, *share, options.out) for table, share in shares.items()]
    refused = [name for table, (_, functions, _) in shares.items() for name in functions
               if table.action(name) is None]
    write_if_changed(options.out / "libraries.cmake", "".join(lines))
    write_if_changed(options.out / "refused.txt", "".join(f"{name}\n" for name in sorted(refused)))


if __name__ == "__main__":
    main()
