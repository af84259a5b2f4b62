"""Exact nearest rows by a tiled scan: no distance matrix, no cancellation, ties settled by index."""

from __future__ import annotations

import numpy as np

from widegp.jit import COMPILED, get_num_threads, njit
from widegp.threads import in_threads

QUERY_BLOCK = 64
"""Queries that share one copied tile: enough that the copy costs nothing beside the distances."""
_THREADED_WORK = 10_000_000
NOTHING = np.iinfo(np.int32).max
PLAIN_PAIRS = 2**20
"""Up to so many distances NumPy takes milliseconds, and the first call of a compiled loop seconds."""


def as_points(points: np.ndarray) -> np.ndarray:
    """A finite table (n, I) in C order; float32 stays, everything else becomes float64."""
    table = np.asarray(points)
    table = np.ascontiguousarray(table, np.float32 if table.dtype == np.float32 else np.float64)
    if table.ndim != 2:
        raise ValueError(f"Points are a table of rows, shape (n, I); got {table.shape}.")
    # The sum of a table is finite only if its entries are, and needs no table of truth values.
    if not np.isfinite(np.sum(table, dtype=np.float64)) and not np.isfinite(table).all():
        row = int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])
        raise ValueError(f"Row {row} of the points is not finite; fill or drop missing values first.")
    return table


def scan(
    reference: np.ndarray,
    queries: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    count: int,
    seeds: np.ndarray | None = None,
) -> np.ndarray:
    """N(q) = the `count` rows j, first_q <= j < last_q or j in seeds_q, with the smallest (|x_q - x_j|^2, j).

    Parameters
    ----------
    reference : x_j, (n, I), float32 or float64, C order.
    queries : x_q, (p, I), the same type.
    first, last : the range of rows searched for each query, (p,) int64.
    seeds : further distinct candidates outside that range, (p, s) integers, -1 for none.

    Returns
    -------
    (p, count) int32, nearest first, -1 where there are fewer candidates than ``count``.

    The squared distance is the plain sum over columns, left to right, in the type of the points:
    equal rows are at distance exactly 0, and the result does not depend on tiles or threads.
    """
    found = np.full((len(queries), count), -1, np.int32)
    if count == 0 or len(queries) == 0:
        return found
    if seeds is None:
        seeds = np.empty((len(queries), 0), np.int32)
    seeds = seeds.astype(np.int32, copy=False)

    plain = not COMPILED or len(reference) * len(queries) <= PLAIN_PAIRS

    def part(rows: slice) -> None:
        if plain:
            _scan_plainly(reference, queries[rows], first[rows], last[rows], seeds[rows], found[rows])
            return
        _scan_part(reference, queries[rows], first[rows], last[rows], seeds[rows], found[rows])

    in_threads(part, _parts(reference, first, last, seeds))
    return found


