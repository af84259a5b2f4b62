"""Heavy tails: y = f + scale t, t ~ Student with nu degrees of freedom.

The density is not log-concave in f: -d2 < 0 for rows further than sqrt(nu) scale from f. The curvature is
therefore the Fisher information, W = (nu + 1) / ((nu + 3) scale^2), which is positive and the same at every f
(Laplace-Fisher approximation, Hartmann and Vanhatalo 2019). The mode does not depend on W: a row far out
counts little because its slope d1 is small. Steps to the mode take -d2, and for rows far out a share of
d1 / (y - f), with which the step would be one of the EM algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp, ndtr, psi, stdtrit

from widegp.data.arrays import Floats
from widegp.likelihoods.base import (
    Likelihood,
    LikelihoodParameter,
    Predictive,
    PsiTerms,
    Terms,
    finite_rows,
    per_row,
)
from widegp.likelihoods.quadrature import chunks, monotone_root
from widegp.registry import saveable

LEAST_SHARE = 0.2  # of the EM weight, which a row keeps as curvature of a step however far out it is
NODES = 192  # of the trapezoidal rule over the log of a row's precision


@saveable
@dataclass(frozen=True)
class StudentT(Likelihood):
    """log p = log c - (nu + 1)/2 log(1 + e^2 / (nu scale^2)), e = y - f, D = nu scale^2 + e^2;

        c = Gamma((nu + 1)/2) / (Gamma(nu/2) sqrt(pi nu) scale)
        d1 = (nu + 1) e / D,   d2 = (nu + 1) (1/D - 2 nu scale^2 / D^2)

    nu stays above 2, so that y has a variance.
    """

    nu: float = 4.0
    scale: float = 1.0

    name = "student-t"
    parameters = (
        LikelihoodParameter(
            "nu", 2.05, 200.0, "degrees of freedom", "The fewer, the heavier the noise's tails."
        ),
        LikelihoodParameter(
            "scale", 1e-6, 1e6, "scale", "Of the noise, beside its heavy tails; target scaled."
        ),
    )

    def check(self, y: ArrayLike) -> Floats:
        return finite_rows(y, self.name)

    def terms(self, y: Floats, f: Floats) -> Terms:
        nu, s2, e = self.nu, self.scale**2, y - f
        D = nu * s2 + e**2
        W = np.full(e.shape, (nu + 1) / ((nu + 3) * s2))
        log_p = self._log_constant() - 0.5 * (nu + 1) * np.log1p(e**2 / (nu * s2))
        d2 = (nu + 1) / D * (1 - 2 * nu * s2 / D)
        d3 = (nu + 1) * 2 * e / D**2 * (1 - 4 * nu * s2 / D)
        step = (nu + 1) / D * np.maximum(2 * nu * s2 / D - 1, LEAST_SHARE)
        return Terms(log_p, (nu + 1) * e / D, d2, d3, W, np.zeros_like(W), step)

    def psi_terms(self, y: Floats, f: Floats) -> PsiTerms:
        nu, s, e = self.nu, self.scale, y - f
        D = nu * s**2 + e**2
        constant = 0.5 * (psi((nu + 1) / 2) - psi(nu / 2) - 1 / nu)
        by_nu = constant - 0.5 * np.log1p(e**2 / (nu * s**2)) + 0.5 * (nu + 1) * e**2 / (nu * D)
        by_scale = ((nu + 1) * e**2 / D - 1) / s
        d1_nu = e / D * (1 - (nu + 1) * s**2 / D)
        d1_scale = -2 * (nu + 1) * nu * s * e / D**2
        W_nu, W_scale = 2 / ((nu + 3) * s) ** 2, -2 * (nu + 1) / ((nu + 3) * s**3)
        W = np.broadcast_to([W_nu, W_scale], (*e.shape, 2))
        return PsiTerms(np.stack([by_nu, by_scale], -1), np.stack([d1_nu, d1_scale], -1), W.copy())

    def level(self, y: Floats, offset: ArrayLike = 0.0, weight: ArrayLike = 1.0) -> float:
        """The median, the mean of the two middle values where half the weight lies below the upper one."""
        rest, weight = y - np.asarray(offset, float), per_row(weight, y)
        order = np.argsort(rest)
        below = np.cumsum(weight[order]) / np.sum(weight)
        middle = np.searchsorted(below, [0.5 - 1e-12, 0.5 + 1e-12])
        return float(np.mean(rest[order][middle]))

    def start(self, y: Floats) -> Floats:
        return y.copy()

    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        return f + self.scale * rng.standard_t(self.nu, f.shape)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> StudentTPredictive:
        return StudentTPredictive.of(self, mean, variance)

    def _log_constant(self) -> float:
        half = 0.5 * self.nu
        ratio = float(gammaln(half + 0.5) - gammaln(half))
        return ratio - 0.5 * math.log(math.pi * self.nu) - math.log(self.scale)


class StudentTPredictive(Predictive):
    """int N(y; mean_f, var_f + scale^2 / u) Gamma(u; nu/2, nu/2) du: a t is a Gaussian of random precision u.

    By the trapezoidal rule in x = log u, where the integrand is smooth and dies out at both ends. Below
    u = nu scale^2 / (y - mean_f)^2, where a row in the tail has its largest part, it falls as u^(nu/2).
    """

    likelihood: StudentT

    @property
    def mean(self) -> Floats:
        return self.mean_f

    @property
    def variance(self) -> Floats:
        return self.var_f + self.likelihood.scale**2 * self.likelihood.nu / (self.likelihood.nu - 2)

    def log_density(self, y: ArrayLike) -> Floats:
        e = np.asarray(y, float) - self.mean_f

        def gaussian(e: Floats, variance: Floats) -> Floats:
            return -0.5 * (e**2 / variance + np.log(2 * math.pi * variance))

        return self._mixed(gaussian, e)

    def cdf(self, y: ArrayLike) -> Floats:
        e = np.asarray(y, float) - self.mean_f
        with np.errstate(divide="ignore"):
            tail = np.exp(self._mixed(lambda e, v: np.log(ndtr(-np.abs(e) / np.sqrt(v))), e))
        return np.where(e < 0, tail, 1 - tail)

    def _quantile(self, level: float) -> Floats:
        # The lower half and its mirror image: near level 1 digits of the cdf would be lost.
        tail = min(level, 1 - level)
        t = -stdtrit(self.likelihood.nu, tail) if tail < 0.5 else 0.0
        width = np.sqrt(self.variance) + self.likelihood.scale * t

        def at(e: Floats) -> tuple[Floats, Floats]:
            return self.cdf(self.mean_f + e), np.exp(self.log_density(self.mean_f + e))

        e = monotone_root(at, tail, -0.5 * width, 0.5 * width) if tail < 0.5 else np.zeros_like(width)
        return self.mean_f + (e if level < 0.5 else -e)

    def _mixed(self, log_h, e: Floats) -> Floats:  # type: ignore[no-untyped-def]
        """log int exp(log_h(e, var_f + scale^2/u)) Gamma(u; nu/2, nu/2) du, (n,)."""
        half, s2 = 0.5 * self.likelihood.nu, self.likelihood.scale**2
        out = np.empty(e.shape)
        for rows in chunks(e.size):
            # Beyond these ends the integrand is below rounding.
            tail = np.log1p(e[rows] ** 2 / (2 * half * (s2 + self.var_f[rows])))
            low, high = -tail - 42.0 / half, math.log(1 + 45.0 / half) + 1.0
            step = (high - low) / (NODES - 1)
            x = low[:, None] + step[:, None] * np.arange(NODES)
            log_gamma = half * (x + math.log(half)) - half * np.exp(x) - gammaln(half)
            variance = self.var_f[rows][:, None] + s2 * np.exp(-x)
            out[rows] = logsumexp(log_gamma + log_h(e[rows][:, None], variance), axis=1) + np.log(step)
        return out
