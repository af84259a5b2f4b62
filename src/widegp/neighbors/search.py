"""Nearest earlier rows, and nearest rows of a reference table."""

from __future__ import annotations

import copy

import numpy as np

from widegp.data.arrays import appended, empty_beside
from widegp.neighbors.lists import InvertedLists, has_faiss
from widegp.neighbors.scan import as_points, scan

EXACT_ROWS = 50_000
"""Largest table that "auto" searches exactly."""
RECALL = 0.95
"""Share of true neighbours that the approximate search is tuned to find."""

_METHODS = ("auto", "exact", "approximate")
_BATCH = 4_096
_PREFIX = 16_384
_SMALLEST_INDEX = 1_024


def nearest_earlier(
    points: np.ndarray, count: int, method: str = "auto", recall: float = RECALL
) -> np.ndarray:
    """N(i) = the `count` rows j < i with the smallest (|x_i - x_j|, j), nearest first.

    Parameters
    ----------
    points : x, (n, I), embedded so that Euclidean distance is the wanted one; float32 halves the time.
    count : neighbours of each row.
    method : "exact"; "approximate", by faiss, above some thousand rows; or "auto", exact up to
        ``EXACT_ROWS`` rows. Without faiss the search is exact at any size, its time growing as n^2. Where
        there is an accelerator, "auto" searches there, by `neighbors.device`.
    recall : share of the true neighbours that the approximate search is tuned to find.

    Returns
    -------
    (n, count) int32; row i < count holds its i earlier rows, then -1. Later rows hold `count` distinct ones
    under either method.
    """
    points = as_points(points)
    if _on_device(method, len(points)):
        from widegp.neighbors.device import nearest_on_device

        return nearest_on_device(points, points, np.arange(len(points)), count)
    if _is_exact(method, count, recall, len(points)):
        return _earlier_exact(points, 0, len(points), count)
    return _earlier_approximate(points, count, recall)


def nearest(
    reference: np.ndarray, queries: np.ndarray, count: int, method: str = "auto", recall: float = RECALL
) -> np.ndarray:
    """N(q) = the `count` reference rows j with the smallest (|x_q - x_j|, j), nearest first.

    Parameters
    ----------
    reference, queries : (n, I) and (q, I).
    count, method, recall : as for ``nearest_earlier``; "auto" also stays exact where n q is below
        ``EXACT_ROWS`` squared, which takes less time than building an index.

    Returns
    -------
    (q, count) int32, -1 where the reference has fewer than `count` rows.
    """
    if method == "auto" and len(reference) * len(queries) <= EXACT_ROWS**2:
        method = "exact"
    return NeighborIndex(reference, method, recall).query(queries, count)


class NeighborIndex:
    """A reference table made ready once for many queries.

    Parameters
    ----------
    reference : x, (n, I); kept, not copied, if it is float32 or float64 in C order.
    method, recall : as for ``nearest_earlier``; recall is tuned on reference rows, and queries unlike all of
        them find a smaller share.
    laid : rows at the beginning of the reference that an approximate search is fitted to, by default all;
        the others are searched exactly.
    """

    def __init__(
        self, reference: np.ndarray, method: str = "auto", recall: float = RECALL, laid: int | None = None
    ) -> None:
        self.reference = as_points(reference)
        self.laid = len(self.reference) if laid is None else laid
        self.recall = recall
        self._lists: InvertedLists | None = None
        self._device = _on_device(method, self.laid)
        if not self._device and not _is_exact(method, 1, recall, self.laid):
            self._lists = InvertedLists(self.reference[: self.laid])
            self._lists.add(self.reference[: self.laid])

    def grown(self, rows: np.ndarray) -> NeighborIndex:
        """The same with further ``rows`` (q, I) at the end, none of which is ``laid``."""
        grown = copy.copy(self)
        grown.reference = appended(self.reference, as_points(rows))
        return grown

    def query(self, queries: np.ndarray, count: int) -> np.ndarray:
        """The `count` reference rows nearest to each query, nearest first: (q, I) -> (q, count) int32."""
        queries = as_points(queries).astype(self.reference.dtype, copy=False)
        if queries.shape[1] != self.reference.shape[1]:
            raise ValueError(
                f"The queries have {queries.shape[1]} columns and the reference {self.reference.shape[1]};"
                " embed both alike."
            )
        _check_count(count)
        n, size = len(self.reference), len(queries)
        if self._device:
            from widegp.neighbors.device import nearest_on_device

            return nearest_on_device(self.reference, queries, np.full(size, n), count)
        if self._lists is None or count >= n or count == 0:
            return scan(self.reference, queries, np.zeros(size, np.int64), np.full(size, n), count)
        if self._lists.tuned_for != count:
            self._lists.tune(self.reference[: self.laid], count, self.recall)
        found = np.empty((size, count), np.int32)
        for start in range(0, size, _BATCH):
            batch = queries[start : start + _BATCH]
            later, end = np.full(len(batch), self.laid), np.full(len(batch), n)
            found[start : start + _BATCH] = _ranked(
                self.reference, batch, self._lists.propose(batch, count), later, end, count
            )
        return found


