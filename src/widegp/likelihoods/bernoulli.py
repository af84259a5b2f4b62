"""Two classes: P(y = 1 | f) = 1 / (1 + e^-f) (logit) or Phi(f) (probit)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, log_ndtr, logit, ndtr, ndtri

from widegp.data.arrays import Floats
from widegp.likelihoods.base import Likelihood, Predictive, PsiTerms, Terms, finite_rows, per_row, refuse
from widegp.likelihoods.quadrature import log_expectation
from widegp.registry import saveable

FRACTION_FROM = 5.0  # from here on the continued fraction of the Mills ratio has converged
FRACTION_TERMS = 60


@saveable
@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """log p = log s(f) for y = 1 and log s(-f) for y = 0, with s the logistic function or Phi."""

    link: str = "logit"

    support = "classes"
    mean_warp = None
    trees_loss = "log_loss"

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.link

    def __post_init__(self) -> None:
        if self.link not in ("logit", "probit"):
            raise ValueError(f"The link is {self.link!r}; use 'logit' or 'probit'.")

    def check(self, y: ArrayLike) -> Floats:
        y = finite_rows(y, self.name)
        refuse((y != 0) & (y != 1), y, "a likelihood of two classes needs 0 and 1; number the classes so")
        return y

    def terms(self, y: Floats, f: Floats) -> Terms:
        sign = 2 * y - 1
        t = sign * f
        if self.link == "logit":
            rest = expit(-t)
            W = expit(t) * rest
            return Terms.concave(log_expit(t), sign * rest, W, -W * np.tanh(0.5 * f))
        m = mills(t)
        return Terms.concave(log_ndtr(t), sign * m.ratio, m.W, sign * m.dW)

    def psi_terms(self, y: Floats, f: Floats) -> PsiTerms:
        return PsiTerms.none(len(y))

    def level(self, y: Floats, offset: ArrayLike = 0.0, weight: ArrayLike = 1.0) -> float:
        """The link of the share of ones, half a row of each class added so that it is finite."""
        weight = per_row(weight, y)
        share = (weight @ y + 0.5) / (np.sum(weight) + 1)
        return float((logit if self.link == "logit" else ndtri)(share) - np.mean(np.asarray(offset, float)))

    def start(self, y: Floats) -> Floats:
        return np.zeros(y.shape)

    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        probability: Floats = (expit if self.link == "logit" else ndtr)(f)
        return (rng.random(f.shape) < probability).astype(np.float64)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> BernoulliPredictive:
        return BernoulliPredictive.of(self, mean, variance)


class Mills(NamedTuple):
    """phi/Phi, W = -(log Phi)'' and dW/dt, at t."""

    ratio: Floats
    W: Floats
    dW: Floats


def mills(t: Floats) -> Mills:
    """r = phi(t)/Phi(t), W = r (r + t), dW/dt = -W (r + t) + r (1 - W), to full precision in the lower tail.

    For t = -x, x large, r + t and 1 - W lose their digits. There r = x + q with the continued fraction
    q = 1/(x + u), u = 2/(x + v), v = 3/(x + ...), and W = r q, dW/dt = r q u q (u - v) lose nothing.
    """
    t = np.asarray(t, float)
    r = np.exp(-0.5 * np.minimum(t * t, 1400.0) - 0.5 * np.log(2 * np.pi) - log_ndtr(np.maximum(t, -37.0)))
    W = r * (r + t)
    dW = -W * (r + t) + r * (1 - W)
    low = t < -FRACTION_FROM
    if np.any(low):
        x = -t[low]
        v = np.zeros_like(x)
        for k in range(FRACTION_TERMS, 2, -1):
            v = k / (x + v)
        u = 2 / (x + v)
        q = 1 / (x + u)
        r[low], W[low], dW[low] = x + q, (x + q) * q, (x + q) * q * u * q * (u - v)
    return Mills(r, W, dW)


class BernoulliPredictive(Predictive):
    """P(y = 1) = int s(f) N(f; mean_f, var_f) df: Phi(mean_f / sqrt(1 + var_f)) for probit."""

    likelihood: Bernoulli

    @property
    def probability(self) -> Floats:
        """P(y = 1), (n,)."""
        return np.exp(self.log_density(np.ones_like(self.mean_f)))

    @property
    def mean(self) -> Floats:
        return self.probability

    @property
    def variance(self) -> Floats:
        return self.probability * np.exp(self.log_density(np.zeros_like(self.mean_f)))

    def log_density(self, y: ArrayLike) -> Floats:
        sign = 2 * np.asarray(y, float) - 1
        m = sign * self.mean_f
        if self.likelihood.link == "probit":
            log_p: Floats = log_ndtr(m / np.sqrt(1 + self.var_f))
            return log_p

        def slopes(f: Floats, rows: slice) -> tuple[Floats, Floats]:
            return expit(-f), expit(f) * expit(-f)

        return log_expectation(lambda f, rows: log_expit(f), slopes, m, self.var_f)

    def cdf(self, y: ArrayLike) -> Floats:
        y = np.broadcast_to(np.asarray(y, float), self.mean_f.shape)
        zero = np.exp(self.log_density(np.zeros_like(self.mean_f)))
        return np.where(y < 0, 0.0, np.where(y < 1, zero, 1.0))

    def _quantile(self, level: float) -> Floats:
        return (np.exp(self.log_density(np.zeros_like(self.mean_f))) < level).astype(float)
