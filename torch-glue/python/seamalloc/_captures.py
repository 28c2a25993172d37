# SPDX-License-Identifier: Apache-2.0
"""Graph captures that fail.

PyTorch begins a pool before it begins a capture, and drops the pool's use when the graph goes: but only of a capture
that came to its end. One that failed would keep its memory for the rest of the process, so the library is told.
"""

import functools
from types import ModuleType
from typing import Any

from seamalloc._library import Library


def watch(torch: ModuleType, library: Library) -> None:
    """Replaces the two methods of ``torch.cuda.CUDAGraph`` between which a capture runs."""
    kind = torch.cuda.CUDAGraph
    begin, end = kind.capture_begin, kind.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *arguments: Any, **named: Any) -> None:
        library.seam_pool_settle(True)
        try:
            begin(self, *arguments, **named)
        except BaseException:
            library.seam_pool_settle(False)
            raise

    @functools.wraps(end)
    def capture_end(self: Any) -> None:
        try:
            end(self)
        except BaseException:
            library.seam_pool_settle(False)
            raise
        library.seam_pool_settle(True)

    kind.capture_begin = capture_begin
    kind.capture_end = capture_end
