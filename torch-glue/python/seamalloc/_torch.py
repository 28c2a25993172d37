# SPDX-License-Identifier: Apache-2.0
"""Puts the library under PyTorch.

1. ``install`` checks that it is early enough, configures the library, sets PyTorch's hooks and swaps the allocator.
2. PyTorch has no hook for statistics: behind a plug-in its own functions raise. They all end in a handful of functions
   of ``torch._C``, and these are replaced. So ``torch.cuda.memory_stats``, ``memory_summary``, ``max_memory_allocated``
   and the others stay PyTorch's own code, also where a program has imported them by name before.

What PyTorch offers and the library does not serve yet (snapshots, memory history, ``MemPool``) keeps PyTorch's own
error.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from types import ModuleType
from typing import Any

from seamalloc import _captures, _library, _native, _stats
from seamalloc._errors import OptionError, SeamallocError
from seamalloc._library import Library

# PyTorch's setter: the library's function. The names are irregular; they are PyTorch's.
_HOOKS = {
    "set_init_fn": "seam_torch_init",
    "set_reset_fn": "seam_torch_reset",
    "set_memory_fraction_fn": "seam_torch_memory_fraction",
    "set_base_alloc_fn": "seam_torch_base_alloc",
    "set_record_stream_fn": "seam_torch_record_stream",
    "set_begin_allocate_to_pool": "seam_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "seam_torch_end_allocate_to_pool",
    "set_release_pool": "seam_torch_release_pool",
}
_PYTORCH_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

Option = bool | int | float | str

_lock = threading.Lock()
_request: str | None = None  # the configuration that install() was called with; None: not installed
_allocator: Any = None  # keeps PyTorch's object alive
_native_text = "not installed"


class SeamallocWarning(RuntimeWarning):
    """The allocator works, but something is less good than it could be; the text says what."""


def configuration(policy: str | os.PathLike[str] | None, options: dict[str, Option]) -> str:
    """The string that the library takes: a policy's name, or ``@file``, then ``key:value`` pairs."""
    parts = []
    if policy is not None:
        name = os.fspath(policy)
        is_file = isinstance(policy, os.PathLike) or os.sep in name or name.endswith(".conf")
        parts.append(f"@{os.path.abspath(name)}" if is_file else f"policy:{name}")
    for key, value in options.items():
        parts.append(f"{key}:{value}")  # True and False are spelled as PyTorch's variables have them
    return ",".join(parts)


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise SeamallocError(f"PyTorch cannot be imported: {error}") from error
    if torch.version.cuda is None or not hasattr(torch._C, "_cuda_customAllocator"):
        raise SeamallocError(f"this PyTorch ({torch.__version__}) is built without CUDA; seamalloc needs a CUDA build")
    return torch


def _check_backend_key() -> None:
    """PyTorch compares a ``backend:`` key with the allocator in use and ends in an assertion when they differ."""
    for variable in _PYTORCH_VARIABLES:
        for part in os.environ.get(variable, "").split(","):
            key, _, value = part.partition(":")
            if key.strip() == "backend":
                raise OptionError(
                    f"{variable} has the key backend:{value.strip()}, which PyTorch does not accept together with "
                    "another allocator: remove the key. All its other keys may stay."
                )


def _check_early(torch: ModuleType) -> None:
    if torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork():
        raise SeamallocError(
            "CUDA is already initialised in this process, and PyTorch cannot change its allocator any more: call "
            "seamalloc.install() before the first use of torch.cuda, or start the script with `seamalloc run`"
        )


def _make_allocator(torch: ModuleType, library: Library) -> Any:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library.path), "seam_torch_alloc", "seam_torch_free")
    for setter, function in _HOOKS.items():
        if not hasattr(allocator.allocator(), setter):
            raise SeamallocError(f"PyTorch {torch.__version__} has no {setter}; seamalloc needs 2.4 or newer")
        getattr(allocator.allocator(), setter)(library.address(function))
    return allocator


