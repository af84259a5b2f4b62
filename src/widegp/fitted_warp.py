"""A warp at its estimates: from targets to z and back, and what a Gaussian of z says of the target."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from widegp.metrics import crps_of_map, standard_score
from widegp.registry import saveable
from widegp.threads import in_threads
from widegp.warps import Warp, make_warp, profile_start, standardised

# Where g is bounded, its inverse reaches infinity at a finite z and the mean of y does not exist;
# predictions there stop this many spans (max - min of the training target) beyond the training target.
REACH = 10.0
# In units of the sd of z over the training rows: a prediction wider than the first says less than they do,
# and one wider than the second nothing of targets beyond theirs.
UNSURE, LOST = 1.0, 2.0
# Rows whose moments a thread finds at a time.
PART_ROWS = 256


@saveable
@dataclass(frozen=True, eq=False)
class FittedWarp:
    """z = (g(y; psi) - mu) / s at fixed parameters, and what a Gaussian N(mean_z, sd_z^2) of z says of y.

    Fields
    ------
    name, psi, offset, scale : the family and its parameters, as in ``make_warp``.
    mu, s : mean and sd of g over the training rows.
    lower, upper : ends of ``inverse``, finite only where it has a pole (see ``REACH``).
    least, most : ends of the training targets; infinite in older files, and where no warp was wanted.

    y, mean_z, sd_z are (n,) or broadcast together. For box-cox and sqrt the z below the image of
    x = 0 belong to x = 0: y has a point mass there, and the density of y > 0 integrates to the rest.
    """

    name: str
    psi: np.ndarray = field(default_factory=lambda: np.empty(0))
    mu: float = 0.0
    s: float = 1.0
    offset: float = 0.0
    scale: float = 1.0
    lower: float = -math.inf
    upper: float = math.inf
    least: float = -math.inf
    most: float = math.inf

    @classmethod
    def fit(
        cls, y: ArrayLike, name: str, psi: ArrayLike | None = None, offset: float = 0.0, scale: float = 1.0
    ) -> Self:
        """mu, s and the ends of the inverse from training targets y (n,); psi defaults to the profile's."""
        y, warp = np.asarray(y, float), make_warp(name, offset, scale)
        psi = profile_start(y, name, offset, scale) if psi is None else np.array(psi, float).reshape(-1)
        _, mu, s = standardised(warp, y, psi)
        reach = REACH * (float(np.ptp(y)) or 1.0)
        # Sides without a pole stay unbounded: there the quantiles are finite by themselves.
        low, high = np.where(warp.poles(psi), (y.min() - reach, y.max() + reach), (-np.inf, np.inf))
        ends = map(float, (low, high, y.min(), y.max()))
        return cls(name, psi, mu, s, float(offset), float(scale), *ends)

    @property
    def warp(self) -> Warp:
        """The family, without parameters."""
        return make_warp(self.name, self.offset, self.scale)

    def forward(self, y: ArrayLike) -> np.ndarray:
        """z = (g(y) - mu) / s; below the support, the z of its end."""
        return (self.warp.forward(np.asarray(y, float), self.psi) - self.mu) / self.s

    def inverse(self, z: ArrayLike) -> np.ndarray:
        """y = g^-1(mu + s z), clipped to the range of g and to [lower, upper]; never NaN."""
        y = self.warp.inverse(self.mu + self.s * np.asarray(z, float), self.psi)
        return np.clip(y, self.lower, self.upper)

    def moments(self, mean_z: ArrayLike, sd_z: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """(E y, sd y), y = inverse(mean_z + sd_z t), t ~ N(0, 1), 64 Gauss-Hermite nodes; rough at clips.

        Where sd_z is above ``UNSURE``, far from all training rows, y counts as far as `ends_of_moments` only:
        the mean would be made of extrapolations and tails that no row has told of. sd is that of y up to
        there, or to its median if that lies beyond; without a warp it is what it is.
        """
        mean_z, sd_z = _location_scale(mean_z, sd_z)
        ends = self.ends_of_moments(sd_z)
        if self.name == "none":
            return np.clip(mean_z, *ends), sd_z.copy()
        nodes, weights = _hermite(64)
        # Around the median, which is within one sd of the mean, the two sums cannot cancel badly.
        median = self.inverse(mean_z)
        bounds = np.minimum(ends[0], median), np.maximum(ends[1], median)
        flat = [np.ravel(part) for part in (mean_z, sd_z, median, *bounds)]

        def sums(part: slice) -> np.ndarray:
            mean, sd, middle, low, high = (values[part] for values in flat)
            gap = np.clip(self.inverse(mean + sd * nodes[:, None]), low, high) - middle
            return np.stack([weights @ gap, weights @ (gap * gap)])

        parts = [slice(start, start + PART_ROWS) for start in range(0, median.size, PART_ROWS)]
        made = np.concatenate([np.empty((2, 0)), *in_threads(sums, parts)], axis=1)
        first, second = made.reshape(2, *median.shape)
        return np.clip(median + first, *ends), np.sqrt(np.maximum(second - first * first, 0.0))

    def ends_of_moments(self, sd_z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The range of y that mean and sd are made of, (n,) each: that of the training targets, with room
        that shrinks from ``REACH`` spans at sd_z = ``UNSURE`` to none at ``LOST``.
        """
        span = self.most - self.least
        shrunk = REACH * span * np.maximum(LOST - sd_z, 0.0) / (LOST - UNSURE) if span < np.inf else np.inf
        room = np.where(sd_z > UNSURE, shrunk, np.inf)
        return self.least - room, self.most + room

    def is_beyond(self, y: np.ndarray) -> np.ndarray:
        """Whether y lies outside the range of the training targets, (n,)."""
        return (y < self.least) | (y > self.most)

    def quantile(self, mean_z: ArrayLike, sd_z: ArrayLike, level: ArrayLike) -> np.ndarray:
        """inverse(mean_z + Phi^-1(level) sd_z), exact since g increases; (n,), or (n, q) for q levels."""
        mean_z, sd_z = _location_scale(mean_z, sd_z)
        level = np.asarray(level, float)
        if not np.all((level > 0) & (level < 1)):
            raise ValueError("Quantile levels must lie strictly between 0 and 1; pass for example 0.025.")
        if level.ndim:
            mean_z, sd_z = mean_z[..., None], sd_z[..., None]
        return self.inverse(mean_z + sd_z * ndtri(level))

    def cdf(self, y: ArrayLike, mean_z: ArrayLike, sd_z: ArrayLike) -> np.ndarray:
        """P(Y <= y) = Phi((forward(y) - mean_z) / sd_z) on the support: the PIT value of y."""
        mean_z, sd_z = _location_scale(mean_z, sd_z)
        return self.within_support(y, ndtr(standard_score(self.forward(y) - mean_z, sd_z)))

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The least and the largest y that the inverse reaches; mass of z beyond them lies there."""
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = self.inverse(np.array([-np.inf, np.inf]))
        return (-np.inf if np.isnan(low) else float(low)), (np.inf if np.isnan(high) else float(high))

    def within_support(self, y: ArrayLike, probability: np.ndarray) -> np.ndarray:
        """P(Y <= y) from that of z, whose mass beyond the least and the largest y lies at these."""
        y = np.asarray(y, float)
        return np.where(y < self.ends[0], 0.0, np.where(y >= self.ends[1], 1.0, probability))

    def log_density(self, y: ArrayLike, mean_z: ArrayLike, sd_z: ArrayLike) -> np.ndarray:
        """log N(forward(y); mean_z, sd_z^2) + log dz/dy, the log density of y; -inf outside the support."""
        mean_z, sd_z = _location_scale(mean_z, sd_z)
        if np.any(sd_z == 0):
            raise ValueError("sd_z is 0, which has no density; add the noise variance to the prediction.")
        g = self.warp.terms(np.asarray(y, float), self.psi)
        t = ((g.value - self.mu) / self.s - mean_z) / sd_z
        return g.log_jacobian - math.log(self.s) - 0.5 * t * t - np.log(sd_z) - 0.5 * math.log(2 * math.pi)

    def crps(self, y: ArrayLike, mean_z: ArrayLike, sd_z: ArrayLike) -> np.ndarray:
        """2 int_0^1 (y - q(p)) (p - 1{y < q(p)}) dp with q = ``quantile``, one score per row, (n,)."""
        mean_z, sd_z = _location_scale(mean_z, sd_z)
        kinks = [y, *(np.full(np.shape(y), end) for end in self.ends if np.isfinite(end))]
        with np.errstate(over="ignore"):
            cuts = [standard_score(self.forward(kink) - mean_z, sd_z) for kink in kinks]
        return crps_of_map(np.asarray(y, float), lambda t: self.inverse(mean_z + sd_z * t), *cuts)


@cache
def _hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights, of sum 1, of Gauss-Hermite quadrature for a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def _location_scale(mean: ArrayLike, sd: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """mean and sd as float arrays of one shape, sd >= 0, free of NaN."""
    mean, sd = np.broadcast_arrays(np.asarray(mean, float), np.asarray(sd, float))
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(sd)) and np.all(sd >= 0)):
        raise ValueError("mean_z must be finite and sd_z finite and >= 0; check the prediction of z.")
    return mean, sd
