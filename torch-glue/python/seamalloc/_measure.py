# SPDX-License-Identifier: Apache-2.0
"""Phases, windows and statistics for programs.

Where PyTorch's memory does not come from seamalloc (another allocator, no device, no CUDA), phases and windows do
nothing and what would be a figure is ``None``, so that one script can be measured under several allocators.
"""

from __future__ import annotations

import ctypes
import json
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from seamalloc import _library
from seamalloc._errors import SeamallocError
from seamalloc._library import Library

NAME_BYTES_MAX = 63
ALL_DEVICES = -1


def _checked_name(name: str) -> str:
    """Checked here too, so that a bad name shows under every allocator."""
    if not isinstance(name, str):
        raise TypeError(f"a name must be a string, not {type(name).__name__}")
    size = len(name.encode())
    if not 0 < size <= NAME_BYTES_MAX or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} cannot name a phase or window: it must have 1 to {NAME_BYTES_MAX} bytes and no '/'")
    return name


class phase(ContextDecorator):
    """A named interval of the program with its own counters and exact peaks.

    Phases nest (``step/forward``) and count the whole process, because PyTorch's backward pass runs on other threads.
    Enter and leave them on one thread, innermost first. Use it as ``with seamalloc.phase("forward"):`` or as a
    decorator, ``@seamalloc.phase("step")``. Where seamalloc is not installed it does nothing.

    Args:
        name: 1 to 63 bytes without ``/``. The same name at the same place is one phase; its entries are counted.
        thread: count only what the calling thread asks for and gives back, on a stack of phases of its own.

    Raises:
        ValueError: a name that is not allowed.
        SeamallocError: no host memory was left.
    """

    def __init__(self, name: str, *, thread: bool = False) -> None:
        self.name, self.thread = _checked_name(name), thread
        self._library: Library | None = None

    def _recreate_cm(self) -> phase:
        return type(self)(self.name, thread=self.thread)  # a decorated function may call itself

    def __enter__(self) -> phase:
        library = self._library = _library.serving()
        if library is not None:
            push = library.seam_thread_phase_push if self.thread else library.seam_phase_push
            library.check(push(self.name.encode()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        library, self._library = self._library, None
        if library is not None:
            pop = library.seam_thread_phase_pop if self.thread else library.seam_phase_pop
            library.check(pop())


class window(ContextDecorator):
    """A named interval like a phase, but windows may overlap each other and phases, and do not nest.

    Args and errors are those of ``phase``.
    """

    def __init__(self, name: str) -> None:
        self.name = _checked_name(name)
        self._library: Library | None = None
        self._number = ctypes.c_uint64()

    def _recreate_cm(self) -> window:
        return type(self)(self.name)

    def __enter__(self) -> window:
        self._library = _library.serving()
        if self._library is not None:
            opened = self._library.seam_window_open(self.name.encode(), ctypes.byref(self._number))
            self._library.check(opened)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        library, self._library = self._library, None
        if library is not None:
            library.check(library.seam_window_close(self._number))


def _with_device() -> Library | None:
    """The library when it serves PyTorch and has a device; CUDA is not initialised for the question."""
    library = _library.serving()
    return library if library is not None and library.seam_device_count() > 0 else None


def _device_index(library: Library, device: Any) -> int:
    """``None`` (all), a number, ``"cuda:1"`` or a ``torch.device`` as the library's number."""
    if device is None:
        return ALL_DEVICES
    if isinstance(device, int):
        index = device
    else:
        import torch

        index = torch.cuda._utils._get_device_index(device, optional=True)
    count = library.seam_device_count()
    if not 0 <= index < count:
        raise SeamallocError(f"there is no device {device!r}; valid are 0 to {count - 1}")
    return index


def stats(device: Any = None) -> dict[str, Any] | None:
    """All figures as a dictionary: levels, the gap by cause, driver calls, phases, windows (docs/statistics.md).

    Args:
        device: a number, ``"cuda:0"`` or a ``torch.device``; ``None``: every device.

    Returns:
        The JSON document ``seamalloc.stats``: bytes and nanoseconds, raw. ``None`` where there is no device, where
        CUDA has not been initialised yet, or where PyTorch's memory comes from another allocator.
    """
    library = _with_device()
    if library is None:
        return None
    index = _device_index(library, device)
    text = library.text(lambda buffer, capacity: library.seam_stats_json(index, buffer, capacity))
    if not text:
        raise library.error()
    document: dict[str, Any] = json.loads(text)
    return document


def stats_table(device: Any = None) -> str:
    """The same as a table for people, in MiB; ``"unavailable: ..."`` with the reason where ``stats`` is ``None``."""
    library = _with_device()
    if library is None:
        return f"unavailable: {unavailable_reason()}"
    index = _device_index(library, device)
    text = library.text(lambda buffer, capacity: library.seam_stats_table(index, buffer, capacity))
    if not text:
        raise library.error()
    return text


def unavailable_reason() -> str:
    """Why there are no figures; empty where there are."""
    library = _library.serving()
    if library is None:
        return "seamalloc is not installed in this process"
    if library.seam_device_count() == 0:
        return "CUDA has not been initialised, or there is no device"
    return ""


def memory_stats(device: Any = None) -> dict[str, Any] | None:
    """``torch.cuda.memory_stats(device)``: PyTorch's names for the figures of one device.

    ``None`` where ``stats`` is ``None``.
    """
    if _with_device() is None:
        return None
    import torch

    figures: dict[str, Any] = torch.cuda.memory_stats(device)
    return figures


def reset_peaks(device: Any = None) -> None:
    """Sets every peak to its current value; live figures and phases are left alone. No effect without a device."""
    library = _with_device()
    if library is not None:
        library.check(library.seam_reset_peaks(_device_index(library, device)))


def trim(device: Any = None) -> None:
    """Gives memory that no block uses back to the driver, after the work that last used it is done.

    No effect without a device. Raises ``SeamallocError`` when the driver refuses.
    """
    library = _with_device()
    if library is not None:
        library.check(library.seam_trim(_device_index(library, device)))


def validate() -> None:
    """Walks all bookkeeping and raises ``SeamallocError`` with the first contradiction. Slow; for tests and reports."""
    library = _with_device()
    if library is not None:
        library.check(library.seam_validate())


def settings() -> str:
    """The settings in force, as ``key:value,key:value``, a string that ``SEAMALLOC_CONF`` takes back."""
    library = _library.load()
    return library.text(library.seam_settings)


def last_error() -> str:
    """The text of the calling thread's last failed call of the library; empty if none failed."""
    library = _library.serving()
    return "" if library is None else library.seam_last_error().decode(errors="replace")


def version() -> str:
    """The version of the loaded library."""
    text: bytes = _library.load().seam_version()
    return text.decode()
