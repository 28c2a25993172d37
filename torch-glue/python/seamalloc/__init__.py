# SPDX-License-Identifier: Apache-2.0
"""seamalloc: a caching allocator for CUDA that PyTorch can use in place of its own.

    import seamalloc
    seamalloc.install()                # before the first use of torch.cuda

    with seamalloc.phase("forward"):
        loss = model(batch)
    print(seamalloc.stats_table())

After ``install`` PyTorch's own functions (``torch.cuda.memory_stats``, ``max_memory_allocated``, ``empty_cache``, ...)
answer for this allocator. Sizes are bytes and times nanoseconds, unless a name says otherwise. docs/torch.md has more.
"""

from seamalloc._errors import LibraryNotFoundError, OptionError, SeamallocError
from seamalloc._measure import (
    last_error,
    memory_stats,
    phase,
    reset_peaks,
    settings,
    stats,
    stats_table,
    trim,
    unavailable_reason,
    validate,
    version,
    window,
)
from seamalloc._torch import SeamallocWarning, install, installed, native_part

__all__ = [
    "LibraryNotFoundError",
    "OptionError",
    "SeamallocError",
    "SeamallocWarning",
    "install",
    "installed",
    "last_error",
    "memory_stats",
    "native_part",
    "phase",
    "reset_peaks",
    "settings",
    "stats",
    "stats_table",
    "trim",
    "unavailable_reason",
    "validate",
    "version",
    "window",
]
