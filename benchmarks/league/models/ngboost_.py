"""NGBoost: a Normal, or a Bernoulli, by natural gradients."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from ngboost import NGBClassifier, NGBRegressor
from sklearn.tree import DecisionTreeRegressor

from benchmarks.league.distributions import Gaussian
from benchmarks.league.models import Limits, Predict
from benchmarks.league.models.boosting import left_out
from benchmarks.league.tables import Task

DEPTHS = (3, 5, 2)
ROUNDS, PATIENCE = 500, 20
# Rows that a step sees at most: its trees are sorted anew at every step.
STEP_ROWS = 2_000


def _make(kind: type, depth: int, rounds: int, rows: int, limits: Limits) -> Any:
    return kind(
        Base=DecisionTreeRegressor(criterion="friedman_mse", max_depth=depth, random_state=limits.seed),
        n_estimators=rounds, learning_rate=0.03, minibatch_frac=min(1.0, STEP_ROWS / rows), verbose=False,
        random_state=limits.seed,
    )  # fmt: skip


def _tuned(kind: type, X: np.ndarray, y: np.ndarray, limits: Limits) -> Any:
    """The depth of trees and number of rounds that left-out rows like best, grown again on all rows."""
    began, best = time.perf_counter(), None
    held = left_out(len(y), limits.seed)[0]
    kept = np.setdiff1d(np.arange(len(y)), held)
    for depth in DEPTHS:
        model = _make(kind, depth, ROUNDS, len(kept), limits)
        model.fit(X[kept], y[kept], X_val=X[held], Y_val=y[held], early_stopping_rounds=PATIENCE)
        (losses,) = model.evals_result["val"].values()
        score, rounds = float(np.min(losses)), int(np.argmin(losses)) + 1
        if best is None or score < best[0]:
            best = score, depth, rounds
        if time.perf_counter() - began > limits.seconds:
            break
    assert best is not None
    return _make(kind, *best[1:], len(y), limits).fit(X, y)


def numbers(task: Task, limits: Limits) -> Predict:
    X, X_test = task.numbers
    centre, scale = float(np.mean(task.y)), float(np.std(task.y))
    model = _tuned(NGBRegressor, X, (task.y - centre) / scale, limits)

    def predict() -> Gaussian:
        found = model.pred_dist(X_test)
        return Gaussian(centre + scale * found.loc, scale * np.maximum(found.scale, 1e-6))

    return predict


def classes(task: Task, limits: Limits) -> Predict:
    X, X_test = task.numbers
    model = _tuned(NGBClassifier, X, task.y.astype(int), limits)
    return lambda: model.predict_proba(X_test)[:, 1]
