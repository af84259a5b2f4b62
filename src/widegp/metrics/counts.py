"""Scores of predicted counts: y (n,) in 0, 1, 2, ..., mean (n,) > 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy


def poisson_deviance(y: ArrayLike, mean: ArrayLike) -> float:
    """(2/n) sum_i [ y_i log(y_i / mean_i) - (y_i - mean_i) ]: 0 for perfect means."""
    y, mean = _checked(y, mean)
    return float(2 * np.mean(xlogy(y, y / mean) - y + mean))


def negative_binomial_deviance(y: ArrayLike, mean: ArrayLike, dispersion: float) -> float:
    """(2/n) sum_i [ y log(y / mean) - (y + r) log((y + r) / (mean + r)) ], r = 1 / dispersion."""
    y, mean = _checked(y, mean)
    if not dispersion > 0:
        raise ValueError(f"dispersion is {dispersion}; pass a positive number, or use poisson_deviance.")
    r = 1 / dispersion
    return float(2 * np.mean(xlogy(y, y / mean) - (y + r) * np.log1p((y - mean) / (mean + r))))


def crps_from_cdf(y: ArrayLike, cdf: ArrayLike) -> float:
    """(1/n) sum_i sum_k (F_i(k) - 1{y_i <= k})^2, F_i(k) = P(Y_i <= k) = cdf[i, k] for k = 0, ..., K - 1.

    F is taken as 1 from K on: pass columns up to where it is.
    """
    F = np.asarray(cdf, float)
    y = np.asarray(y, float)
    if F.ndim != 2 or y.shape != (len(F),) or len(F) == 0:
        raise ValueError(f"y has shape {y.shape} and cdf {F.shape}; pass one row of cdf per y.")
    if np.any(np.diff(F, axis=1) < -1e-9) or np.any((F < 0) | (F > 1)):
        raise ValueError("cdf must rise along each row, within [0, 1]; pass P(Y <= k) for k = 0, 1, ....")
    seen = y[:, None] <= np.arange(F.shape[1])
    beyond = np.maximum(y - F.shape[1], 0)
    return float(np.mean(((F - seen) ** 2).sum(axis=1) + beyond))


def _checked(y: ArrayLike, mean: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y, mean = np.asarray(y, float), np.asarray(mean, float)
    if y.ndim != 1 or y.shape != mean.shape or y.size == 0:
        raise ValueError(f"y has shape {y.shape} and mean {mean.shape}; pass one of each per row.")
    for name, values, good in (("y", y, y >= 0), ("mean", mean, mean > 0)):
        bad = np.flatnonzero(~(good & np.isfinite(values)))
        if bad.size:
            raise ValueError(f"{name} is {values[bad[0]]} in row {bad[0]}; counts are >= 0 and means > 0.")
    return y, mean
