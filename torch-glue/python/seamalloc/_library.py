# SPDX-License-Identifier: Apache-2.0
"""Finds ``libseamalloc_torch.so`` and declares the functions of ``seamalloc/seamalloc.h`` to ctypes.

The library is looked for in this order: the file named by the environment variable ``SEAMALLOC_LIBRARY``; beside this
package (where the wheel has it); ``build/release/lib`` of the source tree that this package lies in. Loading it calls
no CUDA function. ctypes gives up the interpreter's lock during each call, so that a call which waits for the device
stops no other Python thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seamalloc._errors import LibraryNotFoundError, OptionError, SeamallocError

NAME = "libseamalloc_torch.so"
PACKAGE = Path(__file__).resolve().parent
# Where the package lies in a source tree: <root>/torch-glue/python/seamalloc.
SOURCE_ROOT = PACKAGE.parents[2] if PACKAGE.parts[-3:] == ("torch-glue", "python", "seamalloc") else None

_int, _size, _text = ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
_u64 = ctypes.c_uint64
# name: (result type, argument types)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "seam_version": (_text, []),
    "seam_result_name": (_text, [_int]),
    "seam_last_error": (_text, []),
    "seam_last_result": (_int, []),
    "seam_configure": (_int, [_text]),
    "seam_settings": (_size, [ctypes.c_char_p, _size]),
    "seam_init": (_int, []),
    "seam_device_count": (_int, []),
    "seam_trim": (_int, [_int]),
    "seam_memory_fraction": (_int, [_int, ctypes.POINTER(ctypes.c_double)]),
    "seam_pool_settle": (_int, [ctypes.c_bool]),
    "seam_phase_push": (_int, [_text]),
    "seam_phase_pop": (_int, []),
    "seam_thread_phase_push": (_int, [_text]),
    "seam_thread_phase_pop": (_int, []),
    "seam_window_open": (_int, [_text, ctypes.POINTER(_u64)]),
    "seam_window_close": (_int, [_u64]),
    "seam_stats_json": (_size, [_int, ctypes.c_char_p, _size]),
    "seam_stats_table": (_size, [_int, ctypes.c_char_p, _size]),
    "seam_stat": (_int, [_int, _text, ctypes.POINTER(ctypes.c_int64)]),
    "seam_reset_peaks": (_int, [_int]),
    "seam_reset_totals": (_int, [_int]),
    "seam_trace_start": (_int, [_text]),
    "seam_trace_stop": (_int, []),
    "seam_validate": (_int, []),
    "seam_torch_set_throw": (None, [ctypes.c_void_p]),
}


def find() -> Path:
    """The library's file.

    Raises ``LibraryNotFoundError``, whose text lists the places that were looked at.
    """
    named = os.environ.get("SEAMALLOC_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise LibraryNotFoundError(f"SEAMALLOC_LIBRARY names {named!r}, which is not a file")
        return Path(named).resolve()
    places = [PACKAGE / NAME]
    if SOURCE_ROOT is not None:
        places.append(SOURCE_ROOT / "build" / "release" / "lib" / NAME)
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place) for place in places)
    raise LibraryNotFoundError(
        f"{NAME} was not found; looked at {looked}. In a source tree scripts/build makes it; "
        "or set SEAMALLOC_LIBRARY to the file."
    )


class Library:
    """The loaded library: its functions by name (``library.seam_trim(-1)``), and calls that raise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.cdll = ctypes.CDLL(str(path))
        except OSError as error:
            raise LibraryNotFoundError(f"{path} could not be loaded: {error}") from error
        for name, (result, arguments) in _FUNCTIONS.items():
            try:
                function = getattr(self.cdll, name)
            except AttributeError:
                raise LibraryNotFoundError(
                    f"{path} has no function {name}: library and package are of different versions"
                ) from None
            function.restype, function.argtypes = result, arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cdll, name)

    def address(self, name: str) -> int:
        """The address of an exported function, as PyTorch's setters take it."""
        value = ctypes.cast(getattr(self.cdll, name), ctypes.c_void_p).value
        assert value is not None
        return value

    def error(self) -> SeamallocError:
        """The calling thread's last failed call as an exception."""
        result = self.cdll.seam_result_name(self.cdll.seam_last_result()).decode()
        text = self.cdll.seam_last_error().decode(errors="replace") or result
        return OptionError(text, result) if result == "SEAM_E_OPTION" else SeamallocError(text, result)

    def check(self, result: int) -> None:
        """Raises when a ``seam_result`` is not ``SEAM_OK``."""
        if result != 0:
            raise self.error()

    def text(self, writer: Callable[[Any, int], int]) -> str:
        """What a function writes that follows ``snprintf``: called with a buffer until the whole text fits."""
        needed = writer(None, 0)
        while needed > 0:
            # Counters and times may have more digits by the second call: with some room a third is rare.
            room = needed + needed // 8 + 64
            buffer = ctypes.create_string_buffer(room)
            length = writer(buffer, room)
            if length < room:
                return buffer.value.decode(errors="replace") if length > 0 else ""
            needed = length
        return ""


_lock = threading.Lock()
_loaded: Library | None = None
_serving = False


def load() -> Library:
    """The library, loaded once a process. Raises ``LibraryNotFoundError``."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = Library(find())
        return _loaded


def set_serving() -> None:
    """Notes that PyTorch's memory comes from the library from now on."""
    global _serving
    _serving = True


def serving() -> Library | None:
    """The library if PyTorch's memory comes from it, else ``None``."""
    return _loaded if _serving else None
