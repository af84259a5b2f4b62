"""The order in which rows are conditioned on one another."""

from __future__ import annotations

from functools import partial

import numpy as np

from widegp.jit import get_num_threads, njit
from widegp.neighbors.scan import as_points, tile_distances
from widegp.threads import in_threads

MAXMIN_ROWS = 50_000
"""Largest table for the exact maxmin order, whose work grows as n^2."""

_FILTER_COLUMNS = 8
_FILTER_MARGIN = 1e-4
_TILE = 512
_BATCH = 128
_THREADED_WORK = 200_000


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
            f"The maxmin order takes n^2 work and {len(points):,} rows are above its limit of"
            f' {MAXMIN_ROWS:,}; use kind="random".'
        )
    points = as_points(points)
    if len(points) == 0:
        return np.empty(0, np.int64)
    centred = points - points.mean(axis=0)
    start = int(np.argmin(np.einsum("ij,ij->i", centred, centred)))
    head, slack = _filter_coordinates(centred)
    return _maxmin(points, head, slack, start)


def _filter_coordinates(centred: np.ndarray) -> tuple[np.ndarray, float]:
    """F = V'x for the leading principal directions V, so that |F_i - F_j| <= |x_i - x_j|; its rounding slack.

    With an error of at most delta in |F_i - F_j|, a row surely keeps its gap g when
    |F_i - F_j|^2 > g^2 (1 + e) + delta^2 (1 + 1/e). Rows that the filter cannot rule out are compared in
    full, so that it decides the speed and never the order.
    """
    work = centred.astype(np.float64)
    _, directions = np.linalg.eigh(work.T @ work)
    head = np.ascontiguousarray(work @ directions[:, ::-1][:, :_FILTER_COLUMNS])
    largest = float(np.max(np.einsum("ij,ij->i", work, work), initial=0.0))
    # delta = 1e-6 |x| in float32 and 1e-12 |x| in float64: several times what rounding can do.
    delta2 = largest * (1e-12 if centred.dtype == np.float32 else 1e-24)
    return head, delta2 * (1 + 1 / _FILTER_MARGIN)


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
def _wider(gaps, i, j):
    return gaps[i] > gaps[j] or (gaps[i] == gaps[j] and i < j)


@njit(cache=True, error_model="numpy")
def _push(heap, size, gaps, row):
    """Add `row` to the heap of `size` rows whose root has the widest gap."""
    at = size
    while at > 0 and _wider(gaps, row, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = row


@njit(cache=True, error_model="numpy")
def _pop(heap, size, gaps):
    """Take the root off the heap of `size` rows."""
    root, row, at = heap[0], heap[size - 1], 0
    while 2 * at + 1 < size - 1:
        child = 2 * at + 1
        if child + 1 < size - 1 and _wider(gaps, heap[child + 1], heap[child]):
            child += 1
        if _wider(gaps, row, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = row
    return root


@njit(cache=True, error_model="numpy")
def _choose(points, gaps, seen, batch, heap, heap_size, order, step):
    """Choose rows from a batch of true gaps while none of the heap's bounds is wider; (rows left, step)."""
    left = len(batch)
    while left > 0:
        best = 0
        for b in range(1, left):
            if _wider(gaps, batch[b], batch[best]):
                best = b
        row = batch[best]
        if heap_size > 0 and _wider(gaps, heap[0], row):
            break
        order[step] = row
        step, left = step + 1, left - 1
        batch[best] = batch[left]
        for b in range(left):
            gaps[batch[b]] = _closer(points[batch[b]], points[row], gaps[batch[b]])
            seen[batch[b]] = step
    return left, step


@njit(cache=True, nogil=True, error_model="numpy")
def _refresh_rows(rows, points, head, kept, kept_head, slack, gaps, seen, step):
    """Bring the gaps of `rows` up to date with the first `step` chosen rows."""
    buffer = np.empty(_TILE)
    for i in rows:
        gap = gaps[i]
        for start in range(seen[i], step, _TILE):
            size = min(_TILE, step - start)
            tile_distances(head[i], kept_head[:, start : start + size], size, buffer)
            for t in range(size):
                if buffer[t] <= gap * (1 + _FILTER_MARGIN) + slack:
                    gap = _closer(points[i], kept[start + t], gap)
        gaps[i], seen[i] = gap, step


@njit(cache=True, nogil=True, error_model="numpy")
def _take_widest(heap, heap_size, gaps, batch):
    size = min(len(batch), heap_size)
    for b in range(size):
        batch[b] = _pop(heap, heap_size - b, gaps)
    return size


def _maxmin(points: np.ndarray, head: np.ndarray, slack: float, start: int) -> np.ndarray:
    """Lazy greedy: a gap only ever shrinks, so an old gap bounds the true one and can wait to be refreshed.

    The rows with the widest bounds are refreshed together, a long piece of work that threads share.
    """
    n = len(points)
    order, seen = np.empty(n, np.int64), np.zeros(n, np.int64)
    gaps = np.full(n, np.inf, points.dtype)
    heap = np.delete(np.arange(n), start)
    batch = np.empty(_BATCH, np.int64)
    kept, kept_head = np.empty_like(points), np.empty((head.shape[1], n))
    order[0], kept[0], kept_head[:, 0] = start, points[start], head[start]
    step, heap_size = 1, n - 1
    while step < n:
        size = _take_widest(heap, heap_size, gaps, batch)
        heap_size -= size
        refresh = partial(
            _refresh_rows, points=points, head=head, kept=kept, kept_head=kept_head, slack=slack,
            gaps=gaps, seen=seen, step=step,
        )  # fmt: skip
        n_parts = 4 * get_num_threads() if size * step - seen[batch[:size]].sum() > _THREADED_WORK else 1
        in_threads(refresh, np.array_split(batch[:size], n_parts))
        left, after = _choose(points, gaps, seen, batch[:size], heap, heap_size, order, step)
        fresh = order[step:after]
        kept[step:after], kept_head[:, step:after] = points[fresh], head[fresh].T
        for row in batch[:left]:
            _push(heap, heap_size, gaps, row)
            heap_size += 1
        step = after
    return order
