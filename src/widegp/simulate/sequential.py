"""Rows drawn in turn, each given its nearest earlier rows.

    f_i = a_i' f_N + sqrt(d_i) e_i,    a_i = R_NN^-1 R_Ni,  d_i = R_ii - a_i' R_Ni

The draws depend on each other, the weights a_i, d_i do not: they are computed by all threads, a stretch of
rows at a time, and the recursion that follows is a dot product per row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from widegp.approximations.whitening import JITTERS
from widegp.progress import Listener, Progress
from widegp.simulate.covariance import RowCovariance
from widegp.threads import in_threads

"""Called with the rows done and the rows in all."""

STRETCH_BYTES = 64 * 2**20
_PART = 16


class RowWeights(NamedTuple):
    """a_i (m,), d_i, and the share of the mean diagonal that was added to factor R_MM."""

    a: np.ndarray
    d: float
    jitter: float


def row_weights(covariance: RowCovariance, rows: np.ndarray) -> RowWeights:
    """The conditional of the last of ``rows`` (m + 1,) given the others, by one Cholesky factor.

    With U'U = R_MM, the last diagonal entry u gives d = u^2, and U x = -u e_last gives x = (a, -1). Where
    R_MM has no factor, as with duplicate rows, its diagonal is raised by the smallest of JITTERS that helps.
    """
    for jitter in (0.0, *JITTERS):
        R = covariance(rows)
        if jitter:
            R.flat[:: len(R) + 1] += jitter * np.mean(np.diagonal(R))
        # The transpose of C order is the Fortran order that LAPACK works on in place.
        U, info = lapack.dpotrf(R.T, lower=0, overwrite_a=1, clean=0)
        if info == 0:
            right = np.zeros(len(rows))
            right[-1] = -U[-1, -1]
            x, _ = lapack.dtrtrs(U, right, lower=0, trans=0, overwrite_b=1)
            return RowWeights(x[:-1], float(U[-1, -1] ** 2), jitter)
    raise ArithmeticError(
        f"Row {rows[-1]} has no conditional: the covariance of its neighbours has no Cholesky factor even"
        f" with {JITTERS[-1]:g} of its mean diagonal added. Remove duplicate rows, or use fewer neighbours."
    )


def draw_in_turn(
    covariance: RowCovariance,
    neighbors: np.ndarray,
    f: np.ndarray,
    normals: np.ndarray,
    first: int,
    progress: Listener | None = None,
) -> float:
    """Fill f[first:] given f[:first] in place; returns the largest jitter that any row needed.

    Parameters
    ----------
    neighbors : N(i), (n, m) integers below i, -1 for none.
    f, normals : draws and the standard normals e they are made of, (n, s): s draws share the weights.
    """
    n, m = neighbors.shape
    stretch = max(_PART, STRETCH_BYTES // (8 * (m + 1)))
    largest = 0.0
    for low in range(first, n, stretch):
        high = min(low + stretch, n)
        parts = [range(k, min(k + _PART, high)) for k in range(low, high, _PART)]

        def weigh(rows: range) -> list[RowWeights]:
            return [row_weights(covariance, _members(neighbors, i)) for i in rows]

        with threadpool_limits(1, user_api="blas"):
            weights = [row for part in in_threads(weigh, parts) for row in part]
        for i, row in enumerate(weights, start=low):
            earlier = f[_members(neighbors, i)[:-1]]
            f[i] = row.a @ earlier + np.sqrt(row.d) * normals[i]
        largest = max(largest, *(row.jitter for row in weights))
        if progress is not None:
            progress(Progress.step("drawing", high, n))
    return largest


def _members(neighbors: np.ndarray, i: int) -> np.ndarray:
    """M = (N(i), i)."""
    near = neighbors[i]
    return np.append(near[near >= 0], i).astype(np.int64)
