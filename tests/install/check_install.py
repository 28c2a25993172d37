# SPDX-License-Identifier: Apache-2.0
"""check_install.py: installs a build into a folder of its own, moves that folder, and uses it as a stranger would.

By find_package and by pkg-config a small program is built and run on the simulated device; each public header is
compiled alone as strict C11 and as C++17. Each step is one TAP line; what a command said is shown when it failed."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wundef", "-Wshadow", "-Werror", "-fsyntax-only"]


class Failed(Exception):
    """A step went wrong; the text says how."""


def run(*command: object, env: dict[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}\nstatus {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def demand(holds: bool, text: str) -> None:
    if not holds:
        raise Failed(text)


class Install:
    """The steps, in the order in which one needs the other."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options = options
        self.folder = folder
        self.prefix = folder / "moved"

    def library_dir(self) -> Path:
        return next(self.prefix.rglob("libseamalloc.so")).parent

    def run_consumer(self, program: Path) -> None:
        places = f"{self.library_dir()}:{self.options.sim}"
        version = run(program, env={"LD_LIBRARY_PATH": places, "SEAMALLOC_SIM_MIB": "1024"})
        demand(version.splitlines()[-1] == self.options.version, f"the program ran with version {version!r}")

    def step_install_and_move(self) -> None:
        """Moved at once: a file that names the first place is of no use from here on."""
        run("cmake", "--install", self.options.build, "--prefix", self.folder / "first")
        shutil.move(self.folder / "first", self.prefix)

    def step_contents(self) -> None:
        """The usual folders; exactly the headers of the public folder; a library by its three names."""
        folders = sorted(path.name for path in self.prefix.iterdir())
        demand(folders == ["include", "lib", "share"], f"installed folders {folders}")
        headers = {path.name for path in (self.prefix / "include/seamalloc").iterdir()}
        wanted = {path.name for path in (self.options.source / "include/seamalloc").glob("*.h")}
        generated = self.options.build / "include/seamalloc"
        wanted |= {path.name for path in generated.glob("*.h")} if generated.is_dir() else set()
        demand(headers == wanted, f"installed headers {sorted(headers)}, public are {sorted(wanted)}")
        libraries = {path.name for path in self.library_dir().glob("lib*")}
        names = {"libseamalloc.so", "libseamalloc.so.0", f"libseamalloc.so.{self.options.version}"}
        demand(libraries == names, f"installed libraries {sorted(libraries)}, expected {sorted(names)}")

    def step_no_foreign_paths(self) -> None:
        """No text file names the source, the build or the first place of the install."""
        foreign = (str(self.options.source), str(self.options.build), str(self.folder / "first"))
        for path in self.prefix.rglob("*"):
            if path.suffix in (".pc", ".cmake", ".h"):
                named = [place for place in foreign if place in path.read_text()]
                demand(not named, f"{path.name} names {named}")

    def step_headers_as_c11(self) -> None:
        for header in sorted((self.prefix / "include").rglob("*.h")):
            run(self.options.cc, "-x", "c", "-std=c11", *STRICT, "-I", self.prefix / "include", header)

    def step_headers_as_cxx17(self) -> None:
        for header in sorted((self.prefix / "include").rglob("*.h")):
            run(self.options.cxx, "-x", "c++", "-std=c++17", *STRICT, "-I", self.prefix / "include", header)

    def configure(self, build: Path, wanted: str) -> None:
        run("cmake", "-S", HERE / "consumer", "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={self.options.cc}", f"-DWANTED={wanted}")

    def step_find_package(self) -> None:
        build = self.folder / "by-cmake"
        self.configure(build, self.options.version)
        run("cmake", "--build", build)
        self.run_consumer(build / "consumer")

    def step_find_package_refuses_another_version(self) -> None:
        major = int(self.options.version.split(".")[0])
        for wanted in (f"{major + 1}.0", f"{major}.9999"):
            try:
                self.configure(self.folder / f"refused-{wanted}", wanted)
            except Failed as refusal:
                demand("version" in str(refusal), f"refused {wanted} for another reason: {refusal}")
            else:
                raise Failed(f"version {wanted} was asked for and found")

    def step_pkg_config(self) -> None:
        env = {"PKG_CONFIG_PATH": str(self.library_dir() / "pkgconfig")}
        version = run("pkg-config", "--modversion", "seamalloc", env=env)
        demand(version == self.options.version, f"seamalloc.pc says version {version}")
        flags = run("pkg-config", "--cflags", "--libs", "seamalloc", env=env).split()
        program = self.folder / "by-pkg-config"
        run(self.options.cc, "-std=c11", HERE / "consumer/consumer.c", "-o", program, *flags)
        self.run_consumer(program)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--sim", type=Path, required=True, help="folder of the simulated libcuda.so.1")
    parser.add_argument("--version", required=True)
    parser.add_argument("--cc", required=True)
    parser.add_argument("--cxx", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seamalloc-install-") as folder:
        install = Install(options, Path(folder))
        steps = [name for name in vars(Install) if name.startswith("step_")]
        failures = 0
        print(f"1..{len(steps)}")
        for number, name in enumerate(steps, 1):
            title = name.removeprefix("step_").replace("_", " ")
            try:
                getattr(install, name)()
                print(f"ok {number} - {title}", flush=True)
            except (Failed, OSError, StopIteration) as error:
                print(f"{error}\nnot ok {number} - {title}", flush=True)
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
