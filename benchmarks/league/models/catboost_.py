"""CatBoost: categories as they are; all quantiles in one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import catboost
import numpy as np
import pandas as pd

from benchmarks.league.models import Limits, boosting
from benchmarks.league.models.boosting import PATIENCE, ROUNDS, Loss
from benchmarks.league.tables import Task

OBJECTIVES = {"squared": "RMSE", "poisson": "Poisson", "logistic": "Logloss", "quantile": "MultiQuantile"}


@dataclass(frozen=True)
class Trees:
    model: Any
    rounds: np.ndarray
    loss: Loss
    level: float

    def predict(self, X: Any) -> np.ndarray:
        if self.loss.name == "logistic":
            return np.asarray(self.model.predict(X, prediction_type="Probability"))[:, 1]
        found = np.asarray(self.model.predict(X, prediction_type="RawFormulaVal"))
        return np.exp(self.level + found) if self.loss.name == "poisson" else found


@dataclass(frozen=True)
class CatBoost:
    limits: Limits
    # Without a rate CatBoost takes one by the number of rows, which is its own default.
    space: ClassVar[dict[str, tuple[Any, ...]]] = {
        "learning_rate": (None, 0.1, 0.05, 0.03),
        "depth": (6, 4, 8, 10),
        "l2_leaf_reg": (3.0, 1.0, 10.0),
        "random_strength": (1.0, 0.1, 5.0),
    }

    def rows(self, task: Task) -> tuple[Any, Any]:
        return _as_text(task.typed[0]), _as_text(task.typed[1])

    def grow(
        self, X: Any, y: np.ndarray, loss: Loss, setting: Mapping[str, Any],
        held: tuple[Any, np.ndarray] | None = None, rounds: np.ndarray | None = None,
    ) -> Trees:  # fmt: skip
        name = OBJECTIVES[loss.name]
        name += ":alpha=" + ",".join(map(str, loss.levels)) if loss.levels else ""
        model = catboost.CatBoost(
            {
                **{key: choice for key, choice in setting.items() if choice is not None},
                "loss_function": name, "thread_count": self.limits.threads, "random_seed": self.limits.seed,
                "iterations": ROUNDS if rounds is None else int(rounds[0]), "verbose": False,
                "allow_writing_files": False,
            }
        )  # fmt: skip
        # Its Poisson loss begins at a mean of 1, from which many rounds lead nowhere but to the mean.
        level = float(np.log(np.mean(y))) if loss.name == "poisson" else 0.0
        stop = {} if held is None else {"eval_set": _pool(*held, level), "early_stopping_rounds": PATIENCE}
        model.fit(_pool(X, y, level), **stop)
        return Trees(model, np.array([model.tree_count_]), loss, level)


def _pool(X: pd.DataFrame, y: np.ndarray, level: float) -> Any:
    categories = [name for name, column in X.items() if not pd.api.types.is_numeric_dtype(column)]
    baseline = np.full(len(y), level) if level else None
    return catboost.Pool(X, y, cat_features=categories, baseline=baseline)


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Categories as text, which is what CatBoost takes; gaps are a level of their own."""
    kept = {}
    for name, column in frame.items():
        numeric = pd.api.types.is_numeric_dtype(column)
        kept[name] = column if numeric else column.astype(object).fillna("missing").astype(str)
    return pd.DataFrame(kept)


numbers, counts, classes = boosting.entries(CatBoost)
