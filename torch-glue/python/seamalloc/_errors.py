# SPDX-License-Identifier: Apache-2.0
"""The package's exceptions."""

from __future__ import annotations


class SeamallocError(RuntimeError):
    """A call failed; the text says what was wrong, where, and what would be right.

    ``result`` is the library's code by name, e.g. ``"SEAM_E_STATE"``, or ``""`` when the library was not involved.
    """

    def __init__(self, text: str, result: str = "") -> None:
        super().__init__(text)
        self.result = result


class OptionError(SeamallocError, ValueError):
    """An option or a configuration string was not understood. Nothing was applied."""


class LibraryNotFoundError(SeamallocError):
    """``libseamalloc_torch.so`` was not found or could not be loaded."""
