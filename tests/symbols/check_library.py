# SPDX-License-Identifier: Apache-2.0
"""check_library.py: what a built shared library shows to the programs that load it.

1. It exports exactly the names of a list (with their version node), so that a change of the interface is a change of
   a file that people read. The list itself holds every function of the public headers.
2. It has the SONAME that programs are linked to.
3. It asks for the libraries it may ask for and no others, and for none by a fixed path.
4. It takes no static TLS: such a library cannot be loaded into an unmodified python3.
With --must-fail each check is expected to find fault with the library: that is how the checks are tested."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

C_RUNTIME = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2")
CXX_RUNTIME = ("libstdc++.so.6", "libgcc_s.so.1")
PUBLIC_FUNCTION = re.compile(r"^SEAM_API\b[^;(]*?\b(\w+)\s*\(", re.MULTILINE)


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(library: str) -> set[str]:
    """Names with version nodes; the node itself is listed as an absolute symbol of its own name, and left out."""
    names = set()
    for line in output_of("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        _, kind, name = line.split()
        if kind != "A":
            names.add(name)
    return names


def dynamic(library: str, tag: str) -> list[str]:
    """The values of one tag of the dynamic section, e.g. NEEDED."""
    values = re.findall(rf"\({tag}\)\s+(.*)", output_of("readelf", "-dW", library))
    return [value.split("[")[-1].rstrip("]") for value in values]


def read_list(path: Path) -> set[str]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line}


def check_exports(options: argparse.Namespace) -> list[str]:
    wanted, found = read_list(options.list), exported(options.library)
    return [f"exported and not listed: {name}" for name in sorted(found - wanted)] + [
        f"listed and not exported: {name}" for name in sorted(wanted - found)
    ]


def check_headers(options: argparse.Namespace) -> list[str]:
    text = "\n".join(path.read_text() for path in sorted(options.headers.glob("*.h")))
    public = set(PUBLIC_FUNCTION.findall(text))
    found = {name.split("@")[0] for name in exported(options.library)}
    if not public:
        return ["the headers declare no public function"]
    return [f"declared and not exported: {name}" for name in sorted(public - found)]


def check_soname(options: argparse.Namespace) -> list[str]:
    found = dynamic(options.library, "SONAME")
    return [] if found == options.soname else [f"SONAME is {found}, expected {options.soname}"]


def check_needed(options: argparse.Namespace) -> list[str]:
    allowed = (*C_RUNTIME, *(CXX_RUNTIME if options.cxx else ()))
    wrong = [f"needs {name}" for name in dynamic(options.library, "NEEDED") if name not in allowed]
    return wrong + [f"looks for libraries in {path}" for path in dynamic(options.library, "RU?N?PATH")]


def check_static_tls(options: argparse.Namespace) -> list[str]:
    flags = dynamic(options.library, "FLAGS")
    return [f"flags are {flags}"] if any("STATIC_TLS" in flag for flag in flags) else []


CHECKS = (check_exports, check_headers, check_soname, check_needed, check_static_tls)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--list", type=Path, required=True)
    parser.add_argument("--headers", type=Path, required=True)
    parser.add_argument("--soname", nargs="*", default=[])
    parser.add_argument("--cxx", action="store_true", help="the C++ runtime is allowed")
    parser.add_argument("--must-fail", action="store_true")
    options = parser.parse_args()
    failures = 0
    print(f"1..{len(CHECKS)}")
    for number, check in enumerate(CHECKS, 1):
        wrong = check(options)
        good = bool(wrong) == options.must_fail
        if not good:
            print("\n".join(wrong or ["the bad library was not noticed"]))
        print(f"{'ok' if good else 'not ok'} {number} - {check.__name__.removeprefix('check_')}")
        failures += not good
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
