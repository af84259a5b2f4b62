"""Large arrays that are used again: to be handed fresh memory takes as long as to fill it with a product."""

from __future__ import annotations

import math
import sys
from threading import Lock

import numpy as np

LARGE = 2**17  # numbers, a megabyte: below it NumPy's own allocator is as quick
# References to a buffer that nobody but the pool holds: the list, the loop's variable, the argument.
UNHELD = 3


class Pool:
    """Hands out float64 arrays of whatever was there before.

    Memory is free again when no array, view or slice of it is left, which CPython's count of references
    tells: nothing has to be given back, and two holders never share memory. A pool lives as long as the
    backend that owns it.
    """

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []
        self._lock = Lock()

    def take(self, *shape: int) -> np.ndarray:
        """An uninitialised array of this shape."""
        size = math.prod(shape)
        if size < LARGE:
            return np.empty(shape)
        with self._lock:
            return self._buffer(size)[:size].reshape(shape)

    def _buffer(self, size: int) -> np.ndarray:
        """A free buffer of at most twice the size; where there is none, free ones make way for a new one."""
        for buffer in self._buffers:
            if size <= buffer.size <= 2 * size and sys.getrefcount(buffer) <= UNHELD:
                return buffer
        self._buffers = [buffer for buffer in self._buffers if sys.getrefcount(buffer) > UNHELD]
        self._buffers.append(np.empty(size))
        return self._buffers[-1]
