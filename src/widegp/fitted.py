"""What a fit leaves behind: it is saved, it predicts, and reports and explanations look at nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from widegp.compute.backend import serving
from widegp.conditioning import TrainingRows
from widegp.conformal import ConformalCalibration, infinite_words, rows_needed
from widegp.data.input_maps import ChainedMaps, InputMap, LinearMap, each_transformed
from widegp.data.preprocessing import TargetScaler
from widegp.engines.base import Engine
from widegp.fitted_warp import FittedWarp
from widegp.inference.result import FitResult
from widegp.inference.theta import ParameterPosterior
from widegp.kernels.base import Kernel
from widegp.likelihoods import Likelihood, log_exposure, refuse_exposure
from widegp.noise_model import NoiseModel
from widegp.prediction import Moments, Predictor, make_predictor, pooled, pooled_jointly
from widegp.predictive import Mixture, Predictive, Tailed, WarpedGaussian, generator
from widegp.registry import saveable
from widegp.response_predictive import ResponsePredictive
from widegp.tails import Tails

# The level that `predict_interval` and reports take where none is asked for.
USUAL_LEVEL = 0.95


@saveable
@dataclass(frozen=True, eq=False)
class Member:
    """One of several models whose predictions are averaged: what differs from one to the other.

    weight : its share, or what its function f is multiplied by.
    kernel_name : of its kernel, where it may differ from the model's, else empty.
    The rest are fields of `FittedGP`, whose kernel is the posterior's.
    """

    weight: float
    inputs: InputMap
    params: dict[str, Any]
    warp: FittedWarp
    posterior: Any
    rows: TrainingRows | None
    noise_model: NoiseModel | None = None
    tails: Tails | None = None
    kernel_name: str = ""


@dataclass(frozen=True, eq=False)
class FittedGP:
    """y = mean + sd g^-1(f(x~) + eps),  f ~ GP(0, K) given the training rows, eps ~ N(0, sigma_eps2).

    Fields
    ------
    inputs, target, warp : x to x~, scaled and mapped, and y to z = g((y - mean) / sd), which is Gaussian.
    kernel, params : K at the estimates; all estimates by name, on the scale of x~ and z.
    approximation : its name.    posterior : what it keeps of the training rows.
    rows : the training rows, where predictions condition on neighbours, else None.
    result : how the fit ended.    seed : what anchors, order and starts were drawn from.
    n_features : I.    feature_names : of the training frame, else None.
    input_importance : (I,) shares of sigma_u2, with one per input, else None.
    calibration : of the intervals on rows that were held out, else None.
    noise_model : of noise that varies with x~, else None.
    tails : the law of (z - mean) / sd, where it is not the normal one, else None.
    backend : what computes the predictions.
    likelihood, level : of y given level + f(x~) + log exposure, where it is not Gaussian, else None.
    theta : the posterior of the parameters, where it was made, else None.
    noise_start : where sigma_eps2 began, if its prior has its mode there, else None.
    members : models over which predictions are averaged, at points of that posterior or of several metrics
        and kernels; none where there is but one. Of a ``likelihood`` it is their functions f that
        are added up, by weights whose sum need not be 1.

    X is (q, I) everywhere, numbers in the units of the table; the estimator checks what users pass.
    """

    inputs: InputMap
    target: TargetScaler
    warp: FittedWarp
    kernel: Kernel
    params: dict[str, Any]
    approximation: str
    posterior: Any
    rows: TrainingRows | None
    result: FitResult
    seed: int
    n_features: int
    feature_names: tuple[str, ...] | None = None
    input_importance: np.ndarray | None = None
    calibration: ConformalCalibration | None = None
    noise_model: NoiseModel | None = None
    backend: str = "auto"
    likelihood: Likelihood | None = None
    level: float | None = None
    tails: Tails | None = None
    theta: ParameterPosterior | None = None
    members: tuple[Member, ...] = ()
    noise_start: float | None = None

    @cached_property
    def models(self) -> tuple[FittedGP, ...]:
        """The models over which predictions are averaged, each at fixed parameters; itself if it has none.

        They share engine and settings with this one, and are not part of a pickle or a file.
        """
        if not self.members:
            return (self,)
        engine, share, made = self.predictor.engine, self.predictor.share / len(self.members), []
        for member in self.members:
            apart = ("weight", "kernel_name")
            own = {f.name: getattr(member, f.name) for f in fields(member) if f.name not in apart}
            kernel = member.posterior.kernel
            alone = {"kernel": kernel, "backend": serving(kernel, self.backend), "members": ()}
            made.append(replace(self, **own, **alone, calibration=None).predicting_on(engine, share))
        return tuple(made)

    @property
    def weights(self) -> np.ndarray:
        """Shares of the `models`, which sum to 1; of a ``likelihood`` what their functions are multiplied by,
        which need not.
        """
        return np.array([member.weight for member in self.members] or [1.0])

    @cached_property
    def predictor(self) -> Predictor:
        """Means and variances of z at scaled rows; made once, and not part of a pickle or a file."""
        return make_predictor(self.posterior, self.rows, self.backend)

    @cached_property
    def anchors(self) -> np.ndarray:
        """(r, I), in the units of X: the anchors, or the rows of a dense posterior; maybe none."""
        anchors = getattr(self.posterior, "Z", None)
        anchors = self.posterior.X if anchors is None else anchors
        return self.inputs.inverse(anchors) if len(anchors) else anchors

    @property
    def rows_held(self) -> np.ndarray:
        """Rows that the model holds anyway, in the units of X: anchors, else training rows."""
        if len(self.anchors) or self.rows is None:
            return np.asarray(self.anchors)
        return self.inputs.inverse(self.rows.X)

    @property
    def converged(self) -> bool:
        return self.result.converged

    @property
    def n_iter(self) -> int:
        return self.result.n_iter

    @property
    def log_posterior(self) -> float:
        """Log posterior density at the estimates, up to a constant."""
        return -self.result.objective

    def latent(self, X: np.ndarray, exposure: ArrayLike | None = None) -> Moments:
        """Mean and variance of level + f + log exposure at the rows of X, (q,) each; f is the sum
        of those of several models by their weights.
        """
        each = [model.predictor.predict(rows) for model, rows in self._mapped(X)]
        mean, variance = pooled(each, self.weights)
        return Moments(mean + (self.level or 0.0) + log_exposure(exposure, len(X)), variance)

    def predictive(self, X: np.ndarray, exposure: ArrayLike | None = None) -> Predictive:
        """The distribution of y at the rows of X; ``exposure`` (q,) is that of counts."""
        if self.likelihood is not None:
            mean, variance = self.latent(X, exposure)
            return ResponsePredictive(self.likelihood, mean, variance, self.target, self.calibration)
        if exposure is not None:
            refuse_exposure("gaussian")
        if self.members:
            parts = [model._gaussian(rows) for model, rows in self._mapped(X)]
            return Mixture(parts, self.weights, self.calibration)
        return self._gaussian(self.inputs.transform(X))

    def _mapped(self, X: np.ndarray) -> list[tuple[FittedGP, np.ndarray]]:
        """The `models`, each with the rows x~ that X are to it."""
        rows = each_transformed([model.inputs for model in self.models], X)
        return list(zip(self.models, rows, strict=True))

    def _gaussian(self, rows: np.ndarray) -> Predictive:
        """The distribution of y at rows x~ (q, I~) by this model alone, where z is Gaussian but for tails."""
        mean, latent = self.predictor.predict(rows)
        sd = np.sqrt(latent + self.predictor.noise * self.spread(rows))
        gaussian = WarpedGaussian(mean, sd, np.sqrt(latent), self.target, self.warp)
        if self.tails is not None:
            return Tailed(gaussian, self.tails, self.calibration)
        return replace(gaussian, calibration=self.calibration)

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Variance of the noise at rows x~ (q, I~) in units of sigma_eps2, (q,)."""
        return np.ones(len(rows)) if self.noise_model is None else self.noise_model.spread(rows)

    @property
    def metric(self) -> np.ndarray | None:
        """A (I, q) of the linear map in front of the kernel, x~ = (scaled x) A; None where there is none."""
        last = self.inputs.parts[-1] if isinstance(self.inputs, ChainedMaps) else None
        return last.matrix if isinstance(last, LinearMap) else None

    def mean(self, X: np.ndarray) -> np.ndarray:
        """The mean of y at the rows of X, (q,); without a warp no variance is needed for it."""
        if self.likelihood is not None:
            return self.predictive(X).mean
        if self.members:
            return np.asarray(self.weights @ np.stack([model.mean(X) for model in self.models]))
        if self.warp.name != "none":
            return self.predictive(X).mean
        rows = self.inputs.transform(X)
        z = self.predictor.mean(rows)
        mean = self.target.inverse_mean(z)
        # How far such means count depends on how sure they are.
        beyond = self.warp.is_beyond(z)
        if beyond.any():
            mean[beyond] = self._gaussian(rows[beyond]).mean
        return mean

    def sample(self, X: np.ndarray, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of y at the rows of X, noise included: (q, n_samples)."""
        rng = generator(random_state)
        if self.likelihood is not None:
            joint = [model.predictor.joint(model.inputs.transform(X)) for model in self.models]
            mean, covariance = pooled_jointly(joint, self.weights)
            f = rng.multivariate_normal(mean + (self.level or 0.0), covariance, n_samples, method="eigh").T
            return self.target.inverse_mean(self.likelihood.sample(f, rng))
        if self.members:
            counts = rng.multinomial(n_samples, self.weights)
            drawn = [m.sample(X, int(k), rng) for m, k in zip(self.models, counts, strict=True) if k]
            return np.concatenate([np.empty((len(X), 0)), *drawn], axis=1)[:, rng.permutation(n_samples)]
        rows = self.inputs.transform(X)
        spread = self.spread(rows)
        draws = self.predictor.sample(rows, n_samples, rng, spread)
        if self.tails is not None:
            # Each row gets its own law, and the dependence between rows stays that of the Gaussian draws.
            mean, latent = self.predictor.predict(rows)
            mean, sd = mean[:, None], np.sqrt(latent + self.predictor.noise * spread)[:, None]
            draws = mean + sd * self.tails.from_normal((draws - mean) / sd)
        return self.target.inverse_mean(self.warp.inverse(draws))

    def standardised(self, y: np.ndarray) -> np.ndarray:
        """z of targets y (n,) in their own units."""
        return self.warp.forward(self.target.transform(y))

    def calibrated_on(self, X: np.ndarray, y: np.ndarray) -> Self:
        """The same, its intervals calibrated on targets y (c,) at rows X (c, I) that the fit has not seen."""
        calibration = ConformalCalibration.from_standard_scores(self.predictive(X).normal_score(y))
        notes = self.result.notes
        if calibration.n_rows < rows_needed(USUAL_LEVEL):
            notes = (*notes, infinite_words(USUAL_LEVEL, calibration.n_rows))
        return replace(self, calibration=calibration, result=replace(self.result, notes=notes))

    def with_notes(self, *words: str) -> Self:
        """The same, with more lines in the notes of its result."""
        return replace(self, result=replace(self.result, notes=(*self.result.notes, *words)))

    def with_seconds(self, seconds: float) -> Self:
        """The same, with the seconds that the whole fit took in its result."""
        timed = replace(self.result, seconds={**self.result.seconds, "total": seconds})
        return replace(self, result=timed)

    def with_neighbors(self, count: int) -> Self:
        """The same, predicting from the ``count`` nearest training rows; nothing is fitted again."""
        if count < 1:
            raise ValueError(f"predict_neighbors must be at least 1; got {count}.")
        if self.rows is None:
            raise ValueError(
                f"The model is fitted by {self.approximation!r} and predicts without neighbours;"
                " leave out predict_neighbors."
            )
        changed: dict[str, Any] = {"count": count, "_cells": None}
        members = tuple(replace(m, rows=m.rows and replace(m.rows, **changed)) for m in self.members)
        return replace(self, rows=replace(self.rows, **changed), members=members)

    def predicting_on(self, engine: Engine, share: float = 1.0) -> Self:
        """The same, predicting where ``engine`` has its devices; neither pickles nor files know of it.

        ``share`` of the memory for work that is kept between calls is its own.
        """
        model = replace(self)
        vars(model)["predictor"] = make_predictor(self.posterior, self.rows, self.backend, engine, share)
        return model

    def __getstate__(self) -> dict[str, Any]:
        # What is computed from the fields is computed again by whoever reads the pickle.
        return {f.name: getattr(self, f.name) for f in fields(self)}
