"""Large arrays that are used again: to be handed fresh memory takes as long as to fill it with a product."""

from __future__ import annotations

import math
import sys
from threading import Lock

import numpy as np

LARGE = 2**17  # numbers, a megabyte: below it NumPy's own allocator is as quick


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
        free = unreferenced(self._buffers)
        for k, buffer in enumerate(self._buffers):
            if free[k] and size <= buffer.size <= 2 * size:
                return buffer
        self._buffers = [buffer for k, buffer in enumerate(self._buffers) if not free[k]]
        self._buffers.append(np.empty(size))
        return self._buffers[-1]


def unreferenced(buffers: list[np.ndarray]) -> list[bool]:
    """Which buffers have no other reference.

    How many references the call itself makes differs between versions of Python: an array that surely is
    in one list alone says how many.
    """
    alone = [np.empty(0)]
    return [_references(buffers, k) <= _references(alone, 0) for k in range(len(buffers))]


def _references(buffers: list[np.ndarray], k: int) -> int:
    return sys.getrefcount(buffers[k])
