"""The same split of a table for widegp and its rivals: classes, counts and several outputs.

Each comparison yields a score per model as it is done, the baselines first.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from widegp import metrics
from widegp.compare import BASELINES, FOLDS, WIDEGP, Score, score_of
from widegp.held_out import HeldOut
from widegp.metrics.classes import floored
from widegp.progress import Listener, Progress
from widegp.table_split import Split
from widegp.table_targets import Classes, OneNumber, Outputs
from widegp.yardstick import boosted_probabilities, class_probabilities

# Counts beyond which a predictive distribution holds less than this are left out of a CRPS.
TAIL = 1e-9


@dataclass(frozen=True)
class ClassScore:
    """How one model's probabilities of classes did on the held-out rows; see `widegp.metrics.classes`."""

    model: str
    log_loss: float
    auc: float | None
    brier: float
    ece: float
    accuracy: float
    seconds: float

    @classmethod
    def of(cls, name: str, y: np.ndarray, p: np.ndarray, seconds: float) -> ClassScore:
        """Of probabilities p (q, C) where the classes y (q,) came; AUC is None where a class has no row."""
        p = floored(p)
        auc = metrics.auc(y, p) if len(np.unique(y)) == p.shape[1] else None
        scores = metrics.log_loss(y, p), auc, metrics.brier(y, p), metrics.ece(y, p), metrics.accuracy(y, p)
        return cls(name, *scores, seconds)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_classes(
    split: Split, settings: dict[str, Any], target: Classes, seed: int = 0, progress: Listener | None = None
) -> Iterator[ClassScore]:
    """A score per model of classes 0, ..., C - 1."""
    if len(np.unique(split.y_test)) < 2:
        raise ValueError("The held-out rows are all of one class; hold out more rows.")
    C = len(target.classes)
    for name, predict in CLASS_BASELINES.items():
        p, spent = _timed(name, partial(predict, split, C, seed), progress)
        yield ClassScore.of(name, split.y_test, p, spent)
    began = time.perf_counter()
    model = target.fitted(split, settings | {"random_state": seed}, progress)
    p = target.probabilities(model, split.X_test)
    yield ClassScore.of(WIDEGP, split.y_test, p, time.perf_counter() - began)


def share(split: Split, n_classes: int, seed: int) -> np.ndarray:
    """Shares of the classes among the training rows, for every row."""
    counts = np.bincount(split.y.astype(int), minlength=n_classes)
    return np.tile(counts / counts.sum(), (len(split.y_test), 1))


def logistic_regression(split: Split, n_classes: int, seed: int) -> np.ndarray:
    """scikit-learn's, of standardised inputs."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return class_probabilities(model.fit(split.X, split.y), split.X_test, n_classes)


def boosted_classes(split: Split, n_classes: int, seed: int) -> np.ndarray:
    """Gradient boosting of the log loss, with scikit-learn's own defaults."""
    return boosted_probabilities(split.X, split.y, split.X_test, n_classes, seed)


CLASS_BASELINES: dict[str, Callable[[Split, int, int], np.ndarray]] = {
    "share": share,
    "logistic regression": logistic_regression,
    "gradient boosting": boosted_classes,
}


@dataclass(frozen=True)
class CountScore:
    """How one model of counts did on the held-out rows.

    deviance : mean Poisson deviance of its means.    log_score : mean -log probability of what came.
    coverage : share of rows inside their central interval of the level asked for.
    """

    model: str
    deviance: float
    log_score: float
    crps: float
    rmse: float
    coverage: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class NegativeBinomials:
    """Counts of mean_i (q,) and variance mean + dispersion mean^2; of dispersion 0, Poisson."""

    mean: np.ndarray
    dispersion: float

    @property
    def law(self) -> Any:
        if self.dispersion <= 0:
            return stats.poisson(self.mean)
        r = 1 / self.dispersion
        return stats.nbinom(r, r / (r + self.mean))

    def score(self, name: str, y: np.ndarray, level: float, seconds: float) -> CountScore:
        lower, upper = self.law.ppf((1 - level) / 2), self.law.ppf((1 + level) / 2)
        return CountScore(
            name, metrics.poisson_deviance(y, self.mean), -float(np.mean(self.law.logpmf(y))), self.crps(y),
            metrics.rmse(y, self.mean), metrics.coverage(y, lower, upper), seconds,
        )  # fmt: skip

    def crps(self, y: np.ndarray) -> float:
        """E|Y - y| - E|Y - Y'| / 2 by the sum over counts."""
        k = np.arange(int(max(self.law.ppf(1 - TAIL).max(), y.max())) + 1)
        F = np.stack([NegativeBinomials(self.mean[[i]], self.dispersion).law.cdf(k) for i in range(len(y))])
        return metrics.crps_from_cdf(y, F)


