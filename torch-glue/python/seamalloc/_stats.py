# SPDX-License-Identifier: Apache-2.0
"""The library's figures in the shapes that Python programs want."""

from __future__ import annotations

import ctypes
from typing import Any

from seamalloc._errors import SeamallocError
from seamalloc._library import Library

_COUNTERS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")
_LEVELS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
_KINDS = ("all", "small_pool", "large_pool")
# PyTorch's name of a figure of a level, and ours.
_FIGURES = {"current": "current", "peak": "peak", "allocated": "in", "freed": "out"}
# Of these one changes whenever any level does.
_STAMP = (
    b"allocation.all.in",
    b"allocation.all.out",
    b"active.all.out",
    b"mappings.all.in",
    b"mappings.all.out",
)
_ATTEMPTS = 5
# Level, kind, PyTorch's figure, our name of it: put together once, because programs read these in their loops.
_NAMES = {
    level: {kind: {theirs: f"{level}.{kind}.{ours}".encode() for theirs, ours in _FIGURES.items()} for kind in _KINDS}
    for level in _LEVELS
}


class _Reader:
    """Reads single figures of one device."""

    def __init__(self, library: Library, device: int) -> None:
        self._library, self._device = library, device
        self._call, self._value = library.seam_stat, ctypes.c_int64()
        self._place = ctypes.byref(self._value)

    def __call__(self, name: bytes) -> int:
        if self._call(self._device, name, self._place) != 0:
            raise self._library.error()
        return self._value.value

    def stamp(self) -> list[int]:
        return [self(name) for name in _STAMP]

    def nested(self) -> dict[Any, Any]:
        stats: dict[Any, Any] = {name: self(name.encode()) for name in _COUNTERS}
        for level, kinds in _NAMES.items():
            stats[level] = {
                kind: {figure: self(name) for figure, name in figures.items()} for kind, figures in kinds.items()
            }
        return stats


def _max_split_size(library: Library) -> int:
    """The split limit in bytes as PyTorch writes it: -1 where there is none."""
    for pair in library.text(library.seam_settings).split(","):
        key, _, value = pair.partition(":")
        if key == "max_split_size_mb" and value.isdigit():
            return int(value) << 20
    return -1


def torch_nested(library: Library, device: int) -> dict[Any, Any]:
    """What ``torch.cuda.memory_stats_as_nested_dict`` gives, from our figures.

    The figures are read one by one. They are read again, a few times, when other threads allocate in between, so that
    they belong to one instant.

    Keys of PyTorch that have no counterpart here: blocks beyond ``max_split_size`` are not counted apart (the
    ``oversize`` figures are 0, as they are without a split limit), no request is rejected by
    ``throw_on_cudamalloc_oom``, and private pools are not listed one by one.
    """
    count = library.seam_device_count()
    if not 0 <= device < max(count, 1):
        raise SeamallocError(f"there is no device {device}; valid are 0 to {count - 1}")
    read = _Reader(library, device)
    for _ in range(_ATTEMPTS):
        before = read.stamp()
        stats = read.nested()
        if before == read.stamp():
            break
    stats["max_split_size"] = _max_split_size(library)
    stats["num_oom_rejections"] = 0
    stats["reserved_bytes_by_private_pools"] = {}
    stats["oversize_allocations"] = dict.fromkeys(_FIGURES, 0)
    stats["oversize_segments"] = dict.fromkeys(_FIGURES, 0)
    return stats
