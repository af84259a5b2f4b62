"""Numba's compiler; where Numba is missing, as on some accelerator machines, the same loops run plainly.

Nothing that is large runs plainly: `scan` then goes through NumPy, and an accelerator searches by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

try:
    from numba import get_num_threads, njit

    COMPILED = True
except ImportError:  # pragma: no cover - Numba comes with the extra "fast"
    COMPILED = False

    def get_num_threads() -> int:
        return os.cpu_count() or 1

    def njit(*args: Any, **options: Any) -> Callable[..., Any]:
        return args[0] if args else lambda function: function


__all__ = ["COMPILED", "get_num_threads", "njit"]
