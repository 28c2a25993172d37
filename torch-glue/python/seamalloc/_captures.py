# SPDX-License-Identifier: Apache-2.0
"""Graph captures that fail.

PyTorch begins a pool before it begins a capture, and drops the pool's use when the graph goes: but only of a capture
that came to its end. One that failed would keep its memory for the rest of the process, so the library is told.

A graph may have come to its end although ``capture_end`` raises: its instantiation failed, or a warning was an error.
Then it drops the use itself, and nobody else may: another graph of the same pool would lose its memory.
"""

import functools
from types import ModuleType
from typing import Any

from seamalloc._library import Library


def _came_to_its_end(graph: Any) -> bool:
    """A graph names its pool from the moment on at which it will drop the use."""
    try:
        graph.pool()
    except RuntimeError:
        return False
    return True


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
        finally:
            library.seam_pool_settle(_came_to_its_end(self))

    kind.capture_begin = capture_begin
    kind.capture_end = capture_end