def _earlier_exact(points: np.ndarray, low: int, high: int, count: int) -> np.ndarray:
    rows = np.arange(low, high)
    return scan(points, points[low:high], np.zeros_like(rows), rows, count)


def _earlier_approximate(points: np.ndarray, count: int, recall: float) -> np.ndarray:
    """Row by row the index holds exactly the earlier batches, so that no candidate is ever a later row.

    What the index lacks, the earlier rows of the batch itself, is scanned exactly. The table's first rows,
    for which an index is no gain, are searched exactly too.
    """
    n = len(points)
    found = empty_beside(points, (n, count), np.int32)
    prefix = min(n, max(min(_PREFIX, n // 16), count + 1))
    found[:prefix] = _earlier_exact(points, 0, prefix, count)
    if prefix == n or count == 0:
        return found
    lists = InvertedLists(points)
    lists.add(points[:prefix])
    tuned_at, low = 0, prefix
    while low < n:
        # Lists grow longer as rows are added, so what a probe finds must be looked at again.
        if low >= 2 * tuned_at:
            lists.tune(points[:low], count, recall)
            tuned_at = low
        high = min(n, low + min(_BATCH, low))
        batch, rows = points[low:high], np.arange(low, high)
        seeds = lists.propose(batch, count)
        found[low:high] = _ranked(points, batch, seeds, np.full_like(rows, low), rows, count)
        lists.add(batch)
        low = high
    return found


def _ranked(
    reference: np.ndarray,
    queries: np.ndarray,
    seeds: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    count: int,
) -> np.ndarray:
    """The best of the candidates and of rows first <= j < last; of all rows where candidates are too few."""
    few = (seeds >= 0).sum(axis=1) < count
    seeds[few] = -1
    return scan(reference, queries, np.where(few, 0, first), last, count, seeds)


def _on_device(method: str, n_rows: int) -> bool:
    """Whether an accelerator is there to search a table that it can hold."""
    if method != "auto" or n_rows <= _SMALLEST_INDEX:
        return False
    from widegp.neighbors.device import has_accelerator

    return has_accelerator()


def _is_exact(method: str, count: int, recall: float, n_rows: int) -> bool:
    if method not in _METHODS:
        raise ValueError(f"The method of search is one of {', '.join(_METHODS)}; got {method!r}.")
    if not 0 < recall <= 1:
        raise ValueError(f"recall is a share above 0 and at most 1; got {recall}.")
    _check_count(count)
    enough = EXACT_ROWS if method == "auto" else _SMALLEST_INDEX
    return method == "exact" or n_rows <= enough or not has_faiss()


def _check_count(count: int) -> None:
    if count < 0:
        raise ValueError(f"The number of neighbours cannot be negative; got {count}.")
