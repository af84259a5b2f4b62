"""Nearest rows of rows that come after all others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from widegp.data.arrays import appended
from widegp.neighbors.scan import as_points, scan
from widegp.neighbors.search import EXACT_ROWS, NeighborIndex


def nearest_before(
    points: np.ndarray, later: np.ndarray, count: int, index: Callable[[], NeighborIndex]
) -> np.ndarray:
    """N(i) = the `count` rows with the smallest (|x_i - x_j|, j) among ``points`` and the later rows j < i.

    Parameters
    ----------
    points, later : (n, I) and (q, I); the i-th later row is numbered n + i.
    index : makes an index of the points. It is asked for where n q is above ``EXACT_ROWS`` squared; below,
        searching exactly takes less time than building one.

    Returns
    -------
    (q, count) int32, nearest first, -1 where there are fewer rows than `count`.
    """
    n, later = len(points), as_points(later)
    everything = appended(points, later)
    last = n + np.arange(len(later))
    if n * len(later) <= EXACT_ROWS**2 or count >= n:
        return scan(everything, later, np.zeros_like(last), last, count)
    return scan(everything, later, np.full_like(last, n), last, count, index().query(later, count))
