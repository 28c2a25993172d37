# SPDX-License-Identifier: Apache-2.0
"""The library by itself: an unmodified python3 loads it, it links what it may, and it exports what its list says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "torch-glue" / "python"))

from seamalloc import _library  # noqa: E402


@pytest.fixture(scope="module")
def library() -> Path:
    return _library.find()


def plain_pythons():
    """This environment's, and the system's own where there is one: neither has anything preloaded."""
    found = {sys.executable, shutil.which("python3", path="/usr/bin") or sys.executable}
    return sorted(found)


@pytest.mark.parametrize("python", plain_pythons())
def test_a_plain_python_loads_it_and_no_driver_comes_with_it(library, python):
    program = f"""
import ctypes, sys
seam = ctypes.CDLL({str(library)!r})
seam.seam_version.restype = ctypes.c_char_p
print(seam.seam_version().decode(), seam.seam_device_count())
maps = open("/proc/self/maps").read()
print([name for name in ("libcuda", "libcudart", "libjemalloc", "libtorch", "libc10") if name in maps])
"""
    done = subprocess.run(
        [python, "-I", "-c", program], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    version, count = done.stdout.splitlines()[0].split()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version) and count == "0"
    assert done.stdout.splitlines()[1] == "[]"


def test_no_static_tls_and_only_the_runtimes(library):
    dynamic = subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=True).stdout
    assert "STATIC_TLS" not in dynamic
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    allowed = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
    assert set(needed) <= allowed, needed


def test_exports_are_the_list(library):
    text = (ROOT / "torch-glue" / "seamalloc_torch.map").read_text()
    listed = set(re.findall(r"\b(seam_\w+);", text))
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[2].split("@")[0] for line in symbols.splitlines() if line.split()[1] in "TDBR"}
    assert exported == listed
    headers = [ROOT / "include/seamalloc/seamalloc.h", ROOT / "torch-glue/shim/face.h"]
    declared = {name for h in headers for name in re.findall(r"^SEAM_API.*?\b(seam_\w+)\(", h.read_text(), re.M)}
    assert declared == listed


def test_every_function_that_the_package_declares_is_exported():
    library = _library.load()
    assert library.seam_version() and library.path.name == _library.NAME


def test_without_a_driver_it_is_an_error_and_no_crash(library):
    program = f"""
import ctypes
seam = ctypes.CDLL({str(library)!r})
seam.seam_malloc.restype = ctypes.c_void_p
seam.seam_malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
seam.seam_last_error.restype = seam.seam_result_name.restype = ctypes.c_char_p
assert seam.seam_malloc(100, 0, None) is None
print(seam.seam_result_name(seam.seam_last_result()).decode(), seam.seam_last_error().decode())
"""
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a driver")
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SEAM_E_NO_DRIVER") and "libcuda" in done.stdout
