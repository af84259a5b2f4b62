"""Large arrays in memory, or in files that the system pages in and out as they are used.

An array made from another lives where that one lives: a table that is memory-mapped, because it does not
fit, gives neighbours, embedded points and reordered rows that are memory-mapped too.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CHUNK_BYTES = 8 * 2**20


def is_mapped(array: Any) -> bool:
    """Whether the array is a view of a file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def empty_mapped(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An empty array in a nameless file of the temporary folder (TMPDIR), gone with the array."""
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="widegp-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def empty_beside(array: np.ndarray, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An empty array kept as ``array`` is: in memory, or in a file."""
    return empty_mapped(shape, dtype) if is_mapped(array) else np.empty(shape, dtype)


def chunks(n: int, bytes_per_row: int) -> list[slice]:
    """Slices of n rows, each of at most 8 MiB."""
    size = max(1, CHUNK_BYTES // max(bytes_per_row, 1))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def appended(X: np.ndarray, more: np.ndarray) -> np.ndarray:
    """X (n, I) followed by ``more`` (q, I), kept beside X."""
    out = empty_beside(X, (len(X) + len(more), *X.shape[1:]), X.dtype)
    for part in chunks(len(X), 8 * X.shape[1]):
        out[part] = X[part]
    out[len(X) :] = more
    return out


def take(
    X: np.ndarray,
    rows: np.ndarray | None = None,
    fn: Callable[[np.ndarray], np.ndarray] | None = None,
    width: int | None = None,
    dtype: Any = np.float64,
) -> np.ndarray:
    """fn(X[rows]) for X (n, I) and a function of rows, (c, I) -> (c, width) of ``dtype``, kept beside X.

    ``rows`` (p,) or None for all. The function sees a chunk at a time, so that what it makes on its way is
    small, and no more than one chunk is in memory where X is in a file.
    """
    if fn is None and not is_mapped(X):
        return X if rows is None else X[rows]
    width = X.shape[1] if width is None else width
    n = len(X) if rows is None else len(rows)
    out = empty_beside(X, (n, width), X.dtype if fn is None else dtype)
    for part in chunks(n, 8 * max(width, X.shape[1])):
        picked = X[part] if rows is None else X[rows[part]]
        out[part] = picked if fn is None else fn(picked)
    return out
