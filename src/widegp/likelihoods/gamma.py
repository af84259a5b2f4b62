"""Positive amounts with mean e^f and one relative scatter: y = e^f g, g ~ Gamma(shape k, mean 1).

log y = f + log g, so that the latent f and the amount's own scatter add up in the logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator
from scipy.special import digamma, gammainc, gammaln, ndtri, polygamma

from widegp.data.arrays import Floats
from widegp.likelihoods.base import (
    Likelihood,
    LikelihoodParameter,
    Predictive,
    PsiTerms,
    Terms,
    finite_rows,
    per_row,
    refuse,
)
from widegp.likelihoods.quadrature import expectation, log_expectation, monotone_root
from widegp.registry import saveable

MAX_LOG = 300.0  # e^300 is finite, and so are its square and its product with an amount
# Quantiles at more levels than these are interpolated between the cdf at so many points.
FEW_LEVELS, POINTS = 16, 129


@saveable
@dataclass(frozen=True)
class Gamma(Likelihood):
    """log p = k log k - log Gamma(k) - log y + k (log t - t),  t = y e^-f,  k = ``shape``;

        d1 = k (t - 1),   W = k t,   dW = -k t.

    The variance of y given f is e^2f / k. k -> infinity is a logarithm without noise.
    """

    shape: float = 2.0

    name = "gamma"
    support = "positive"
    mean_warp = "log"
    # The deviance of a Poisson mean asks for no whole numbers, and its trees add up in the logarithm.
    trees_loss = "poisson"
    parameters = (
        LikelihoodParameter(
            "shape", 0.05, 1e6, "shape", "Amounts of mean m have the standard deviation m / sqrt(x)."
        ),
    )

    def check(self, y: ArrayLike) -> Floats:
        y = finite_rows(y, self.name)
        refuse(y <= 0, y, "amounts are above 0; leave such rows out, or use another likelihood")
        return y

    def terms(self, y: Floats, f: Floats) -> Terms:
        W = self.shape * _ratio(y, f)
        # t - 1 by expm1 does not subtract 1 from nearly 1.
        d1 = self.shape * np.expm1(np.minimum(np.log(y) - f, MAX_LOG))
        return Terms.concave(self.log_pdf(y, f), d1, W, -W)

    def psi_terms(self, y: Floats, f: Floats) -> PsiTerms:
        """By k: log k - digamma(k) + 1 + u - t, t - 1 and t, u = log t."""
        k, u, t = self.shape, np.log(y) - f, _ratio(y, f)
        rest = np.expm1(np.minimum(u, MAX_LOG))
        log_p = np.log(k) - digamma(k) + (u - rest)
        return PsiTerms(*(part[:, None] for part in (log_p, rest, t)))

    def log_pdf(self, y: Floats, f: Floats) -> Floats:
        """log p(y | f), broadcast."""
        u = np.log(y) - f
        rest = u - np.expm1(np.minimum(u, MAX_LOG))
        log_p: Floats = _constant(self.shape) - np.log(y) + self.shape * rest
        return log_p

    def below(self, y: Floats, f: Floats) -> Floats:
        """P(Y <= y | f), broadcast."""
        share: Floats = gammainc(self.shape, self.shape * _ratio(y, f))
        return share

    def level(self, y: Floats, offset: ArrayLike = 0.0, weight: ArrayLike = 1.0) -> float:
        """log of the mean of y e^-offset."""
        rest = y * np.exp(-per_row(offset, y))
        return float(np.log(np.average(rest, weights=per_row(weight, y))))

    def start(self, y: Floats) -> Floats:
        """log y, where every row likes f best."""
        return np.log(y)

    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        amounts = np.exp(np.minimum(f, MAX_LOG)) * rng.gamma(self.shape, 1 / self.shape, f.shape)
        return np.maximum(amounts, np.finfo(float).tiny)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> GammaPredictive:
        return GammaPredictive.of(self, mean, variance)


class GammaPredictive(Predictive):
    """E y = e^(m + v/2),  Var y = (E y)^2 (e^v (1 + 1/k) - 1);  log y has mean m + digamma(k) - log k and
    variance v + trigamma(k).
    """

    likelihood: Gamma

    @property
    def mean(self) -> Floats:
        return np.exp(np.minimum(self.mean_f + 0.5 * self.var_f, MAX_LOG))

    @property
    def variance(self) -> Floats:
        own, spread = 1 / self.likelihood.shape, np.expm1(np.minimum(self.var_f, MAX_LOG))
        return self.mean**2 * (spread * (1 + own) + own)

    def log_density(self, y: ArrayLike) -> Floats:
        y = np.broadcast_to(np.asarray(y, float), self.mean_f.shape)
        return self._log_density(self.likelihood.check(y))

    def _log_density(self, y: Floats) -> Floats:
        def slopes(f: Floats, rows: slice) -> tuple[Floats, Floats]:
            terms = self.likelihood.terms(y[rows], f)
            return terms.d1, terms.W

        def log_p(f: Floats, rows: slice) -> Floats:
            return self.likelihood.log_pdf(y[rows][:, None], f)

        return log_expectation(log_p, slopes, self.mean_f, self.var_f)

    def cdf(self, y: ArrayLike) -> Floats:
        """int P(Y <= y | f) N(f) df: in f a step at log y, as wide as the logarithm of an amount scatters."""
        y = np.broadcast_to(np.asarray(y, float), self.mean_f.shape)
        amount = np.where(y > 0, y, 1.0)
        width = np.full(y.shape, 1 / np.sqrt(self.likelihood.shape + 1))

        def h(f: Floats, rows: slice) -> Floats:
            return self.likelihood.below(amount[rows][:, None], f)

        below = np.clip(expectation(h, self.mean_f, self.var_f, np.log(amount), width), 0.0, 1.0)
        return np.where(y > 0, below, 0.0)

    def quantile(self, level: ArrayLike) -> Floats:
        if np.size(level) <= FEW_LEVELS:
            return super().quantile(level)
        levels = np.asarray(level, float)
        x = np.log(super().quantile([levels.min(), levels.max()]))
        points = x[:, :1] + np.diff(x, axis=1) * np.linspace(0.0, 1.0, POINTS)
        scores = ndtri(np.stack([self.cdf(np.exp(column)) for column in points.T], axis=1))
        # Against normal scores the logarithm of y is nearly a straight line.
        found = [PchipInterpolator(z, own)(ndtri(levels)) for z, own in zip(scores, points, strict=True)]
        quantiles: Floats = np.exp(np.stack(found))
        return quantiles

    def _quantile(self, level: float) -> Floats:
        k = self.likelihood.shape
        sd = np.sqrt(self.var_f + polygamma(1, k))
        guess = self.mean_f + digamma(k) - np.log(k) + ndtri(level) * sd

        def at(x: Floats) -> tuple[Floats, Floats]:
            y = np.exp(np.minimum(x, MAX_LOG))
            return self.cdf(y), y * np.exp(self._log_density(y))

        return np.exp(monotone_root(at, level, guess, sd))


def _constant(k: float) -> float:
    """k log k - k - log Gamma(k), for large k by Stirling's series, which does not subtract k from k."""
    if k > 100.0:
        return 0.5 * math.log(k / (2 * math.pi)) - 1 / (12 * k) + 1 / (360 * k**3) - 1 / (1260 * k**5)
    return k * math.log(k) - k - float(gammaln(k))


def _ratio(y: Floats, f: Floats) -> Floats:
    """t = y e^-f."""
    return np.exp(np.minimum(np.log(y) - f, MAX_LOG))
