# SPDX-License-Identifier: Apache-2.0
"""Runs small programs on the real PyTorch, each in a process of its own: the allocator can be changed once a process.

A program hands its findings over with `result(name=value, ...)`; the device's own record lies beside them, so that a
test can compare what the allocator says with what the device saw."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
DEVICE_MIB = 2048
SECONDS_MAX = 300

# A program that ends right after a backward pass may meet autograd's thread in its last destructor, waiting for the
# interpreter's lock, and be aborted by PyTorch under any allocator; the moment at the end lets it finish.
PRELUDE = """\
import atexit as _atexit, json as _json, sys, time as _time
_atexit.register(_time.sleep, 0.05)
def result(**values):
    print("RESULT " + _json.dumps(values), flush=True)
MIB = 1 << 20
"""
INSTALL = """\
import torch, seamalloc
seamalloc.install()
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-features", action="store_true",
                     help="write what test_sim_features.py sees into docs/features.md")


@dataclass
class Run:
    """What a program left behind."""

    code: int
    stdout: str
    stderr: str
    result: dict[str, Any]
    record: dict[str, Any] | None  # of the first device

    def __getitem__(self, name: str) -> Any:
        return self.result[name]


class Runner:
    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        self.record_file = folder / "device.json"

    def environment(self, **more: str) -> dict[str, str]:
        """The caller's, without settings that would change what is tested."""
        ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_")}
        ours.pop("SEAMALLOC_CONF", None)
        ours |= {
            "SEAMALLOC_SIM_MIB": str(DEVICE_MIB),
            "SEAMALLOC_SIM_REPORT": str(self.record_file),
            "SEAMALLOC_CACHE": str(self.cache),
            "PYTHONPATH": str(ROOT / "torch-glue" / "python"),
        }
        return ours | more

    def command(self, *command: str, expect: int | None = 0, **environment: str) -> Run:
        self.record_file.unlink(missing_ok=True)
        done = subprocess.run(
            command,
            env=self.environment(**environment),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        said = f"exit code {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
        if expect is not None:
            assert done.returncode == expect, said
        values: dict[str, Any] = {}
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                values |= json.loads(line.removeprefix("RESULT "))
        record = None
        if self.record_file.exists():
            record = json.loads(self.record_file.read_text())["devices"][0]
        return Run(done.returncode, done.stdout, done.stderr, values, record)

    def __call__(self, program: str, *arguments: str, install: bool = True, expect: int | None = 0, **env: str) -> Run:
        """Runs a program; with `install` it begins with the allocator installed."""
        file = self.folder / "program.py"
        file.write_text(PRELUDE + (INSTALL if install else "") + textwrap.dedent(program))
        return self.command(sys.executable, str(file), *arguments, expect=expect, **env)


@pytest.fixture(scope="session")
def native_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part that is compiled on first use is compiled once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(tmp_path: Path, native_cache: Path) -> Runner:
    return Runner(tmp_path, native_cache)
