# SPDX-License-Identifier: Apache-2.0
"""``python -m seamalloc``."""

from seamalloc._command import main

if __name__ == "__main__":
    main()
