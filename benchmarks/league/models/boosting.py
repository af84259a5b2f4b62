"""What boosted trees share: a search within a number of seconds, and a distribution from left-out rows.

A `Booster` grows trees for a loss. Here it is decided what it grows: configurations in random order, the
library's own defaults first, each with early stopping on left-out rows, until the seconds are spent; then the
best on all rows.

Numbers: a mean by squared loss. Its distribution is either that of seven quantile losses, at the settings of
the mean, or the mean plus the quantiles of its left-out residuals; the one with the larger log density on
left-out rows is taken. Counts: a mean by the Poisson loss, negative binomial around it, with the dispersion
that makes left-out rows likeliest. Classes: the logistic loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks.league.distributions import FITTED_LEVELS, RESOLUTION, FromQuantiles, NegativeBinomial
from benchmarks.league.models import Limits, Predict
from benchmarks.league.tables import Task

ROUNDS, PATIENCE = 1500, 40
CONFIGURATIONS = 40
# Below this many rows five folds are left out in turn; above, one part of the rows once.
FOLDED_ROWS = 2_000


Fit = Callable[[Task, Limits], Predict]


class Loss(NamedTuple):
    """name : "squared", "poisson", "logistic" or "quantile", with the levels of the last."""

    name: str
    levels: tuple[float, ...] = ()


SQUARED, POISSON, LOGISTIC = Loss("squared"), Loss("poisson"), Loss("logistic")
QUANTILES = Loss("quantile", FITTED_LEVELS)


class Grown(Protocol):
    """rounds : (1,), or of each level of a quantile loss.    predict : (q,), or (q, K)."""

    rounds: np.ndarray

    def predict(self, X: Any) -> np.ndarray: ...


class Booster(Protocol):
    """space : settings by name, what to choose from; the first of each is the library's own."""

    space: Mapping[str, Sequence[Any]]

    def rows(self, task: Task) -> tuple[Any, Any]:
        """Training and test rows in the form that `grow` and `predict` take."""

    def grow(
        self,
        X: Any,
        y: np.ndarray,
        loss: Loss,
        setting: Mapping[str, Any],
        held: tuple[Any, np.ndarray] | None = None,
        rounds: np.ndarray | None = None,
    ) -> Grown:
        """Trees until ``held`` rows gain no more, or as many as ``rounds``."""


class Found(NamedTuple):
    """The best setting, the rounds it took (K,), and its predictions of left-out rows."""

    setting: Mapping[str, Any]
    rounds: np.ndarray
    held: np.ndarray
    predicted: np.ndarray
    loss: float


def entries(make: Callable[[Limits], Booster]) -> tuple[Fit, Fit, Fit]:
    """What the file of a booster offers the league: fits of numbers, counts and classes."""

    def entry(fit: Callable[[Booster, Task, Limits], Predict]) -> Fit:
        return lambda task, limits: fit(make(limits), task, limits)

    return entry(numbers), entry(counts), entry(classes)


def numbers(booster: Booster, task: Task, limits: Limits) -> Predict:
    X, X_test = booster.rows(task)
    parts = left_out(len(task.y), limits.seed)
    best = search(booster, X, task.y, SQUARED, parts, limits)
    spread = tried(booster, X, task.y, QUANTILES, parts, best.setting)
    resolution = RESOLUTION * float(np.std(task.y))
    y_held = task.y[best.held]
    residuals = np.quantile(y_held - best.predicted, FITTED_LEVELS)
    ways = (
        FromQuantiles(best.predicted, FITTED_LEVELS, spread.predicted, resolution),
        FromQuantiles(best.predicted, FITTED_LEVELS, best.predicted[:, None] + residuals, resolution),
    )
    by_loss = np.mean(ways[0].log_density(y_held)) > np.mean(ways[1].log_density(y_held))
    mean = booster.grow(X, task.y, SQUARED, best.setting, rounds=best.rounds)
    grown = booster.grow(X, task.y, QUANTILES, best.setting, rounds=spread.rounds) if by_loss else None

    def predict() -> FromQuantiles:
        centre = mean.predict(X_test)
        values = centre[:, None] + residuals if grown is None else grown.predict(X_test)
        return FromQuantiles(centre, FITTED_LEVELS, values, resolution)

    return predict


