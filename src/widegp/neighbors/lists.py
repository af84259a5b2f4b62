"""Approximate neighbours for large tables: inverted lists of compressed rows, by faiss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from widegp.data.arrays import chunks, is_mapped
from widegp.neighbors.scan import scan
from widegp.threads import in_threads

_OVERSAMPLING = (2, 4, 8, 16)
_PROBE_ROWS = 256
_PLAIN_COLUMNS = 16
"""Up to this many columns rows are stored as they are: there is little to gain by compressing them."""
_MOST_CODES = 64
_QUERIES = 256
_TABLE_BYTES = 32 * 2**20
"""Queries searched at a time, and the size of their tables of distances."""
_ADDED = 16_384
_ROWS_PER_LIST = 64
"""Rows that place one centre; these are plenty."""
_SCALED_ROWS = 16_384
"""Evenly spaced rows that tell the centre and the unit of distance."""
_WILD = 1_000
"""Coordinates are cut off at this multiple of the usual distance from the centre."""


def has_faiss() -> bool:
    """Whether faiss can be imported."""
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def _with_faiss(function: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """[function(part) for part in parts] in our threads, within which faiss opens none of its own."""
    import faiss

    return in_threads(function, parts, prepare=partial(faiss.omp_set_num_threads, 1))


class InvertedLists:
    """Rows grouped around 2 sqrt(n) centres; a query looks at the rows of the `probes` centres nearest to it.

    Rows are centred, scaled and rotated, f(x) = Q'(x - centre) / unit with Q Q' = 1, which keeps the order of
    distances and spreads columns of unequal scale evenly, and stored as 4 bits for each pair of coordinates.
    Distances between codes only nominate candidates; the caller ranks these by their true distances.

    Parameters
    ----------
    points : (n, I), all the rows that will ever be added: the centres and codes are fitted to them.
    """

    def __init__(self, points: np.ndarray) -> None:
        n, n_columns = points.shape
        self._n_lists = int(2 * np.sqrt(n))
        sample = self._sample(points)
        few = sample[:: max(1, len(sample) // _SCALED_ROWS)]
        # Medians, because one wild row must not set the scale of all others.
        self._centre = np.median(few, axis=0)
        reach = np.abs(few - self._centre).max(axis=1)
        self._unit = float(np.median(reach[reach > 0])) if reach.any() else 1.0
        self._n_codes = min(-(-n_columns // 2), _MOST_CODES)
        width = self._n_codes * -(-n_columns // self._n_codes)
        rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((width, width)))[0]
        self._rotation = rotation[:n_columns].astype(np.float32)
        self._probes, self._oversampling = self._n_lists, _OVERSAMPLING[-1]
        self.tuned_for = -1
        self._fit(sample, plain=n_columns <= _PLAIN_COLUMNS)

    def _sample(self, points: np.ndarray) -> np.ndarray:
        # Evenly spaced rows serve any order of the table.
        return points[:: max(1, len(points) // (_ROWS_PER_LIST * self._n_lists))]

    def _fit(self, sample: np.ndarray, plain: bool) -> None:
        """An empty index with centres, and codes unless it is `plain`, fitted to the sample."""
        import faiss

        self._index: Any  # faiss's annotations know neither cp nor nprobe
        kind = "Flat" if plain else f"PQ{self._n_codes}x4fs"
        self._plain = plain
        self._index = faiss.index_factory(self._rotation.shape[1], f"IVF{self._n_lists},{kind}")
        self._index.cp.niter = 10
        self._index.cp.min_points_per_centroid = 1  # Silences a printed remark on small tables.
        _with_faiss(self._index.train, [self._rotated(sample)])

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, rows: np.ndarray) -> None:
        """Append rows (p, I); they are numbered on from those already there."""
        for start in range(0, len(rows), _ADDED):
            _with_faiss(self._index.add, [self._rotated(rows[start : start + _ADDED])])

    def propose(self, queries: np.ndarray, count: int) -> np.ndarray:
        """Candidates for the `count` nearest rows of each query: (p, I) -> (p, s) int32, -1 for none."""
        return self._search(queries, count * self._oversampling, self._probes)

    def tune(self, added: np.ndarray, count: int, recall: float) -> float:
        """Set the probes and the oversampling to the cheapest that reach `recall`; returns what they reach.

        recall = share of the true `count` neighbours among the candidates, over rows drawn evenly from those
        added, (len(self), I), each apart from itself. Where codes cannot reach it, as next to wild rows they
        may not, rows are stored as they are from then on.
        """
        self.tuned_for = count
        sample = np.ascontiguousarray(added[:: max(1, len(added) // _PROBE_ROWS)])
        everything = np.full(len(sample), len(added))
        truth = scan(added, sample, np.zeros_like(everything), everything, count + 1)
        bound = _distances(added, sample, truth)[:, -1:] * (1 + 1e-6)
        reached = self._climb(added, sample, bound, count, recall)
        # A table in a file is there because it does not fit: its rows are not stored a second time in memory.
        if reached < recall and not self._plain and not is_mapped(added):
            self._fit(self._sample(added), plain=True)
            self.add(added)
            reached = self._climb(added, sample, bound, count, recall)
        return reached

    def _climb(
        self, added: np.ndarray, sample: np.ndarray, bound: np.ndarray, count: int, recall: float
    ) -> float:
        """Double the probes until `recall` of the rows within `bound` of each sample row are candidates."""
        reached, self._probes = 0.0, 2
        while reached < recall and self._probes < self._n_lists:
            self._probes = min(2 * self._probes, self._n_lists)
            proposed = self._search(sample, (count + 1) * _OVERSAMPLING[-1], self._probes)
            near = (_distances(added, sample, proposed) <= bound).cumsum(axis=1)
            for self._oversampling in _OVERSAMPLING:
                last = min((count + 1) * self._oversampling, near.shape[1]) - 1
                reached = float(np.mean(np.clip(near[:, last] - 1, 0, count))) / count
                if reached >= recall:
                    break
        return reached

    def _search(self, queries: np.ndarray, candidates: int, probes: int) -> np.ndarray:
        import faiss

        limits = faiss.SearchParametersIVF(nprobe=probes)  # type: ignore[call-arg, unused-ignore]
        search = partial(self._index.search, k=min(candidates, len(self)), params=limits)
        rotated = self._rotated(queries)
        # For each query, probe and code faiss tabulates 16 distances in float32.
        fits = _TABLE_BYTES // (64 * self._n_codes * probes)
        size = _QUERIES if self._plain else min(max(fits, 16), _QUERIES)
        parts = [rotated[start : start + size] for start in range(0, len(rotated), size)]
        found = [rows for _, rows in _with_faiss(search, parts)]
        return np.concatenate(found).astype(np.int32)

    def _rotated(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), self._rotation.shape[1]), np.float32)
        for part in chunks(len(rows), 8 * rows.shape[1]):
            # Wild rows would spoil the codes of all others, and a distance that overflows ends the process.
            scaled = np.clip((rows[part] - self._centre) / self._unit, -_WILD, _WILD)
            out[part] = scaled.astype(np.float32) @ self._rotation
        return out


def _distances(reference: np.ndarray, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """|x_q - x_rows[q, c]|^2, (p, c); infinite where there is no row."""
    out = np.empty(rows.shape)
    for q, mine in enumerate(rows):
        step = reference[mine] - queries[q]
        out[q] = np.einsum("ij,ij->i", step, step)
    out[rows < 0] = np.inf
    return out
