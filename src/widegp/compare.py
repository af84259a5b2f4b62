"""The same split of a table for widegp and for the models that a practitioner would try first."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from widegp import metrics
from widegp.estimator import WideGPRegressor
from widegp.held_out import HeldOut
from widegp.progress import Listener, Progress
from widegp.table_split import Split
from widegp.yardstick import booster

FOLDS = 5
# Beside the level asked for, intervals of these are looked at.
LEVELS = (0.5, 0.8)
WIDEGP = "widegp"


@dataclass(frozen=True)
class Score:
    """How one model did on the held-out rows, in the units of the target.

    coverage, width : share of rows inside their interval of the level asked for, and its mean length.
    seconds : from the training rows to predictive distributions of the held-out rows, all that they need
        included: gradient boosting is fitted five more times for its sd, six more times for its quantiles.
    coverage_50, coverage_80 : shares of rows inside their central intervals of 50% and 80%.
    """

    model: str
    rmse: float
    nll: float
    crps: float
    coverage: float
    width: float
    seconds: float
    coverage_50: float
    coverage_80: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


Ends = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Gaussian:
    """N(mean_i, sd_i^2) for each held-out row, (q,) each.

    own : intervals by level that a model has of its own, ends (q,) each; else they are mean -+ z sd.
    """

    mean: np.ndarray
    sd: np.ndarray
    own: Mapping[float, Ends] = field(default_factory=dict)

    def interval(self, level: float) -> Ends:
        half = ndtri((1 + level) / 2) * self.sd
        return self.own.get(level, (self.mean - half, self.mean + half))

    def score(self, name: str, y: np.ndarray, level: float, seconds: float) -> Score:
        lower, upper = self.interval(level)
        own, half, most = (metrics.coverage(y, *self.interval(p)) for p in (level, *LEVELS))
        return Score(
            name, metrics.rmse(y, self.mean), metrics.nlpd(y, self.mean, self.sd),
            metrics.crps(y, self.mean, self.sd), own, float(np.mean(upper - lower)), seconds, half, most,
        )  # fmt: skip


def _central(depth: np.ndarray) -> tuple[float, float]:
    """Shares of rows inside their intervals of 50% and 80%; depth_i is the smallest level that holds y_i."""
    return float(np.mean(depth <= 0.5)), float(np.mean(depth <= 0.8))


def compare(
    split: Split, settings: dict[str, Any], seed: int = 0, level: float = 0.95,
    progress: Listener | None = None,
) -> Iterator[Score]:  # fmt: skip
    """A score per model, as each is done: the baselines first, then ``WideGPRegressor(**settings)``.

    All see the same encoded inputs; none sees the held-out rows.
    """
    for name, predict in BASELINES.items():
        if progress:
            progress(Progress(name))
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predictive = predict(split, level, seed)
        yield predictive.score(name, split.y_test, level, time.perf_counter() - began)
    began = time.perf_counter()
    model = WideGPRegressor(random_state=seed, **settings).fit(split.X, split.y, progress=progress)
    held_out = HeldOut.of(model, split.X_test, split.y_test, level)
    yield score_of(held_out, time.perf_counter() - began)


def score_of(held_out: HeldOut, seconds: float) -> Score:
    """The score of widegp."""
    scores = held_out.scores()
    kept = {key: scores[key] for key in ("rmse", "nll", "crps", "coverage", "width")}
    half, most = _central(held_out.depth)
    return Score(WIDEGP, **kept, seconds=seconds, coverage_50=half, coverage_80=most)


def mean_predictor(split: Split, level: float, seed: int) -> Gaussian:
    """Mean and sd of the training target for every row."""
    q = len(split.y_test)
    return Gaussian(np.full(q, split.y.mean()), np.full(q, split.y.std(ddof=1)))


def linear_regression(split: Split, level: float, seed: int) -> Gaussian:
    """Least squares; sd of a new row s sqrt(1 + x'(X'X)^+ x), s^2 = residual sum of squares / (n - rank).

    x has a 1 in front for the intercept and standardised inputs; one-hot columns make X'X singular.
    """
    shift, scale = split.X.mean(0), split.X.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    X, X_test = (
        np.column_stack([np.ones(len(rows)), (rows - shift) / scale]) for rows in (split.X, split.X_test)
    )
    weights, _, rank, _ = np.linalg.lstsq(X, split.y, rcond=None)
    freedom = max(1, len(X) - int(rank))
    variance = float(np.sum((split.y - X @ weights) ** 2)) / freedom
    leverage = np.einsum("ij,jk,ik->i", X_test, np.linalg.pinv(X.T @ X, hermitian=True), X_test)
    return Gaussian(X_test @ weights, _positive(np.sqrt(variance * (1 + leverage)), split))


def boosting(split: Split, level: float, seed: int) -> Gaussian:
    """Gradient boosting of the mean; one sd for all rows, that of its cross-validated residuals."""
    from sklearn.model_selection import KFold, cross_val_predict

    model = booster(seed)
    folds = KFold(min(FOLDS, len(split.y)), shuffle=True, random_state=seed)
    residual = split.y - cross_val_predict(model, split.X, split.y, cv=folds)
    mean = model.fit(split.X, split.y).predict(split.X_test)
    return Gaussian(mean, _positive(np.full(len(mean), np.sqrt(np.mean(residual**2))), split))


def boosted_quantiles(split: Split, level: float, seed: int) -> Gaussian:
    """Gradient boosting of the mean and of both ends of each interval; where only a density will do, it is

    Gaussian with the sd of the widest, width / (2 z).
    """
    own: dict[float, Ends] = {}
    for p in dict.fromkeys((*LEVELS, level)):
        lower, upper = (
            booster(seed, "quantile", q).fit(split.X, split.y).predict(split.X_test)
            for q in ((1 - p) / 2, (1 + p) / 2)
        )
        # Fitted apart, the two may cross.
        own[p] = np.minimum(lower, upper), np.maximum(lower, upper)
    mean = booster(seed).fit(split.X, split.y).predict(split.X_test)
    width = own[level][1] - own[level][0]
    return Gaussian(mean, _positive(width / (2 * ndtri((1 + level) / 2)), split), own)


def _positive(sd: np.ndarray, split: Split) -> np.ndarray:
    """sd of at least 1e-3 of that of the target: a row that it calls certain would decide the whole NLL."""
    return np.maximum(sd, 1e-3 * split.y.std())


BASELINES: dict[str, Callable[[Split, float, int], Gaussian]] = {
    "mean": mean_predictor,
    "linear regression": linear_regression,
    "gradient boosting": boosting,
    "gradient boosting, quantiles": boosted_quantiles,
}
