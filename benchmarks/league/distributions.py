"""What a model gives back for new rows, so that all are scored in one way.

Every prediction of a number is a `Distribution`. Those of widegp (`widegp.Predictive`) are such already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import nbinom, norm

# Levels of the quantiles that quantile losses are fitted at: ends of central 50, 80 and 95%, and the median.
FITTED_LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
# Targets are taken as known to this share of their standard deviation: no density exceeds its inverse.
RESOLUTION = 1e-3


class Distribution(Protocol):
    """P(y_i <= t) of q rows. For counts ``log_density`` is the log probability of the count."""

    @property
    def mean(self) -> np.ndarray: ...

    def quantile(self, levels: Sequence[float]) -> np.ndarray: ...

    def cdf(self, y: np.ndarray) -> np.ndarray: ...

    def log_density(self, y: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean_i, sd_i^2); mean (q,), sd (q,) or a number."""

    mean: np.ndarray
    sd: np.ndarray

    def quantile(self, levels: Sequence[float]) -> np.ndarray:
        sd = np.broadcast_to(self.sd, self.mean.shape)
        return self.mean[:, None] + sd[:, None] * ndtri(np.asarray(levels, float))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        return ndtr((y - self.mean) / self.sd)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        return norm.logpdf(y, self.mean, self.sd)


class FromQuantiles:
    """The distribution with given quantiles: y = g(z), z ~ N(0, 1), g piecewise linear.

    g maps the normal quantile z_k of level p_k to v_ik, so that Gaussian quantiles give back their Gaussian
    and the density phi(z) dz/dy is never zero inside. Beyond the outermost level p the tail is exponential,
    with the mean excess s of the Gaussian through the two outermost quantiles: log density
    log p - log s - |y - v| / s. Quantiles that cross are sorted.

    mean : (q,).    levels : (K,).    values : (q, K).    resolution : least dy/dz, in the units of y.
    """

    def __init__(
        self, mean: np.ndarray, levels: Sequence[float], values: np.ndarray, resolution: float
    ) -> None:
        self.mean = np.asarray(mean, float)
        self.levels = np.asarray(levels, float)
        self.z = ndtri(self.levels)
        v = np.sort(np.asarray(values, float), axis=1)
        for k in range(1, v.shape[1]):
            v[:, k] = np.maximum(v[:, k], v[:, k - 1] + resolution * (self.z[k] - self.z[k - 1]))
        self.v = v
        self.slope = np.diff(v, axis=1) / np.diff(self.z)
        ends = self.z[[0, -1]]
        excess = norm.pdf(ends) / np.array([self.levels[0], 1 - self.levels[-1]]) - np.abs(ends)
        self.tail = self.slope[:, [0, -1]] * excess

    def quantile(self, levels: Sequence[float]) -> np.ndarray:
        levels = np.asarray(levels, float)
        z, low, high = ndtri(levels), levels < self.levels[0], levels > self.levels[-1]
        piece = np.clip(np.searchsorted(self.z, z) - 1, 0, self.slope.shape[1] - 1)
        out = self.v[:, piece] + self.slope[:, piece] * (z - self.z[piece])
        out[:, low] = self.v[:, :1] + self.tail[:, :1] * np.log(levels[low] / self.levels[0])
        share = (1 - levels[high]) / (1 - self.levels[-1])
        out[:, high] = self.v[:, -1:] - self.tail[:, 1:] * np.log(share)
        return out

    def _place(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dy/dz and z at y_i; outside, those of the nearest piece."""
        piece = np.clip(np.sum(y[:, None] >= self.v, axis=1) - 1, 0, self.slope.shape[1] - 1)
        rows = np.arange(len(y))
        slope = self.slope[rows, piece]
        return slope, self.z[piece] + (y - self.v[rows, piece]) / slope

    def cdf(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, float)
        below, above = self.v[:, 0] - y, y - self.v[:, -1]
        left = self.levels[0] * np.exp(-np.maximum(below, 0) / self.tail[:, 0])
        right = 1 - (1 - self.levels[-1]) * np.exp(-np.maximum(above, 0) / self.tail[:, 1])
        return np.select([below > 0, above > 0], [left, right], ndtr(self._place(y)[1]))

    def log_density(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, float)
        below, above = self.v[:, 0] - y, y - self.v[:, -1]
        left = np.log(self.levels[0] / self.tail[:, 0]) - np.maximum(below, 0) / self.tail[:, 0]
        right = np.log((1 - self.levels[-1]) / self.tail[:, 1]) - np.maximum(above, 0) / self.tail[:, 1]
        slope, z = self._place(y)
        return np.select([below > 0, above > 0], [left, right], norm.logpdf(z) - np.log(slope))


@dataclass(frozen=True, eq=False)
class NegativeBinomial:
    """Counts of mean m_i and variance m_i + dispersion m_i^2; a dispersion near 0 is Poisson."""

    mean: np.ndarray
    dispersion: float

    @property
    def _law(self) -> object:
        size = 1 / max(self.dispersion, 1e-8)
        return nbinom(size, size / (size + self.mean))

    def quantile(self, levels: Sequence[float]) -> np.ndarray:
        return np.stack([self._law.ppf(level) for level in levels], axis=1)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        return self._law.cdf(y)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        return self._law.logpmf(y)


@dataclass(frozen=True, eq=False)
class Rounded:
    """A continuous distribution as one of counts: P(k) = F(k + 1/2) - F(k - 1/2), and F(1/2) for k = 0.

    A probability is at least 1e-9, so that a Gaussian that excludes a count is not infinitely wrong.
    """

    real: Distribution

    @property
    def mean(self) -> np.ndarray:
        return np.maximum(self.real.mean, RESOLUTION)

    def quantile(self, levels: Sequence[float]) -> np.ndarray:
        return np.maximum(np.round(self.real.quantile(levels)), 0)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        return self.real.cdf(np.floor(y) + 0.5)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        below = np.where(y > 0, self.real.cdf(y - 0.5), 0.0)
        return np.log(np.maximum(self.real.cdf(y + 0.5) - below, 1e-9))
