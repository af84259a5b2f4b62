"""Counts with mean mu = e^f: Poisson, and negative binomial with variance mu + dispersion mu^2."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln, expit, gammaincc, gammaln, log_expit, ndtri, psi

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
from widegp.likelihoods.quadrature import expectation, integer_quantile, log_expectation
from widegp.metrics.counts import negative_binomial_deviance, poisson_deviance
from widegp.registry import saveable

MAX_LOG = 300.0  # e^300 is finite, and so are its square and its product with a count


class Counts(Likelihood):
    """y in 0, 1, 2, ... with mean e^f."""

    support = "counts"
    mean_warp = "log"
    trees_loss = "poisson"

    def deviances(self, y: Floats, mean: Floats) -> dict[str, float]:
        told = {"poisson_deviance": poisson_deviance(y, mean)}
        if self.excess > 0:
            told["negative_binomial_deviance"] = negative_binomial_deviance(y, mean, self.excess)
        return told

    def check(self, y: ArrayLike) -> Floats:
        y = finite_rows(y, self.name)
        refuse((y < 0) | (y != np.floor(y)), y, "counts are whole numbers from 0 on; use another likelihood")
        return y

    def level(self, y: Floats, offset: ArrayLike = 0.0, weight: ArrayLike = 1.0) -> float:
        """log(sum y / sum e^offset), half a count added so that it is finite."""
        weight = per_row(weight, y)
        return float(np.log((weight @ y + 0.5) / (weight @ per_row(np.exp(offset), y))))

    def start(self, y: Floats) -> Floats:
        """log(y + 1/2): the first Newton step is then a regression of the logarithm."""
        return np.log(y + 0.5)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> CountPredictive:
        return CountPredictive.of(self, mean, variance)

    @property
    @abstractmethod
    def excess(self) -> float:
        """a in Var(y | f) = mu + a mu^2."""

    @abstractmethod
    def log_pmf(self, y: Floats, f: Floats) -> Floats:
        """log p(y | f), broadcast."""

    @abstractmethod
    def below(self, y: Floats, f: Floats) -> Floats:
        """P(Y <= y | f) for whole y >= 0, broadcast."""


@saveable
@dataclass(frozen=True)
class Poisson(Counts):
    """log p = y f - e^f - log y!;  d1 = y - e^f,  W = e^f."""

    name = "poisson"
    excess = 0.0

    def terms(self, y: Floats, f: Floats) -> Terms:
        mu = _mean(f)
        return Terms.concave(self.log_pmf(y, f), y - mu, mu, mu)

    def psi_terms(self, y: Floats, f: Floats) -> PsiTerms:
        return PsiTerms.none(len(y))

    def log_pmf(self, y: Floats, f: Floats) -> Floats:
        log_factorial: Floats = gammaln(y + 1)
        return y * f - _mean(f) - log_factorial

    def below(self, y: Floats, f: Floats) -> Floats:
        share: Floats = gammaincc(y + 1, _mean(f))
        return share

    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        return rng.poisson(np.minimum(_mean(f), 1e18)).astype(float)


@saveable
@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """log p = log C(y + r - 1, y) + y log s + r log(1 - s), s = 1 / (1 + e^-(f - log r)), r = 1 / dispersion;

        d1 = y - (y + r) s,   W = (y + r) s (1 - s),   dW = W (1 - 2 s).

    dispersion -> 0 is Poisson.
    """

    dispersion: float = 0.5

    name = "negative-binomial"
    parameters = (
        LikelihoodParameter(
            "dispersion", 1e-4, 1e2, "dispersion", "Counts of mean m have variance m + x m²."
        ),
    )

    @property
    def excess(self) -> float:
        return self.dispersion

    @property
    def size(self) -> float:
        """r = 1 / dispersion."""
        return 1 / self.dispersion

    def terms(self, y: Floats, f: Floats) -> Terms:
        r, t = self.size, f - np.log(self.size)
        s, rest = expit(t), expit(-t)
        W = (y + r) * s * rest
        # y (1 - s) - r s does not subtract y from nearly y.
        return Terms.concave(self.log_pmf(y, f), y * rest - r * s, W, W * (rest - s))

    def psi_terms(self, y: Floats, f: Floats) -> PsiTerms:
        """Derivatives by r, times dr/d dispersion = -r^2; f - log r moves by -1/r."""
        r, t = self.size, f - np.log(self.size)
        s, rest = expit(t), expit(-t)
        d1, W = y * rest - r * s, (y + r) * s * rest
        by_r = (
            psi(y + r) - psi(r) + log_expit(-t) - d1 / r,
            W / r - s,
            s * rest - W * (rest - s) / r,
        )
        return PsiTerms(*((-(r**2) * part)[:, None] for part in by_r))

    def log_pmf(self, y: Floats, f: Floats) -> Floats:
        r, t = self.size, f - np.log(self.size)
        log_p: Floats = -betaln(r, y + 1) - np.log(y + r) + y * log_expit(t) + r * log_expit(-t)
        return log_p

    def below(self, y: Floats, f: Floats) -> Floats:
        share: Floats = betainc(self.size, y + 1, expit(np.log(self.size) - f))
        return share

    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        rate = _mean(f) * rng.gamma(self.size, self.dispersion, f.shape)
        return rng.poisson(np.minimum(rate, 1e18)).astype(float)


class CountPredictive(Predictive):
    """E y = e^(m + v/2),  Var y = E y + E e^2f (1 + a) - (E y)^2,  E e^2f = e^(2m + 2v), a the dispersion."""

    likelihood: Counts

    @property
    def mean(self) -> Floats:
        return _mean(self.mean_f + 0.5 * self.var_f)

    @property
    def variance(self) -> Floats:
        spread = np.expm1(np.minimum(self.var_f, MAX_LOG)) * (1 + self.likelihood.excess)
        return self.mean + self.mean**2 * (spread + self.likelihood.excess)

    def log_density(self, y: ArrayLike) -> Floats:
        y = self._whole(y)

        def slopes(f: Floats, rows: slice) -> tuple[Floats, Floats]:
            terms = self.likelihood.terms(y[rows], f)
            return terms.d1, terms.W

        def log_p(f: Floats, rows: slice) -> Floats:
            return self.likelihood.log_pmf(y[rows][:, None], f)

        return log_expectation(log_p, slopes, self.mean_f, self.var_f)

    def cdf(self, y: ArrayLike) -> Floats:
        """int P(Y <= y | f) N(f) df: in f a step at log y, as wide as the count is uncertain."""
        y = np.broadcast_to(np.floor(np.asarray(y, float)), self.mean_f.shape)
        whole = np.maximum(y, 0.0)
        centre, width = np.log(whole + 0.5), np.sqrt(1 / (whole + 0.5) + self.likelihood.excess)

        def h(f: Floats, rows: slice) -> Floats:
            return self.likelihood.below(whole[rows][:, None], f)

        below = np.clip(expectation(h, self.mean_f, self.var_f, centre, width), 0.0, 1.0)
        return np.where(y < 0, 0.0, below)

    def _quantile(self, level: float) -> Floats:
        z = ndtri(level)
        by_count = self.likelihood.excess + np.exp(-np.maximum(self.mean_f, -30.0))
        log_sd = np.sqrt(self.var_f + np.log1p(by_count))
        guess = _mean(np.minimum(self.mean_f + z * log_sd, 36.0))

        def cdf(k: Floats, rows: npt.NDArray[np.intp]) -> Floats:
            return replace(self, mean_f=self.mean_f[rows], var_f=self.var_f[rows]).cdf(k)

        return integer_quantile(cdf, level, guess)

    def _whole(self, y: ArrayLike) -> Floats:
        return self.likelihood.check(np.broadcast_to(np.asarray(y, float), self.mean_f.shape))


def _mean(f: Floats) -> Floats:
    return np.exp(np.minimum(f, MAX_LOG))
