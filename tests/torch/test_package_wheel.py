# SPDX-License-Identifier: Apache-2.0
"""The wheel: built by `pip wheel`, installed into an empty environment, imported there with its own library."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def call(*command, **keywords):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900, **keywords)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("scikit_build_core")
    out = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", out, ROOT)
    (file,) = out.glob("seamalloc-*.whl")
    return file


def test_what_the_wheel_holds(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in ("__init__.py", "_torch.py", "py.typed", "libseamalloc_torch.so", "native/oom.cc"):
        assert f"seamalloc/{name}" in names, sorted(names)
    outside = {name for name in names if not name.startswith("seamalloc")}
    assert not outside, outside
    assert "-py3-none-" in wheel.name
    project = (ROOT / "CMakeLists.txt").read_text()
    assert f"VERSION {wheel.name.split('-')[1]} " in project


def test_installed_into_an_empty_environment(wheel, tmp_path, native_cache):
    """The environment has the wheel and, by a path file, what this one has: PyTorch is too large to install twice."""
    env = tmp_path / "env"
    call(sys.executable, "-m", "venv", env)
    python = env / "bin" / "python"
    call(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    (site,) = (env / "lib").glob("python3.*/site-packages")
    mine = Path(next(p for p in sys.path if p.endswith("site-packages")))
    # As a plain folder: the path files in it, which name the source tree, are not followed.
    (site / "torch-of-the-tests.pth").write_text(f"{mine}\n")
    program = """
import json, pathlib, seamalloc
seamalloc.install()
import torch
x = torch.ones(1 << 20, device="cuda")
from seamalloc import _library
print(json.dumps({"package": seamalloc.__file__, "library": str(_library.load().path),
                  "allocated": torch.cuda.memory_allocated(), "native": seamalloc.native_part()}))
"""
    environment = {"PATH": "/usr/bin:/bin", "SEAMALLOC_CACHE": str(native_cache), "HOME": str(tmp_path)}
    said = json.loads(call(python, "-c", program, env=environment, cwd=tmp_path).splitlines()[-1])
    assert Path(said["package"]).is_relative_to(env) and Path(said["library"]).is_relative_to(env)
    assert said["allocated"] == 4 << 20 and said["native"].endswith(".so")
    script = tmp_path / "train.py"
    script.write_text("import torch; torch.ones(4, device='cuda'); print(torch.cuda.get_allocator_backend())\n")
    shown = call(env / "bin" / "seamalloc", "run", script, env=environment, cwd=tmp_path)
    assert "pluggable" in shown
