"""What a fit under a likelihood that is not Gaussian leaves behind, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler

from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.data.arrays import take
from widegp.data.preprocessing import InputScaler
from widegp.inference.fit import Fitted
from widegp.inference.result import FitResult
from widegp.kernels.base import Kernel
from widegp.likelihoods import Likelihood, Predictive, log_exposure
from widegp.prediction import Moments, Predictor, TrainingRows, make_predictor


@dataclass(frozen=True, eq=False)
class FittedLatentGP:
    """y ~ p(y | level + f(x~) + log exposure; psi),  f ~ GP(0, K) given pseudo-targets of the training rows.

    inputs : x~ = (x - shift) / scale.    likelihood, level : at the estimates.
    kernel, params : K at the estimates; all estimates by name.
    posterior, rows : what predictions are made from, see `widegp.fitted.FittedGP`.
    result : how the fit ended.    backend : what computes the predictions.
    """

    inputs: InputScaler
    likelihood: Likelihood
    level: float
    kernel: Kernel
    params: dict[str, Any]
    posterior: Any
    rows: TrainingRows | None
    result: FitResult
    backend: str = "auto"

    @classmethod
    def of(cls, fitted: Fitted, builder: Builder, inputs: InputScaler, level: float, neighbors: int) -> Self:
        """The model at the estimates; where predictions condition on training rows, on ``neighbors``."""
        objective: Any = fitted.objective
        values, problem, order = fitted.values, objective.problem, fitted.layout.order
        mode = objective.mode(values)
        if mode.problem is not None:
            raise ArithmeticError(f"The fit has no prediction: {mode.problem}; fit with fewer anchors.")
        kernel = problem.kernel_at(values)
        likelihood = problem.response_at(values).likelihood
        observed, rows = Observed(mode.pseudo.z, 1.0, mode.pseudo.noise), None
        if order is not None:
            count, stored = max(neighbors, builder.dials.neighbors), observed.of(order)
            rows = TrainingRows(take(builder.X, order), stored.y, kernel, count, stored.spread)
        params = {k: float(v) if np.ndim(v) == 0 else v for k, v in values.items() if k != "psi"}
        params |= {p.name: float(v) for p, v in zip(likelihood.parameters, likelihood.psi, strict=True)}
        posterior = objective.likelihood.posterior(kernel, observed)
        result = _result(fitted, builder)
        return cls(inputs, likelihood, level, kernel, params, posterior, rows, result, builder.backend.name)

    @cached_property
    def predictor(self) -> Predictor:
        """Means and variances of f at scaled rows."""
        return make_predictor(self.posterior, self.rows, self.backend)

    def latent(self, X: np.ndarray, exposure: ArrayLike | None = None) -> Moments:
        """Mean and variance of level + f + log exposure at the rows of X (q, I), (q,) each."""
        mean, variance = self.predictor.predict(self.inputs.transform(X))
        return Moments(mean + self.level + log_exposure(exposure, len(X)), variance)

    def predictive(self, X: np.ndarray, exposure: ArrayLike | None = None) -> Predictive:
        """The distribution of y at the rows of X (q, I), f integrated out."""
        return self.likelihood.predictive(*self.latent(X, exposure))

    def __getstate__(self) -> dict[str, Any]:
        # What is computed from the fields is computed again by whoever reads the pickle.
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _result(fitted: Fitted, builder: Builder) -> FitResult:
    optimum = fitted.optimum
    return FitResult(
        reason=optimum.reason, objective=optimum.value, path=optimum.path, n_iter=optimum.n_iter,
        n_evaluations=optimum.n_evaluations, jitter=optimum.jitter,
        approximation=builder.dials.name, backend=builder.backend.name, problem=optimum.problem,
        rounds=fitted.rounds, seconds=dict(fitted.seconds),
    )  # fmt: skip


def merged_rows(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that repeat, target included, as one row with the sum of their weights; rows of weight 0 left out.

    The rows come sorted. So a weight of k gives the very fit that k equal rows give.
    """
    kept = weight > 0
    both, inverse = np.unique(np.column_stack([X[kept], y[kept]]), axis=0, return_inverse=True)
    sums = np.bincount(inverse.ravel(), weights=weight[kept], minlength=len(both))
    return np.ascontiguousarray(both[:, :-1]), both[:, -1].copy(), sums


def weighted_scaler(X: np.ndarray, weight: np.ndarray, kind: str | None) -> InputScaler:
    """The scaler of rows X (n, I) that count ``weight`` (n,) times."""
    if kind != "standard":
        return InputScaler.fit(X, kind)
    moments = StandardScaler().fit(X, sample_weight=weight)
    return InputScaler(moments.mean_, moments.scale_, kind)
