"""XGBoost: categories as they are; all quantiles in one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import xgboost

from benchmarks.league.models import Limits, boosting
from benchmarks.league.models.boosting import PATIENCE, ROUNDS, Loss
from benchmarks.league.tables import Task

OBJECTIVES = {
    "squared": "reg:squarederror", "poisson": "count:poisson", "logistic": "binary:logistic",
    "quantile": "reg:quantileerror",
}  # fmt: skip


@dataclass(frozen=True)
class Trees:
    model: Any
    rounds: np.ndarray

    def predict(self, X: Any) -> np.ndarray:
        data = xgboost.DMatrix(X, enable_categorical=True)
        return np.asarray(self.model.predict(data, iteration_range=(0, int(self.rounds[0]))), float)


@dataclass(frozen=True)
class XGBoost:
    limits: Limits
    space: ClassVar[dict[str, tuple[Any, ...]]] = {
        "eta": (0.3, 0.1, 0.05, 0.03),
        "max_depth": (6, 3, 4, 8, 10),
        "min_child_weight": (1, 5, 20),
        "subsample": (1.0, 0.6, 0.8),
        "colsample_bytree": (1.0, 0.5, 0.8),
        "lambda": (1.0, 0.1, 10.0),
    }

    def rows(self, task: Task) -> tuple[Any, Any]:
        return task.typed

    def grow(
        self, X: Any, y: np.ndarray, loss: Loss, setting: Mapping[str, Any],
        held: tuple[Any, np.ndarray] | None = None, rounds: np.ndarray | None = None,
    ) -> Trees:  # fmt: skip
        asked = {**setting, "objective": OBJECTIVES[loss.name], "tree_method": "hist", "verbosity": 0}
        asked |= {"nthread": self.limits.threads, "seed": self.limits.seed}
        asked |= {"quantile_alpha": np.array(loss.levels)} if loss.levels else {}
        data = xgboost.DMatrix(X, y, enable_categorical=True)
        if held is None:
            count = int((np.array([ROUNDS]) if rounds is None else rounds)[0])
            return Trees(xgboost.train(asked, data, count), np.array([count]))
        judged = [(xgboost.DMatrix(*held, enable_categorical=True), "held")]
        stop = {"early_stopping_rounds": PATIENCE, "verbose_eval": False}
        model = xgboost.train(asked, data, ROUNDS, evals=judged, **stop)
        return Trees(model, np.array([model.best_iteration + 1]))


numbers, counts, classes = boosting.entries(XGBoost)
