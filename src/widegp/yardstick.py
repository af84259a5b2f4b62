"""Gradient boosting, fitted in seconds on the same rows, as a yardstick for a model's held-out error."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from widegp import metrics
from widegp.metrics.classes import floored

NAME = "gradient boosting"
# These keep it to seconds whatever the table; beyond them it sees a random part of the training rows.
MOST_ROWS = 200_000
MOST_CELLS = 5_000_000
# It does much better from here on: by so much of the RMSE, and so surely.
MUCH = 0.05
SURE = 0.975


@dataclass(frozen=True)
class Yardstick:
    """Held-out errors of a model beside those of gradient boosting, e_i = y_i - mean_i and b_i, i = 1..q.

    rmse, rmse_model : sqrt(mean b_i^2) and sqrt(mean e_i^2), in the units of the target.
    r2 : 1 - mean b_i^2 / var(y); None where the held-out target is constant.
    t : mean(e_i^2 - b_i^2) over its standard error, positive where boosting does better; 0 where there is
        no difference to test.
    rows : training rows that boosting saw; rows_held_out : q.
    seconds : to fit and predict.
    """

    rmse: float
    rmse_model: float
    r2: float | None
    t: float
    rows: int
    rows_held_out: int
    seconds: float

    @property
    def surely_better(self) -> float:
        """How sure the paired t-test on the squared errors is that boosting has the smaller ones."""
        return float(stats.t.cdf(self.t, max(1, self.rows_held_out - 1)))

    @property
    def is_much_better(self) -> bool:
        """Its RMSE is more than 5% lower, and the paired test leaves less than 2.5% to chance."""
        return self.rmse < (1 - MUCH) * self.rmse_model and self.surely_better > SURE

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def booster(seed: int, loss: str = "squared_error", quantile: float | None = None) -> Any:
    """scikit-learn's histogram gradient boosting with its own defaults: 100 trees, nothing tuned."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(loss=loss, quantile=quantile, random_state=seed)


def class_booster(seed: int) -> Any:
    """The same of classes, by log loss."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


def measure(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], mean: np.ndarray, seed: int = 0
) -> Yardstick:
    """Boosting on ``train`` (X, y), or a random part of it, beside the predictions ``mean`` of ``test``."""
    began = time.perf_counter()
    (X, y), (X_test, y_test) = _thinned(*train, seed), test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = booster(seed).fit(X, y).predict(X_test)
    own, boosted = (y_test - mean) ** 2, (y_test - predicted) ** 2
    variance = float(np.var(y_test))
    return Yardstick(
        rmse=float(np.sqrt(boosted.mean())), rmse_model=float(np.sqrt(own.mean())),
        r2=1 - float(boosted.mean()) / variance if variance > 0 else None,
        t=paired_t(own - boosted), rows=len(y), rows_held_out=len(y_test),
        seconds=round(time.perf_counter() - began, 3),
    )  # fmt: skip


@dataclass(frozen=True)
class ClassYardstick:
    """Held-out scores of gradient boosting's probabilities, with the log loss of the model."""

    log_loss: float
    auc: float | None
    brier: float
    accuracy: float
    log_loss_model: float
    rows: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_classes(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], p: np.ndarray, seed: int = 0
) -> ClassYardstick:
    """Boosted probabilities of classes 0, ..., C - 1 beside the probabilities ``p`` (q, C) at ``test``."""
    began = time.perf_counter()
    (X, y), (X_test, y_test) = _thinned(*train, seed), test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = boosted_probabilities(X, y, X_test, p.shape[1], seed)
    every = len(np.unique(y_test)) == p.shape[1]
    return ClassYardstick(
        metrics.log_loss(y_test, q), metrics.auc(y_test, q) if every else None, metrics.brier(y_test, q),
        metrics.accuracy(y_test, q), metrics.log_loss(y_test, floored(p)), len(y),
        round(time.perf_counter() - began, 3),
    )  # fmt: skip


def boosted_probabilities(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, n_classes: int, seed: int = 0
) -> np.ndarray:
    """(q, C) by boosting of the log loss, all positive."""
    return class_probabilities(class_booster(seed).fit(X, y), X_test, n_classes)


def class_probabilities(model: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    """(q, C) of a fitted classifier of the classes 0, ..., C - 1, of which it may not have seen all."""
    out = np.zeros((len(X), n_classes))
    out[:, np.asarray(model.classes_, int)] = model.predict_proba(X)
    return floored(out)


def paired_t(differences: np.ndarray) -> float:
    """mean / (sd / sqrt q) of q differences; 0 where they do not vary."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return 0.0
    return float(stats.ttest_1samp(differences, 0.0).statistic)


def _thinned(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    most = min(MOST_ROWS, MOST_CELLS // max(1, X.shape[1]))
    if len(y) <= most:
        return X, y
    kept = np.sort(np.random.default_rng(seed).choice(len(y), most, replace=False))
    return X[kept], y[kept]