def _parts(reference: np.ndarray, first: np.ndarray, last: np.ndarray, seeds: np.ndarray) -> list[slice]:
    """Slices of queries for the threads; last ones first, which take longest in a search of earlier rows."""
    n_queries = len(first)
    work = (np.maximum(last - first, 0).sum() + seeds.size) * max(reference.shape[1], 1)
    n_parts = 16 * get_num_threads() if work > _THREADED_WORK else 1
    size = -(-n_queries // (n_parts * QUERY_BLOCK)) * QUERY_BLOCK
    return [slice(start, start + size) for start in range(0, n_queries, size)][::-1]


def _scan_plainly(
    reference: np.ndarray, queries: np.ndarray, first: np.ndarray, last: np.ndarray, seeds: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    """`_scan_part` by NumPy, with the same sums in the same order and therefore the same answer."""
    rows = np.arange(len(reference))
    size = max(1, PLAIN_PAIRS // max(len(reference), 1))
    for lo in range(0, len(queries), size):
        part = slice(lo, lo + size)
        distance = np.zeros((len(queries[part]), len(reference)), reference.dtype)
        for query, column in zip(queries[part].T, reference.T, strict=True):
            difference = query[:, None] - column
            distance += difference * difference
        searched = (rows >= first[part, None]) & (rows < last[part, None])
        which, slot = np.nonzero(seeds[part] >= 0)
        searched[which, seeds[part][which, slot]] = True
        near = np.argsort(np.where(searched, distance, np.inf), axis=1, kind="stable")[:, : found.shape[1]]
        found[part, : near.shape[1]] = np.where(np.take_along_axis(searched, near, 1), near, -1)


@njit(error_model="numpy")
def _sift_down(dist, row, size, start):
    """Restore the heap whose root is the largest (dist, row), lexicographically."""
    at, d, j = start, dist[start], row[start]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            dist[right] > dist[child] or (dist[right] == dist[child] and row[right] > row[child])
        ):
            child = right
        if dist[child] < d or (dist[child] == d and row[child] <= j):
            break
        dist[at], row[at] = dist[child], row[child]
        at = child
    dist[at], row[at] = d, j


@njit(error_model="numpy")
def _offer(dist, row, d, j):
    """Replace the worst candidate kept by (d, j) if that is better; an empty place is worse than any."""
    if d < dist[0] or (d == dist[0] and j < row[0]):
        dist[0], row[0] = d, j
        _sift_down(dist, row, len(dist), 0)


@njit(error_model="numpy")
def _sort_heap(dist, row):
    for size in range(len(dist) - 1, 0, -1):
        dist[0], dist[size] = dist[size], dist[0]
        row[0], row[size] = row[size], row[0]
        _sift_down(dist, row, size, 0)


@njit(error_model="numpy")
def tile_distances(query, tile, size, out):
    """out[t] = sum_k (query[k] - tile[k, t])^2, columns in order; four at a time, to touch out less."""
    n_columns = len(query)
    for t in range(size):
        out[t] = 0
    k = 0
    while k + 4 <= n_columns:
        q0, q1, q2, q3 = query[k], query[k + 1], query[k + 2], query[k + 3]
        row0, row1, row2, row3 = tile[k], tile[k + 1], tile[k + 2], tile[k + 3]
        for t in range(size):
            d0 = q0 - row0[t]
            d1 = q1 - row1[t]
            d2 = q2 - row2[t]
            d3 = q3 - row3[t]
            out[t] = (((out[t] + d0 * d0) + d1 * d1) + d2 * d2) + d3 * d3
        k += 4
    while k < n_columns:
        q0, row0 = query[k], tile[k]
        for t in range(size):
            d0 = q0 - row0[t]
            out[t] += d0 * d0
        k += 1


@njit(error_model="numpy")
def _take_seeds(reference, query, seeds, tile, kept, buffer, dist, row):
    """Offer the seeds; their distances come from the same loop as all others, so that ties compare alike."""
    width, size = tile.shape[1], 0
    for s in range(len(seeds) + 1):
        if size == width or (s == len(seeds) and size > 0):
            tile_distances(query, tile, size, buffer)
            for t in range(size):
                _offer(dist, row, buffer[t], kept[t])
            size = 0
        if s < len(seeds) and seeds[s] >= 0:
            for k in range(tile.shape[0]):
                tile[k, size] = reference[seeds[s], k]
            kept[size] = seeds[s]
            size += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _scan_block(reference, queries, first, last, seeds, low, high, tile, kept, buffer, dist, row):
    """One block of queries against tiles of reference[low:high]; dist and row (p, count) hold their heaps.

    What it writes to is made by the caller: loops without allocation compile in half the time.
    """
    for q in range(len(queries)):
        _take_seeds(reference, queries[q], seeds[q], tile, kept, buffer, dist[q], row[q])
    for start in range(low, high, tile.shape[1]):
        size = min(tile.shape[1], high - start)
        for t in range(size):
            for k in range(tile.shape[0]):
                tile[k, t] = reference[start + t, k]
        for q in range(len(queries)):
            begin, end = max(first[q] - start, 0), min(last[q] - start, size)
            if begin >= end:
                continue
            tile_distances(queries[q], tile, end, buffer)
            bound = dist[q, 0]
            for t in range(begin, end):
                # Ties reach the heap because a seed, unlike a scanned row, may have the larger index.
                if buffer[t] <= bound:
                    _offer(dist[q], row[q], buffer[t], start + t)
                    bound = dist[q, 0]
    for q in range(len(queries)):
        _sort_heap(dist[q], row[q])


def _scan_part(
    reference: np.ndarray, queries: np.ndarray, first: np.ndarray, last: np.ndarray, seeds: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    # A tile of at most 256 KB stays in the second-level cache.
    width = int(np.clip(32_768 // max(reference.shape[1], 1), 16, 512))
    tile, buffer = np.empty((reference.shape[1], width), reference.dtype), np.empty(width, reference.dtype)
    kept = np.empty(width, np.int32)
    for lo in range(0, len(queries), QUERY_BLOCK):
        part = slice(lo, min(lo + QUERY_BLOCK, len(queries)))
        shape = (part.stop - lo, found.shape[1])
        dist, row = np.full(shape, np.inf, reference.dtype), np.full(shape, NOTHING, np.int32)
        _scan_block(
            reference, queries[part], first[part], last[part], seeds[part], int(first[part].min()),
            int(last[part].max()), tile, kept, buffer, dist, row,
        )  # fmt: skip
        found[part] = np.where(row == NOTHING, -1, row)