def compare_counts(
    split: Split, settings: dict[str, Any], target: OneNumber, level: float = 0.95, seed: int = 0,
    progress: Listener | None = None,
) -> Iterator[CountScore]:  # fmt: skip
    """A score per model of counts; a baseline's dispersion is estimated from cross-validated means."""
    for name, make in COUNT_BASELINES.items():
        found, spent = _timed(name, partial(_dispersed, split, make(seed), seed), progress)
        yield found.score(name, split.y_test, level, spent)
    began = time.perf_counter()
    model = target.fitted(split, settings | {"random_state": seed}, progress)
    found = model.predict_distribution(split.X_test)
    held = HeldOut.from_predictive(found, split.y_test, level)
    scores = held.scores()
    yield CountScore(
        WIDEGP, metrics.poisson_deviance(split.y_test, held.mean), scores["nll"], scores["crps"],
        scores["rmse"], scores["coverage"], time.perf_counter() - began,
    )  # fmt: skip


def _dispersed(split: Split, model: Any, seed: int) -> NegativeBinomials:
    """sum [(y - m)^2 - m] / sum m^2 over means m of rows that were left out: what Var y = m + a m^2 asks."""
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(min(FOLDS, len(split.y)), shuffle=True, random_state=seed)
    m = _positive(cross_val_predict(model, split.X, split.y, cv=folds), split)
    dispersion = float(np.sum((split.y - m) ** 2 - m) / np.sum(m**2))
    mean = _positive(model.fit(split.X, split.y).predict(split.X_test), split)
    return NegativeBinomials(mean, max(dispersion, 0.0))


def _positive(mean: np.ndarray, split: Split) -> np.ndarray:
    return np.maximum(mean, 1e-3 * split.y.mean())


def _constant(seed: int) -> Any:
    from sklearn.dummy import DummyRegressor

    return DummyRegressor()


def _poisson_regression(seed: int) -> Any:
    from sklearn.linear_model import PoissonRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), PoissonRegressor(alpha=1e-6, max_iter=1000))


def _boosted_counts(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(loss="poisson", random_state=seed)


COUNT_BASELINES: dict[str, Callable[[int], Any]] = {
    "mean": _constant,
    "Poisson regression": _poisson_regression,
    "gradient boosting": _boosted_counts,
}


def compare_outputs(
    split: Split, settings: dict[str, Any], target: Outputs, level: float = 0.95, seed: int = 0,
    progress: Listener | None = None,
) -> Iterator[tuple[str, Score]]:  # fmt: skip
    """Of several outputs, each score with the name of its output; the baselines are fitted one by one.

    The time of widegp is that of all outputs together over their number.
    """
    for t, output in enumerate(target.names):
        own = replace(split, targets=split.targets[:, t])
        for name, predict in BASELINES.items():
            found, spent = _timed(name, partial(predict, own, level, seed), progress)
            yield output, found.score(name, own.y_test, level, spent)
    began = time.perf_counter()
    model = target.fitted(split, settings | {"random_state": seed}, progress)
    found = model.predict_distribution(split.X_test)
    spent = (time.perf_counter() - began) / len(target.names)
    for output, one, y in zip(target.names, found, split.y_test.T, strict=True):
        yield output, score_of(HeldOut.from_predictive(one, y, level), spent)


def _timed(name: str, make: Callable[[], Any], progress: Listener | None) -> tuple[Any, float]:
    """What ``make`` gives, and its seconds."""
    if progress:
        progress(Progress(name))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = make()
    return found, time.perf_counter() - began
