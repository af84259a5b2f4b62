"""The distribution of new classes, counts and heavy-tailed targets, with the latent f integrated out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from widegp.conformal import ConformalCalibration
from widegp.data.preprocessing import TargetScaler
from widegp.fitted_warp import FittedWarp
from widegp.likelihoods import Likelihood
from widegp.likelihoods import Predictive as OfLikelihood
from widegp.predictive import Predictive, WarpedGaussian, generator

# Counts at which the cdf is computed for a CRPS; between them it is interpolated.
CRPS_POINTS = 257
CRPS_TAIL = 1e-7
# Levels of the quantiles that a CRPS of real targets is made of.
CRPS_LEVELS = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True, eq=False)
class ResponsePredictive(Predictive):
    """y = mean + sd y~,  p(y~) = int p(y~ | f) N(f; mean_f, var_f) df.

    mean_f, var_f : (q,), of level + f + log exposure.    target : scaler of y; of counts and classes, none.
    """

    likelihood: Likelihood
    mean_f: np.ndarray
    var_f: np.ndarray
    target: TargetScaler = TargetScaler(0.0, 1.0)  # noqa: RUF009 (frozen)
    calibration: ConformalCalibration | None = None

    @cached_property
    def _inner(self) -> OfLikelihood:
        return self.likelihood.predictive(self.mean_f, self.var_f)

    @property
    def mean(self) -> np.ndarray:
        return self.target.inverse_mean(self._inner.mean)

    @property
    def sd(self) -> np.ndarray:
        return self.target.inverse_sd(np.sqrt(self._inner.variance))

    @property
    def latent(self) -> Predictive:
        """The distribution of g^-1(f), of e^f for counts, of f for real targets, in the units of y."""
        if self.likelihood.mean_warp is None:
            raise ValueError("The latent of a class has no units of y; use decision_function.")
        sd = np.sqrt(self.var_f)
        warp = FittedWarp(self.likelihood.mean_warp)
        return WarpedGaussian(self.mean_f, sd, sd, self.target, warp)

    def quantile(self, levels: ArrayLike) -> np.ndarray:
        return self.target.inverse_mean(self._inner.quantile(np.atleast_1d(np.asarray(levels, float))))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        y = self.target.transform(y)
        if y.ndim < 2:
            return self._inner.cdf(np.broadcast_to(y, self.mean_f.shape))
        return np.stack([self._inner.cdf(column) for column in y.T], axis=1)

    def pit(self, y: ArrayLike, random_state: Any = 0) -> np.ndarray:
        upper = self.cdf(y)
        if not self.likelihood.discrete:
            return upper
        lower = self.cdf(np.asarray(y, float) - 1)
        return lower + generator(random_state).random(len(upper)) * (upper - lower)

    def log_density(self, y: ArrayLike) -> np.ndarray:
        y = np.broadcast_to(self.target.transform(y), self.mean_f.shape)
        return self._inner.log_density(y) - np.log(self.target.sd)

    def crps(self, y: ArrayLike) -> np.ndarray:
        """sum_k (F_i(k) - 1{y_i <= k})^2 for counts; mean pinball loss of 400 quantiles for others."""
        y = np.broadcast_to(np.asarray(y, float), self.mean_f.shape)
        if self.likelihood.discrete:
            return self._count_crps(y)
        gap = y[:, None] - self.quantile(CRPS_LEVELS)
        return 2 * np.mean(gap * (CRPS_LEVELS - (gap < 0)), axis=1)

    def _count_crps(self, y: np.ndarray) -> np.ndarray:
        """Exact where fewer than CRPS_POINTS counts hold all but CRPS_TAIL of a row."""
        ends = self._inner.quantile([CRPS_TAIL, 1 - CRPS_TAIL])
        steps = np.linspace(0.0, 1.0, CRPS_POINTS)
        points = np.floor(ends[:, :1] + np.maximum(np.diff(ends, axis=1), CRPS_POINTS - 1.0) * steps)
        F = np.stack([self._inner.cdf(column) for column in points.T], axis=1)
        out = np.empty(len(y))
        for i, value in enumerate(y):
            k = np.arange(points[i, 0], points[i, -1] + 1)
            missed = max(points[i, 0] - value, 0.0) + max(value - points[i, -1] - 1, 0.0)
            out[i] = np.sum((np.interp(k, points[i], F[i]) - (value <= k)) ** 2) + missed
        return out

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        return self.target.inverse_mean(self._inner.sample(generator(random_state), n_samples).T)

    def __len__(self) -> int:
        return len(self.mean_f)

    def __getitem__(self, rows: Any) -> Self:
        m, v = (np.atleast_1d(part[rows]) for part in (self.mean_f, self.var_f))
        return type(self)(self.likelihood, m, v, self.target, self.calibration)
