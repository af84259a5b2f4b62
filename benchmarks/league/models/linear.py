"""Linear models, on standardised numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import BayesianRidge, LogisticRegressionCV, PoissonRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.league.distributions import Gaussian, NegativeBinomial
from benchmarks.league.models import Limits, Predict
from benchmarks.league.models.boosting import likeliest_dispersion
from benchmarks.league.tables import Task

STRENGTHS = np.logspace(-6, 1, 8)


def _behind_scaler(model: Any) -> Pipeline:
    return make_pipeline(StandardScaler(), model)


def numbers(task: Task, limits: Limits) -> Predict:
    """y = x'b + e, variances of b and e by maximum likelihood (BayesianRidge)."""
    X, X_test = task.numbers
    model = _behind_scaler(BayesianRidge()).fit(X, task.y)
    return lambda: Gaussian(*model.predict(X_test, return_std=True))


def counts(task: Task, limits: Limits) -> Predict:
    """log E y = x'b; the dispersion is that of the training rows, of which b has few."""
    X, X_test = task.numbers
    search = GridSearchCV(PoissonRegressor(max_iter=500), {"alpha": STRENGTHS}, cv=5)
    model = _behind_scaler(search).fit(X, task.y)
    dispersion = likeliest_dispersion(task.y, model.predict(X))
    return lambda: NegativeBinomial(model.predict(X_test), dispersion)


def classes(task: Task, limits: Limits) -> Predict:
    X, X_test = task.numbers
    model = _behind_scaler(LogisticRegressionCV(Cs=8, cv=5, scoring="neg_log_loss", max_iter=500))
    model.fit(X, task.y)
    return lambda: model.predict_proba(X_test)[:, 1]
