"""widegp as a user gets it: the default, or ``plain()``, with any settings changed."""

from __future__ import annotations

import warnings
from typing import Any

from benchmarks.league.models import Limits, Predict
from benchmarks.league.tables import Task
from widegp import WideGPClassifier, WideGPRegressor


def numbers(task: Task, limits: Limits, plain: bool = False, **settings: Any) -> Predict:
    X, X_test = task.numbers
    make = WideGPRegressor.plain if plain else WideGPRegressor
    with warnings.catch_warnings():
        # A fit that has not converged is scored as it is.
        warnings.simplefilter("ignore")
        model = make(random_state=limits.seed, **settings).fit(X, task.y)
    return lambda: model.predict_distribution(X_test)


outputs = numbers


def counts(task: Task, limits: Limits, plain: bool = False, **settings: Any) -> Predict:
    return numbers(task, limits, plain, **({"likelihood": "negative-binomial"} | settings))


def classes(task: Task, limits: Limits, **settings: Any) -> Predict:
    X, X_test = task.numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = WideGPClassifier(random_state=limits.seed, **settings).fit(X, task.y)
    return lambda: model.predict_proba(X_test)[:, 1]
