"""One way to score all models. Lower is better, but for AUC and for coverage, which has its level as aim.

Scores of numbers are in units of the training rows' standard deviation:

    rmse        root mean squared error of the mean
    nll         -mean log density of the standardised target; densities count up to 1 / RESOLUTION at most
    crps        twice the mean pinball loss of 99 quantiles, itself a proper score
    interval    interval score of central 95% intervals (Gneiting and Raftery 2007)
    cover50, cover80, cover95    shares of test targets inside central intervals

Counts have ``deviance`` (Poisson) and ``log_score`` (-mean log probability), classes ``log_loss``, ``brier``
and ``auc``. Scores of several outputs are means over the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.league.distributions import RESOLUTION, Distribution
from benchmarks.league.tables import Task
from widegp import metrics

SCORE_LEVELS = np.arange(1, 100) / 100
CENTRAL = (0.5, 0.8, 0.95)
REAL = ("rmse", "nll", "crps", "interval", "cover50", "cover80", "cover95")
CLASSES = ("log_loss", "brier", "auc")
COUNTS = ("deviance", "log_score")
SCORES = (*REAL, *CLASSES, *COUNTS)

Prediction = Distribution | Sequence[Distribution] | np.ndarray


def scores(task: Task, predicted: Prediction) -> dict[str, float]:
    """Scores by name: ``predicted`` is a distribution, one for each output, or P(y = 1) (q,) of classes."""
    if task.kind == "classes":
        return of_classes(task.y_test, np.asarray(predicted))
    if task.kind == "counts":
        return of_counts(task.y, task.y_test, predicted)
    if task.outputs == 1:
        return of_numbers(task.y, task.y_test, predicted)
    each = [of_numbers(task.y[:, t], task.y_test[:, t], part) for t, part in enumerate(predicted)]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def of_numbers(y_train: np.ndarray, y: np.ndarray, predicted: Distribution) -> dict[str, float]:
    sd = float(np.std(y_train))
    log_density = np.minimum(predicted.log_density(y) + np.log(sd), -np.log(RESOLUTION))
    return {"nll": float(-np.mean(log_density))} | _of_quantiles(y, predicted, sd)


def of_counts(y_train: np.ndarray, y: np.ndarray, predicted: Distribution) -> dict[str, float]:
    return {
        "deviance": metrics.poisson_deviance(y, predicted.mean),
        "log_score": float(-np.mean(predicted.log_density(y))),
    } | _of_quantiles(y, predicted, float(np.std(y_train)))


def of_classes(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    # A model that is certain and wrong would have an infinite loss; six digits are what it may claim.
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return {"log_loss": metrics.log_loss(y, p), "brier": metrics.brier(y, p), "auc": metrics.auc(y, p)}


def _of_quantiles(y: np.ndarray, predicted: Distribution, sd: float) -> dict[str, float]:
    found = {
        "rmse": metrics.rmse(y, predicted.mean) / sd,
        "crps": metrics.crps_from_quantiles(y, predicted.quantile(SCORE_LEVELS), SCORE_LEVELS) / sd,
    }
    for level in CENTRAL:
        lower, upper = predicted.quantile([(1 - level) / 2, (1 + level) / 2]).T
        found[f"cover{round(100 * level)}"] = metrics.coverage(y, lower, upper)
    # The last level is the widest.
    return found | {"interval": metrics.interval_score(y, lower, upper, level) / sd}
