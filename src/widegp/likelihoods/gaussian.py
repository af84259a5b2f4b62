"""p(y | f) = N(y; f, variance): one variance for all rows, or a known one for each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

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
from widegp.registry import saveable


@saveable
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """log p = -(y - f)^2 / (2 variance) - log(2 pi variance) / 2; W = 1 / variance."""

    variance: float = 1.0

    name = "gaussian"
    parameters = (LikelihoodParameter("variance", 1e-12, 1e12, "noise", "Variance of the target about f."),)

    def check(self, y: ArrayLike) -> Floats:
        return finite_rows(y, self.name)

    def terms(self, y: Floats, f: Floats) -> Terms:
        W = np.broadcast_to(1 / self.variance, np.shape(y)).astype(float)
        error = y - f
        log_p = -0.5 * (W * error**2 + math.log(2 * math.pi * self.variance))
        return Terms.concave(log_p, W * error, W, np.zeros_like(W))

    def psi_terms(self, y: Floats, f: Floats) -> PsiTerms:
        W, error = 1 / self.variance, y - f
        log_p = 0.5 * W * (W * error**2 - 1)
        return PsiTerms(*(a[:, None] for a in (log_p, -(W**2) * error, np.full(y.shape, -(W**2)))))

    def level(self, y: Floats, offset: ArrayLike = 0.0, weight: ArrayLike = 1.0) -> float:
        return float(np.average(y - np.asarray(offset, float), weights=per_row(weight, y)))

    def start(self, y: Floats) -> Floats:
        return y.copy()

    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        return f + math.sqrt(self.variance) * rng.standard_normal(f.shape)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> GaussianPredictive:
        return GaussianPredictive.of(self, mean, variance)


class GaussianPredictive(Predictive):
    """N(mean_f, var_f + variance)."""

    likelihood: Gaussian

    @property
    def mean(self) -> Floats:
        return self.mean_f

    @property
    def variance(self) -> Floats:
        return self.var_f + self.likelihood.variance

    def log_density(self, y: ArrayLike) -> Floats:
        error = np.asarray(y, np.float64) - self.mean
        return -0.5 * (error**2 / self.variance + np.log(2 * math.pi * self.variance))

    def cdf(self, y: ArrayLike) -> Floats:
        below: Floats = ndtr((np.asarray(y, np.float64) - self.mean) / np.sqrt(self.variance))
        return below

    def _quantile(self, level: float) -> Floats:
        return self.mean + np.sqrt(self.variance) * float(ndtri(level))
