"""Anchor points: the r places through which the low-rank part of the covariance sees the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from widegp.neighbors.scan import as_points, scan

RULES = ("first", "random", "kmeans++", "kmeans", "greedy")

COINCIDING = 1e-6
"""Anchors closer than this share of the spread of the rows count as one."""
SAMPLE_ROWS = 20_000
"""Rows that the clustering and greedy rules look at in a large table."""
SPREAD_ROWS = 20_000
"""Evenly spaced rows that tell the spread of a table."""

_RESIDUAL = 1e-10
_CHUNK = 16_384
_LLOYD_WORK = 2e7
_SEEDING_WORK = 2e7
_GREEDY_WORK = 2e8

Metric = Callable[[np.ndarray], np.ndarray]


class CovarianceFunction(Protocol):
    """K, as a kernel has it: between rows X (n, I) and Y (p, I), and of rows with themselves."""

    def __call__(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """K(X, Y), (n, p)."""

    def diag(self, X: np.ndarray) -> np.ndarray:
        """K(x, x), (n,)."""


class Anchors(NamedTuple):
    """Z, and where it came from.

    points : Z, (r, I) float64.
    rows : (r,) int64 with Z = X[rows], or None where anchors are centroids.
    """

    points: np.ndarray
    rows: np.ndarray | None


@dataclass(frozen=True)
class Wanted:
    """At most ``rank`` anchors by a rule of `RULES`; ``must_be_rows`` makes "kmeans" return rows."""

    rank: int
    rule: str
    must_be_rows: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"The rule for anchors is one of {', '.join(RULES)}; got {self.rule!r}.")
        if self.rank < 0:
            raise ValueError(f"The rank cannot be negative; got {self.rank}.")


def choose_anchors(
    X: np.ndarray,
    wanted: Wanted,
    rng: np.random.Generator | int | None = None,
    *,
    metric: Metric | None = None,
    kernel: CovarianceFunction | None = None,
) -> Anchors:
    """At most r anchors Z for the rows of X, no two of them nearer than 1e-6 of the spread of the rows.

    "first"     the first r distinct rows
    "random"    r distinct rows, uniformly
    "kmeans++"  rows drawn one by one with probability proportional to min_z |x - z|^2
    "kmeans"    the centroids of r clusters, or the distinct rows nearest to them
    "greedy"    z = argmax_x R(x, x), again and again, R = K - K(., Z) K(Z, Z)^-1 K(Z, .); it stops where
                sum R(x, x) < 1e-10 sum K(x, x)

    Parameters
    ----------
    X : (n, I), scaled so that Euclidean distance weighs the inputs rightly.
    wanted : r and one of the above; there are fewer anchors where X has fewer distinct rows. r >= n gives
        every distinct row.
    rng : generator or seed; the same one gives the same anchors.
    metric : X (n, I) -> u (n, J), a map of rows; distances and anchors are then those of u, which is computed
        only for the rows that the rule looks at.
    kernel : K, for "greedy".

    On large tables "kmeans" works on max(20,000, 30 r) random rows, "kmeans++" (and the seeds of "kmeans") on
    max(20,000, 10 r) and "greedy" on 20,000.
    """
    rank, rule = wanted.rank, wanted.rule
    if rule == "greedy" and kernel is None:
        raise ValueError('The rule "greedy" needs the kernel; pass kernel=.')
    X = as_points(X)
    at: Metric = metric or _as_they_are
    rng = np.random.default_rng(rng)
    closest = COINCIDING * _spread(at(X[:: max(1, len(X) // SPREAD_ROWS)]))
    if rule == "first" or rank == 0 or rank >= len(X):
        return _of_rows(X, _first_distinct(X, np.arange(len(X)), rank, closest, at), at)
    if rule == "random":
        return _of_rows(X, _first_distinct(X, rng.permutation(len(X)), rank, closest, at), at)
    if rule == "greedy" and kernel is not None:
        rows = _sample(len(X), SAMPLE_ROWS, rng)
        picked = rows[_pivots(X[rows].astype(np.float64), rank, kernel)]
        return _of_rows(X, _first_distinct(X, picked, rank, closest, at), at)
    rows = _sample(len(X), max(SAMPLE_ROWS, 30 * rank), rng)
    sample = at(X[rows]).astype(np.float64)
    seeds = _kmeans_plus_plus(sample, rank, rng, closest)
    if rule == "kmeans++" or len(seeds) < rank:
        return _of_rows(X, rows[seeds], at)
    centres = _centroids(sample, seeds, rng)
    centres = centres[_first_distinct(centres, np.arange(rank), rank, closest)]
    if wanted.must_be_rows:
        return _of_rows(X, rows[_nearest_distinct(sample, centres, closest)], at)
    return Anchors(centres, None)


def _as_they_are(X: np.ndarray) -> np.ndarray:
    return X


def _of_rows(X: np.ndarray, rows: np.ndarray, at: Metric) -> Anchors:
    return Anchors(at(X[rows]).astype(np.float64), rows)


def _spread(sample: np.ndarray) -> float:
    """sqrt(mean |x - mean|^2)."""
    return float(np.sqrt(sample.var(axis=0, dtype=np.float64).sum())) if len(sample) else 0.0


def _sample(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    return np.arange(n) if n <= size else np.sort(rng.choice(n, size, replace=False))


def _first_distinct(
    X: np.ndarray, order: np.ndarray, rank: int, closest: float, at: Metric = _as_they_are
) -> np.ndarray:
    """The first `rank` rows in `order` that lie farther than `closest` from all rows before them."""
    kept = order[:0].astype(np.int64)
    size = min(max(rank, 1_024), _CHUNK)
    for start in range(0, len(order), size):
        if len(kept) >= rank:
            break
        fresh = order[start : start + size]
        table = at(X[np.concatenate([kept, fresh])])
        ends = np.arange(len(kept), len(table))
        near = scan(table, table[len(kept) :], np.zeros_like(ends), ends, 1)[:, 0]
        gap = np.linalg.norm(table[len(kept) :] - table[near], axis=1)
        kept = np.concatenate([kept, fresh[(near < 0) | (gap > closest)]])
    return kept[:rank]


def _kmeans_plus_plus(sample: np.ndarray, rank: int, rng: np.random.Generator, closest: float) -> np.ndarray:
    """Rows of the sample seeded far apart, distinct; fewer than `rank` only if there are no others."""
    from sklearn.cluster import kmeans_plusplus

    from widegp.neighbors.device import has_accelerator

    if len(sample) * rank > _GREEDY_WORK or has_accelerator():
        # Seeding one by one would take minutes; with so many seeds, random ones cover the table too. And an
        # accelerator takes Lloyd's steps in less time than seeding would need.
        return _first_distinct(sample, rng.permutation(len(sample)), rank, closest)
    rows = _sample(len(sample), max(SAMPLE_ROWS, 10 * rank), rng)
    trials = None if len(rows) * rank <= _SEEDING_WORK else 1
    seed = int(rng.integers(2**31 - 1))
    seeds = rows[kmeans_plusplus(sample[rows], rank, random_state=seed, n_local_trials=trials)[1]]
    # Seeds repeat once every distinct row is taken; other rows make up for seeds that nearly coincide.
    others = np.setdiff1d(np.arange(len(sample)), seeds)
    return _first_distinct(sample, np.concatenate([seeds, others]), rank, closest)


def _centroids(sample: np.ndarray, seeds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Centroids from Lloyd's steps, in small batches where whole passes would take minutes."""
    from widegp.neighbors.device import centroids_on_device, has_accelerator

    if has_accelerator():
        return centroids_on_device(sample, seeds)
    from sklearn.cluster import KMeans, MiniBatchKMeans

    shared = {"init": sample[seeds], "n_init": 1, "random_state": int(rng.integers(2**31 - 1))}
    if len(sample) * len(seeds) <= _LLOYD_WORK:
        model = KMeans(len(seeds), max_iter=50, **shared)
    else:
        model = MiniBatchKMeans(len(seeds), batch_size=4_096, max_iter=3, reassignment_ratio=0, **shared)
    return model.fit(sample).cluster_centers_


