# SPDX-License-Identifier: Apache-2.0
"""Makes out of memory PyTorch's own exception.

The library throws a C++ ``std::runtime_error``, which Python sees as ``RuntimeError`` under every PyTorch. The few
lines of ``native/oom.cc`` throw ``c10::OutOfMemoryError`` instead, which is ``torch.OutOfMemoryError``. They have to be
compiled against the PyTorch in use: once, in about three seconds, with the system's C++ compiler. The result is kept in
``$SEAMALLOC_CACHE``, else ``$XDG_CACHE_HOME/seamalloc``, else ``~/.cache/seamalloc``, under a name that changes with
PyTorch, its C++ ABI, the library and the source. A kept file that does not load, or was made for another PyTorch, is
removed and made anew.

``SEAMALLOC_NATIVE=0`` leaves this part out.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType

from seamalloc._library import PACKAGE, SOURCE_ROOT, Library

COMPILE_SECONDS_MAX = 300


class NativePartError(Exception):
    """The native part cannot be had; the text says why."""


def source_file() -> Path:
    """``oom.cc``: in the wheel beside the package, in a source tree in its own room."""
    places = [PACKAGE / "native" / "oom.cc"]
    if SOURCE_ROOT is not None:
        places.append(SOURCE_ROOT / "torch-glue" / "native" / "oom.cc")
    for place in places:
        if place.is_file():
            return place
    raise NativePartError("its source oom.cc is not part of this installation")


def cache_folder() -> Path:
    named = os.environ.get("SEAMALLOC_CACHE", "")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "seamalloc"


def _compiler() -> str:
    for name in (os.environ.get("CXX", ""), "g++", "c++", "clang++"):
        found = shutil.which(name)
        if found:
            return found
    raise NativePartError("there is no C++ compiler (g++)")


def _flags(torch: ModuleType) -> list[str]:
    root = Path(torch.__path__[0])
    return [
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f'-DSEAM_TORCH_VERSION="{torch.__version__}"',
        f"-I{root / 'include'}",
        f"-L{root / 'lib'}",
    ]


def _cached_file(torch: ModuleType, library: Library, source: Path) -> Path:
    version = library.seam_version().decode()
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    key = hashlib.sha256(source.read_bytes() + "\0".join(_flags(torch)).encode()).hexdigest()[:12]
    return cache_folder() / f"oom-torch{torch.__version__}-abi{abi}-seamalloc{version}-{key}.so"


def _compile(torch: ModuleType, source: Path, target: Path) -> ctypes.CDLL:
    """Compiles, loads and only then renames: two processes may do it at once, and a file of that name that was loaded
    before is not what serves."""
    compiler = _compiler()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(suffix=".so", prefix=".making-", dir=target.parent)
    os.close(handle)
    try:
        command = [compiler, *_flags(torch), str(source), "-o", scratch, "-lc10"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise NativePartError(f"{compiler} failed: {done.stderr.strip()[:400]}")
        part = _open(torch, Path(scratch))
        os.replace(scratch, target)
        return part
    except subprocess.TimeoutExpired as error:
        raise NativePartError(f"{compiler} could not be run: {error}") from error
    finally:
        Path(scratch).unlink(missing_ok=True)


def _open(torch: ModuleType, file: Path) -> ctypes.CDLL:
    """Loads a compiled file and checks it. Raises ``NativePartError``."""
    try:
        part = ctypes.CDLL(str(file))
        part.seam_native_torch_version.restype = ctypes.c_char_p
        made_for = part.seam_native_torch_version().decode()
        _ = part.seam_native_throw
    except (OSError, AttributeError) as error:
        raise NativePartError(f"{file} does not load: {error}") from error
    if made_for != str(torch.__version__):
        raise NativePartError(f"{file} was made for PyTorch {made_for}, this is {torch.__version__}")
    return part


def _kept(torch: ModuleType, file: Path) -> ctypes.CDLL | None:
    """The part compiled earlier; ``None``, and the file is gone, when it does not serve."""
    if not file.exists():
        return None
    try:
        return _open(torch, file)
    except NativePartError:
        file.unlink(missing_ok=True)
        return None


def install(torch: ModuleType, library: Library) -> Path | None:
    """Compiles where needed, loads, and hands the throwing function to the library.

    Returns the file that serves, or ``None`` when ``SEAMALLOC_NATIVE=0`` leaves it out. Raises ``NativePartError``.
    """
    if os.environ.get("SEAMALLOC_NATIVE") == "0":
        return None
    try:
        source = source_file()
        file = _cached_file(torch, library, source)
        part = _kept(torch, file) or _compile(torch, source, file)
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home folder
        raise NativePartError(f"its file cannot be kept: {error}; SEAMALLOC_CACHE may name a folder for it") from error
    # ctypes never unloads what it has opened, so the address stays good.
    library.seam_torch_set_throw(ctypes.cast(part.seam_native_throw, ctypes.c_void_p))
    return file
