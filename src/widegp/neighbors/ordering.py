"""The order in which rows are conditioned on one another."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, njit, prange

from widegp.neighbors.scan import as_points, tile_distances

MAXMIN_ROWS = 50_000
"""Largest table for the exact maxmin order, whose work grows as n^2."""

_FILTER_COLUMNS = 8
_TILE = 512


def conditioning_order(
    points: np.ndarray, kind: str = "random", rng: np.random.Generator | int | None = None
) -> np.ndarray:
    """A permutation p of the rows; row p[i] will be conditioned on rows among p[0], ..., p[i-1].

    "random": uniform among all permutations.
    "maxmin": p[0] = argmin_i |x_i - mean|,  p[k] = argmax_i min_{j<k} |x_i - x_p[j]|,
    the smallest index wherever several rows tie.

    Parameters
    ----------
    points : x, (n, I), embedded so that Euclidean distance is the wanted one.
    kind : "random" or "maxmin".
    rng : generator or seed for "random"; "maxmin" does not use it.

    Returns
    -------
    p, (n,) int64.
    """
    if kind == "random":
        return np.random.default_rng(rng).permutation(len(points))
    if kind != "maxmin":
        raise ValueError(f'The order of conditioning is "random" or "maxmin"; got {kind!r}.')
    if len(points) > MAXMIN_ROWS:
        raise ValueError(
            f'The maxmin order takes n^2 work and {len(points):,} rows are above its limit of {MAXMIN_ROWS:,};'
            ' use kind="random".'
        )
    points = as_points(points)
    if len(points) == 0:
        return np.empty(0, np.int64)
    centred = points - points.mean(axis=0)
    start = int(np.argmin(np.einsum("ij,ij->i", centred, centred)))
    head, slack = _filter_coordinates(centred)
    return _maxmin(points, head, slack, start, get_num_threads())


def _filter_coordinates(centred: np.ndarray) -> tuple[np.ndarray, float]:
    """F = V'x for the leading principal directions V, with |F_i - F_j| <= |x_i - x_j|; and its rounding slack.

    With an error of at most delta in |F_i - F_j|, a row surely keeps its gap g when
    |F_i - F_j|^2 > g^2 (1 + e) + delta^2 (1 + 1/e). Rows that the filter cannot rule out are compared in
    full, so that it decides the speed and never the order.
    """
    work = centred.astype(np.float64)
    _, directions = np.linalg.eigh(work.T @ work)
    head = np.ascontiguousarray((work @ directions[:, ::-1][:, :_FILTER_COLUMNS]).T)
    largest = float(np.max(np.einsum("ij,ij->i", work, work), initial=0.0))
    # delta = 1e-6 |x| in float32 and 1e-12 |x| in float64: a hundred times what rounding can do.
    delta2 = largest * (1e-12 if centred.dtype == np.float32 else 1e-24)
    return head, delta2 * (1 + 1 / _FILTER_MARGIN)


_FILTER_MARGIN = 1e-4


@njit(cache=True, error_model="numpy")
def _closer(x, y, bound):
    """min(bound, |x - y|^2), leaving early; four running sums because one would wait on itself."""
    s0 = s1 = s2 = s3 = x.dtype.type(0)
    k, n_columns = 0, len(x)
    while k + 4 <= n_columns:
        d0, d1, d2, d3 = x[k] - y[k], x[k + 1] - y[k + 1], x[k + 2] - y[k + 2], x[k + 3] - y[k + 3]
        s0 += d0 * d0
        s1 += d1 * d1
        s2 += d2 * d2
        s3 += d3 * d3
        k += 4
        if k % 16 == 0 and (s0 + s1) + (s2 + s3) >= bound:
            return bound
    while k < n_columns:
        d0 = x[k] - y[k]
        s0 += d0 * d0
        k += 1
    return min(bound, (s0 + s1) + (s2 + s3))


@njit(cache=True, error_model="numpy")
def _update_gaps(points, head, slack, gaps, chosen, lo, hi, buffer):
    """Lower gaps[lo:hi] to the distance from the row just chosen; the row with the widest gap left."""
    widest, at = -np.inf, -1
    for start in range(lo, hi, _TILE):
        size = min(_TILE, hi - start)
        tile_distances(head[:, chosen].copy(), head[:, start : start + size], size, buffer)
        for t in range(size):
            i = start + t
            if buffer[t] <= gaps[i] * (1 + _FILTER_MARGIN) + slack:
                gaps[i] = _closer(points[i], points[chosen], gaps[i])
            if gaps[i] > widest:
                widest, at = gaps[i], i
    return at


@njit(cache=True, parallel=True, error_model="numpy")
def _maxmin(points, head, slack, start, n_chunks):
    n = len(points)
    order = np.empty(n, np.int64)
    gaps = np.full(n, np.inf, points.dtype)
    buffers = np.empty((n_chunks, _TILE))
    winners = np.empty(n_chunks, np.int64)
    chosen = start
    for step in range(n):
        order[step] = chosen
        gaps[chosen] = -1  # Chosen rows can neither win again nor be reached by a distance.
        for c in prange(n_chunks):
            lo, hi = n * c // n_chunks, n * (c + 1) // n_chunks
            winners[c] = _update_gaps(points, head, slack, gaps, chosen, lo, hi, buffers[c])
        chosen = -1
        for c in range(n_chunks):
            if winners[c] >= 0 and (chosen < 0 or gaps[winners[c]] > gaps[chosen]):
                chosen = winners[c]
    return order
