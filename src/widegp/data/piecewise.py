"""Lines through points, a curve for each column of a table, with straight ends."""

from __future__ import annotations

import itertools

import numpy as np

from widegp.jit import COMPILED, njit
from widegp.threads import in_threads

# Rows that one thread takes at a time.
PART_ROWS = 1024


def lines(
    X: np.ndarray, left: np.ndarray, right: np.ndarray, starts: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """The lines through the points (left, right) at X (n, I), column by column; (n, I).

    left, right : (T,) points of all columns, one column after the other, both increasing in each.
    starts : (I + 1,) where those of each column start.    slopes : (I, 2) below and above its points.

    Compiled, one row costs microseconds; by NumPy, its columns would cost more than the rest of a prediction.
    """
    out = np.empty(X.shape)
    if COMPILED:
        parts = [slice(start, start + PART_ROWS) for start in range(0, len(X), PART_ROWS)]
        in_threads(lambda part: _compiled(X[part], left, right, starts, slopes, out[part]), parts)
        return out
    for j, (first, end) in enumerate(itertools.pairwise(starts)):
        out[:, j] = _piecewise(X[:, j], left[first:end], right[first:end], slopes[j])
    return out


def _piecewise(x: np.ndarray, left: np.ndarray, right: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """The line through the points (left, right), continued by the ``slopes`` below and above them."""
    if len(left) == 1:
        return x - left[0] + right[0]
    below, above = slopes
    # Rounding may carry a value past the knot that it lies before: neighbours would change their order.
    part = np.searchsorted(left, x, side="right").clip(1, len(left) - 1)
    out = np.interp(x, left, right).clip(right[part - 1], right[part])
    out += below * np.minimum(x - left[0], 0.0) + above * np.maximum(x - left[-1], 0.0)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _compiled(X, left, right, starts, slopes, out):  # type: ignore[no-untyped-def]
    """`lines` of X (n, I) into out (n, I)."""
    for j in range(X.shape[1]):
        first, last = starts[j], starts[j + 1] - 1
        for i in range(X.shape[0]):
            x = X[i, j]
            if x <= left[first]:
                out[i, j] = right[first] + slopes[j, 0] * (x - left[first])
            elif x >= left[last]:
                out[i, j] = right[last] + slopes[j, 1] * (x - left[last])
            else:
                low, high = first, last
                while high - low > 1:
                    middle = (low + high) >> 1
                    if left[middle] <= x:
                        low = middle
                    else:
                        high = middle
                slope = (right[high] - right[low]) / (left[high] - left[low])
                out[i, j] = min(max(slope * (x - left[low]) + right[low], right[low]), right[high])
