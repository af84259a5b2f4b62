"""A few points with the mean and the covariance of many weighted draws.

    m = sum_s w_s z_s,   C = sum_s w_s (z_s - m)(z_s - m)'           of all draws
    z'_j = m + C^1/2 S^-1/2 (u_j - u),   u_j = C^-1/2 (z_j - m)      of the draws j = 1..k that are kept

u and S are mean and covariance of the u_j. Means of k draws are off by about 1/sqrt k standard deviations;
those of the z' are exact, and so are the covariances, while each moves as little as that allows.
"""

from __future__ import annotations

import numpy as np

# The least variance of kept draws in a direction, over that of all, which is still stretched to it.
FLATTEST = 0.05
# Eigenvalues below this share of the largest are rounding.
ROUNDING = 1e-14


def thinned(z: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """z' (count, p), each with the share 1 / count, of draws z (S, p) with their shares (S,)."""
    mean = weights @ z
    root, inverse = _roots((z - mean).T @ ((z - mean) * weights[:, None]))
    u = (z[_spread_out(z - mean, weights, count)] - mean) @ inverse
    u -= u.mean(0)
    values, vectors = np.linalg.eigh(u.T @ u / count)
    stretched = u @ (vectors / np.sqrt(np.maximum(values, FLATTEST))) @ vectors.T
    return np.asarray(mean + stretched @ root)


def _spread_out(z: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Which draws (count,): where their shares, cumulated along the first principal component of the
    correlations, reach (j + 1/2) / count. Its quantiles are then those of all draws, tails included.
    """
    sds = np.sqrt(np.maximum(weights @ z**2, 1e-300))
    _, vectors = np.linalg.eigh((z / sds).T @ (z / sds * weights[:, None]))
    order = np.argsort(z @ (vectors[:, -1] / sds))
    reached = np.searchsorted(np.cumsum(weights[order]), (np.arange(count) + 0.5) / count)
    return np.asarray(order[np.minimum(reached, len(order) - 1)])


def _roots(C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """C^1/2 and C^-1/2 (p, p), both symmetric."""
    values, vectors = np.linalg.eigh(C)
    sds = np.sqrt(np.maximum(values, ROUNDING * max(float(values[-1]), 1e-300)))
    return (vectors * sds) @ vectors.T, (vectors / sds) @ vectors.T