def _nearest_distinct(sample: np.ndarray, centres: np.ndarray, closest: float) -> np.ndarray:
    """For each centre the nearest row, among its 16 nearest, that no earlier centre took."""
    count = min(16, len(sample))
    size = len(centres)
    near = scan(sample, centres, np.zeros(size, np.int64), np.full(size, len(sample)), count)
    taken = np.zeros(len(sample), bool)
    rows = []
    for candidates in near:
        free = candidates[~taken[candidates]]
        if len(free):
            taken[free[0]] = True
            rows.append(free[0])
    return _first_distinct(sample, np.array(rows, np.int64), size, closest)


def _pivots(X: np.ndarray, rank: int, kernel: CovarianceFunction) -> np.ndarray:
    """Pivots of the partial Cholesky factor K ~ G'G of K(X, X), largest residual first; ties by row.

    G[k] = (K(x_p, .) - G[:k, p]'G[:k]) / sqrt(R_pp),  R = diag K - sum_k G[k]^2.
    """
    residual = np.array(kernel.diag(X), np.float64)
    enough = _RESIDUAL * residual.sum()
    G = np.empty((rank, len(X)))
    pivots = np.empty(rank, np.int64)
    for k in range(rank):
        p = pivots[k] = int(np.argmax(residual))
        if residual.sum() <= enough or residual[p] <= 0:
            return pivots[:k]
        column = np.asarray(kernel(X, X[p : p + 1]), np.float64)[:, 0]
        G[k] = (column - G[:k, p] @ G[:k]) / np.sqrt(residual[p])
        residual = np.maximum(residual - G[k] ** 2, 0)
        residual[p] = 0
    return pivots