def _swap(torch: ModuleType, allocator: Any) -> None:
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise SeamallocError(
            f"PyTorch refused to change its allocator ({error}): it has been used, or changed, before. Call "
            "seamalloc.install() before the first use of torch.cuda and before any other allocator is set."
        ) from error


def _install_native(torch: ModuleType, library: Library) -> str:
    try:
        file = _native.install(torch, library)
    except _native.NativePartError as error:
        warnings.warn(
            f"seamalloc: out of memory will be a RuntimeError and no torch.OutOfMemoryError: {error} "
            "(SEAMALLOC_NATIVE=0 says that this is wanted)",
            SeamallocWarning,
            stacklevel=4,
        )
        return f"absent: {error}"
    return "left out: SEAMALLOC_NATIVE=0" if file is None else str(file)


def _memory_fraction(library: Library, device: int) -> float:
    fraction = ctypes.c_double()
    library.check(library.seam_memory_fraction(device, ctypes.byref(fraction)))
    return fraction.value


def _replace_functions(torch: ModuleType, library: Library) -> None:
    """The functions of ``torch._C`` in which PyTorch's own statistics end. Those that a version lacks stay absent."""

    def torch_stats(device: int) -> dict[Any, Any]:
        return _stats.torch_nested(library, device)

    def reset_peaks(device: int) -> None:
        library.check(library.seam_reset_peaks(device))

    def reset_totals(device: int) -> None:
        library.check(library.seam_reset_totals(device))

    replacements = {
        "_cuda_memoryStats": torch_stats,
        "_cuda_resetPeakMemoryStats": reset_peaks,
        "_cuda_resetAccumulatedMemoryStats": reset_totals,
        "_cuda_getMemoryFraction": lambda device: _memory_fraction(library, device),
        # torch.accelerator asks PyTorch's native allocator, which is there but unused.
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_getDeviceStats": torch_stats,
        "_accelerator_resetPeakStats": reset_peaks,
        "_accelerator_resetAccumulatedStats": reset_totals,
        "_accelerator_emptyCache": torch._C._cuda_emptyCache,
    }
    for name, function in replacements.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)


def install(policy: str | os.PathLike[str] | None = None, **options: Option) -> None:
    """Makes seamalloc PyTorch's CUDA allocator, for the rest of the process.

    Call it before CUDA is initialised: before the first tensor on the device, before ``torch.cuda.init()``. It makes
    no CUDA call itself, so that a program may fork afterwards. Calling it again with the same arguments does nothing.

    Args:
        policy: name of a policy (``"stitch"``), or the path of a policy file; default: what ``SEAMALLOC_CONF`` says.
        options: single settings (docs/options.md), for instance ``max_split_size_mb=200``. They win over the policy
            and over the variables ``SEAMALLOC_CONF`` and ``PYTORCH_CUDA_ALLOC_CONF``.

    Raises:
        OptionError: an option or one of the variables is not understood; nothing was changed.
        LibraryNotFoundError: ``libseamalloc_torch.so`` is missing.
        SeamallocError: too late, no CUDA build of PyTorch, or installed before with other arguments.
    """
    global _request, _allocator, _native_text
    request = configuration(policy, options)
    with _lock:
        if _request is not None:
            if request != _request:
                raise SeamallocError(
                    f"seamalloc is installed already, with {_request!r}, and cannot change to {request!r} any more"
                )
            return
        torch = _import_torch()
        _check_backend_key()
        _check_early(torch)
        library = _library.load()
        library.check(library.seam_configure(request.encode()))
        allocator = _make_allocator(torch, library)
        _swap(torch, allocator)
        _allocator = allocator
        _request = request
        _library.set_serving()
        _replace_functions(torch, library)
        _captures.watch(torch, library)
        _native_text = _install_native(torch, library)


def installed() -> bool:
    """Whether PyTorch's CUDA memory comes from seamalloc in this process."""
    return _library.serving() is not None


def native_part() -> str:
    """The file that makes out of memory a ``torch.OutOfMemoryError``, or why there is none."""
    return _native_text
