"""WideGPClassifier: the scikit-learn face of classification. It validates, calls and stores."""

from __future__ import annotations

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
from widegp.data.input_maps import fit_scaler
from widegp.inference.watch import Watch
from widegp.kernels.base import Kernel
from widegp.laplace import Response
from widegp.laplace_classes import ClassResponse
from widegp.latent_fit import fit_latent, latent_builder, latent_models, merged_rows
from widegp.likelihoods import Bernoulli, Softmax
from widegp.progress import Listener
from widegp.restoring import restored_on_failure
from widegp.saving import SaveMixin
from widegp.training_table import base_scaling, checked_rows


class WideGPClassifier(SaveMixin, SetsMixin, ClassifierMixin, BaseEstimator):
    """P(y = class | x) = s(level + f(x)), f ~ GP(0, K), by Laplace's approximation; s logistic or Phi.

    More than two classes have a function each, P(y = c | x) = softmax(level + f(x))_c, under one kernel,
    metric, anchors and neighbours, estimated jointly. Probabilities are integrated over f.

    Parameters
    ----------
    kernel, rank, neighbors, predict_neighbors, anchors, ard, priors, max_iter, scale_inputs, ordering,
    metric, trees, block_rows, random_state, budget, backend, engine : as for `WideGPRegressor`. Parameters
        estimated with at most 200 anchors, and predictions made with ``rank``.
    approximation : ``"auto"`` (exact up to 500 rows, then full-scale), or a name as for `WideGPRegressor`.
        Beside anchors: neighbours alone (``"vecchia"``) say little where every row is as noisy as a class is.
    link : ``"logit"``, the softmax for more than two classes, or ``"probit"``, for two.
    class_weight : None, ``"balanced"`` or a mapping of classes to weights.
    conformal : keep rows apart, as `WideGPRegressor` does, to size the sets of ``predict_set`` by.

    Attributes
    ----------
    classes_ : the classes, sorted.
    fitted_ : a tuple of one `FittedGP` for two classes, else of one for each class.
    calibration_ : `ClassCalibration`, with ``conformal=True``, else None.
    converged_ : whether the fit ended converged.    n_iter_ : its iterations.
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
        trees: str = "auto",
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
        self.trees = trees
        self.budget = budget
        self.backend = backend
        self.engine = engine
        self.conformal = conformal

    def update(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Refused: see `WideGPRegressor.update`, which real targets have."""
        raise ValueError(
            "A classifier cannot take more rows: it does not keep the classes that its mode was found from;"
            " fit again with all rows."
        )

    @restored_on_failure
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *,
        progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Estimate the parameters from X (n, I) and classes y (n,); a row of weight w counts as w rows.

        ``progress(event)`` is called as for `WideGPRegressor.fit`.
        """
        if self.conformal:
            return fit_apart(self, X, y, sample_weight, progress)
        began = time.perf_counter()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"All rows are of one class, {classes[0]}; pass rows of two or more.")
        weight = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        rows, codes, weight = merged_rows(np.asarray(X), codes.astype(float), weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        scaler = fit_scaler(rows, base_scaling(self), weight)
        builder = latent_builder(self, scaler.transform(rows), seed)
        response = self._response(len(classes), codes, weight)
        left = None if self.budget is None else max(0.0, self.budget - time.perf_counter() + began)
        watch = Watch(() if progress is None else (progress,))
        estimate = fit_latent(self, builder, response, left, watch)
        self.fitted_ = latent_models(self, estimate, scaler, response.offset)
        self.classes_, self.calibration_ = classes, None
        result = self.fitted_[0].result
        self.converged_, self.n_iter_ = result.converged, max(1, result.n_iter)
        if not self.converged_:
            warnings.warn(f"The fit has not converged: {result.reason}.", ConvergenceWarning, 3)
        return self

    def _response(self, count: int, codes: np.ndarray, weight: np.ndarray) -> Response | ClassResponse:
        """``count`` classes by number, (n,), under the likelihood asked for, f about its level."""
        if count == 2:
            two = Bernoulli(self.link)
            return Response(two, codes, two.level(codes, weight=weight), weight)
        if self.link != "logit":
            raise ValueError(
                f"link={self.link!r} serves two classes and y has {count}; use link='logit'."
            )
        several = Softmax(count)
        return ClassResponse(several, codes, several.level(codes, weight), weight)

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """P(class | x) at the rows of X (q, I), f integrated out: (q, C), columns as in ``classes_``."""
        check_is_fitted(self, "fitted_")
        rows = checked_rows(self, X)
        if len(self.classes_) == 2:
            p = self.fitted_[0].predictive(rows).mean
            return np.stack([1 - p, p], axis=1)
        moments = [part.latent(rows) for part in self.fitted_]
        mean, variance = (np.stack(parts, axis=1) for parts in zip(*moments, strict=True))
        return Softmax(len(self.classes_)).predictive(mean, variance).probabilities

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
