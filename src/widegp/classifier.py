"""WideGPClassifier: the scikit-learn face of classification. It validates, calls and stores."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from widegp.class_sets import SetsMixin, fit_apart
from widegp.fitted import FittedGP
from widegp.inference.watch import Watch
from widegp.kernels.base import Kernel
from widegp.laplace import Response
from widegp.latent_fit import fit_latent, latent_builder, latent_model, merged_rows, weighted_scaler
from widegp.likelihoods import Bernoulli
from widegp.progress import Listener
from widegp.training_table import checked_rows


class WideGPClassifier(SetsMixin, ClassifierMixin, BaseEstimator):
    """P(y = class | x) = s(level + f(x)), f ~ GP(0, K), by Laplace's approximation; s logistic or Phi.

    Probabilities are integrated over f. More than two classes are fitted one against the rest, and their
    probabilities divided by their sum.

    Parameters
    ----------
    kernel, rank, neighbors, predict_neighbors, anchors, ard, priors, max_iter, scale_inputs, ordering,
    metric, block_rows, random_state, budget, backend, engine : as for `WideGPRegressor`. Parameters are
        estimated with at most 200 anchors, and predictions made with ``rank``.
    approximation : ``"auto"`` (exact up to 500 rows, then full-scale), or a name as for `WideGPRegressor`.
        Beside anchors: neighbours alone (``"vecchia"``) say little where every row is as noisy as a class is.
    link : ``"logit"`` or ``"probit"``.
    class_weight : None, ``"balanced"`` or a mapping of classes to weights.
    conformal : keep rows apart, as `WideGPRegressor` does, to size the sets of ``predict_set`` by.

    Attributes
    ----------
    classes_ : the classes, sorted.
    fitted_ : one `FittedGP` for two classes, else one for each class.
    calibration_ : `ClassCalibration`, with ``conformal=True``, else None.
    converged_ : whether the fits ended converged.    n_iter_ : iterations, those of the longest.
    """

    def __init__(
        self,
        kernel: str | Kernel = "mixed",
        approximation: str = "auto",
        rank: int = 500,
        anchors: str = "kmeans",
        ard: bool = False,
        priors: Any = "default",
        max_iter: int = 100,
        scale_inputs: str | None = "auto",
        block_rows: int | None = None,
        random_state: Any = None,
        *,
        link: str = "logit",
        class_weight: Any = None,
        neighbors: int = 30,
        predict_neighbors: int = 200,
        ordering: str = "random",
        metric: str = "auto",
        budget: float | None = None,
        backend: str = "auto",
        engine: Any = "auto",
        conformal: bool = False,
    ) -> None:
        self.kernel = kernel
        self.approximation = approximation
        self.rank = rank
        self.anchors = anchors
        self.ard = ard
        self.priors = priors
        self.max_iter = max_iter
        self.scale_inputs = scale_inputs
        self.block_rows = block_rows
        self.random_state = random_state
        self.link = link
        self.class_weight = class_weight
        self.neighbors = neighbors
        self.predict_neighbors = predict_neighbors
        self.ordering = ordering
        self.metric = metric
        self.budget = budget
        self.backend = backend
        self.engine = engine
        self.conformal = conformal

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *,
        progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Estimate the parameters from X (n, I) and classes y (n,); a row of weight w counts as w rows.

        ``progress(event)`` is called as for `WideGPRegressor.fit`.
        """
        if self.conformal:
            return fit_apart(self, X, y, sample_weight, progress)
        self.calibration_ = None
        began = time.perf_counter()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"All rows are of one class, {self.classes_[0]!r}; pass rows of two or more.")
        weight = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        rows, codes, weight = merged_rows(np.asarray(X), codes.astype(float), weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        scaler = weighted_scaler(rows, weight, self.scale_inputs)
        builder = latent_builder(self, scaler.transform(rows), seed)
        ones = [1.0] if len(self.classes_) == 2 else [float(c) for c in range(len(self.classes_))]
        parts: list[FittedGP] = []
        for one in ones:
            likelihood, seen = Bernoulli(self.link), (codes == one).astype(float)
            level = likelihood.level(seen, weight=weight)
            left = None if self.budget is None else max(0.0, self.budget - time.perf_counter() + began)
            share = None if left is None else left / (len(ones) - len(parts))
            watch = Watch(() if progress is None else (progress,))
            estimate = fit_latent(self, builder, Response(likelihood, seen, level, weight), share, watch)
            parts.append(latent_model(self, estimate, scaler, level))
        self.fitted_ = tuple(parts)
        self.converged_ = all(part.result.converged for part in parts)
        self.n_iter_ = max(1, *(part.result.n_iter for part in parts))
        if not self.converged_:
            reasons = {str(part.result.reason) for part in parts if not part.result.converged}
            warnings.warn(f"The fit has not converged: {', '.join(sorted(reasons))}.", ConvergenceWarning, 2)
        return self

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """P(class | x) at the rows of X (q, I), f integrated out: (q, C), columns as in ``classes_``."""
        check_is_fitted(self, "fitted_")
        rows = checked_rows(self, X)
        p = np.stack([part.predictive(rows).mean for part in self.fitted_], axis=1)
        if len(self.classes_) == 2:
            return np.concatenate([1 - p, p], axis=1)
        return p / p.sum(axis=1, keepdims=True)

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """E[level + f]: (q,) for two classes, above 0 where the second is likelier; else (q, C)."""
        check_is_fitted(self, "fitted_")
        rows = checked_rows(self, X)
        means = np.stack([part.latent(rows).mean for part in self.fitted_], axis=1)
        return means[:, 0] if len(self.classes_) == 2 else means

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The likeliest class at each row of X (q, I)."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[likeliest]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file for `widegp.load`: arrays and JSON, no pickle, checksummed."""
        from widegp.persist import save_model

        check_is_fitted(self, "fitted_")
        save_model(self, path)