def counts(booster: Booster, task: Task, limits: Limits) -> Predict:
    X, X_test = booster.rows(task)
    best = search(booster, X, task.y, POISSON, left_out(len(task.y), limits.seed), limits)
    dispersion = likeliest_dispersion(task.y[best.held], best.predicted)
    mean = booster.grow(X, task.y, POISSON, best.setting, rounds=best.rounds)
    return lambda: NegativeBinomial(mean.predict(X_test), dispersion)


def classes(booster: Booster, task: Task, limits: Limits) -> Predict:
    X, X_test = booster.rows(task)
    best = search(booster, X, task.y, LOGISTIC, left_out(len(task.y), limits.seed), limits)
    grown = booster.grow(X, task.y, LOGISTIC, best.setting, rounds=best.rounds)
    return lambda: grown.predict(X_test)


def search(
    booster: Booster, X: Any, y: np.ndarray, loss: Loss, parts: list[np.ndarray], limits: Limits
) -> Found:
    """The setting with the lowest loss of left-out rows among those tried in ``limits.seconds``."""
    began, best = time.perf_counter(), None
    for setting in configurations(booster.space, limits.seed):
        found = tried(booster, X, y, loss, parts, setting)
        if best is None or found.loss < best.loss:
            best = found
        if time.perf_counter() - began > limits.seconds:
            break
    assert best is not None
    return best


def configurations(space: Mapping[str, Sequence[Any]], seed: int) -> Iterator[dict[str, Any]]:
    """The first of each choice, then random ones."""
    rng = np.random.default_rng(seed)
    yield {name: choices[0] for name, choices in space.items()}
    for _ in range(CONFIGURATIONS - 1):
        yield {name: choices[rng.integers(len(choices))] for name, choices in space.items()}


def left_out(n: int, seed: int) -> list[np.ndarray]:
    """Rows left out: five folds of few rows; a fifth of up to 10,000; a tenth of more."""
    order = np.random.default_rng(seed).permutation(n)
    if n < FOLDED_ROWS:
        return np.array_split(order, 5)
    return [order[: n // 5 if n <= 10_000 else n // 10]]


def tried(
    booster: Booster, X: Any, y: np.ndarray, loss: Loss, parts: list[np.ndarray], setting: Mapping[str, Any]
) -> Found:
    """Trees grown without each part of the rows in turn, and what they predict for it."""
    rounds, predicted = [], []
    for part in parts:
        kept = np.setdiff1d(np.arange(len(y)), part)
        held = rows_of(X, part), y[part]
        grown = booster.grow(rows_of(X, kept), y[kept], loss, setting, held)
        rounds.append(grown.rounds)
        predicted.append(grown.predict(held[0]))
    every, held_rows = np.concatenate(predicted), np.concatenate(parts)
    mean_rounds = np.maximum(1, np.round(np.mean(rounds, axis=0))).astype(int)
    return Found(setting, mean_rounds, held_rows, every, value(loss, y[held_rows], every))


def value(loss: Loss, y: np.ndarray, predicted: np.ndarray) -> float:
    """Mean loss of predictions (q,) or, of quantiles, (q, K)."""
    if loss.name == "squared":
        return float(np.mean((y - predicted) ** 2))
    if loss.name == "poisson":
        return float(np.mean(predicted - y * np.log(np.maximum(predicted, 1e-9))))
    if loss.name == "logistic":
        p = np.clip(predicted, 1e-6, 1 - 1e-6)
        return float(-np.mean(y * np.log(p) + (1 - y) * np.log1p(-p)))
    gap = y[:, None] - predicted
    return float(np.mean(gap * (np.asarray(loss.levels) - (gap < 0))))


def rows_of(X: Any, rows: np.ndarray) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def likeliest_dispersion(y: np.ndarray, mean: np.ndarray) -> float:
    def cost(log_dispersion: float) -> float:
        return -float(np.sum(NegativeBinomial(mean, float(np.exp(log_dispersion))).log_density(y)))

    return float(np.exp(minimize_scalar(cost, bounds=(-12.0, 4.0), method="bounded").x))
