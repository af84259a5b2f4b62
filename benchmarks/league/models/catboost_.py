"""CatBoost: categories as they are; all quantiles in one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import catboost
import numpy as np
import pandas as pd

from benchmarks.league.models import Limits, Predict, boosting
from benchmarks.league.models.boosting import PATIENCE, ROUNDS, Loss
from benchmarks.league.tables import Task

OBJECTIVES = {"squared": "RMSE", "poisson": "Poisson", "logistic": "Logloss", "quantile": "MultiQuantile"}
FORMS = {"poisson": "Exponent", "logistic": "Probability"}


@dataclass(frozen=True)
class Trees:
    model: Any
    rounds: np.ndarray
    form: str

    def predict(self, X: Any) -> np.ndarray:
        found = np.asarray(self.model.predict(X, prediction_type=self.form))
        return found[:, 1] if self.form == "Probability" else found


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
        categories = [name for name, column in X.items() if not pd.api.types.is_numeric_dtype(column)]
        judged = None if held is None else catboost.Pool(*held, cat_features=categories)
        stop = {} if held is None else {"eval_set": judged, "early_stopping_rounds": PATIENCE}
        model.fit(catboost.Pool(X, y, cat_features=categories), **stop)
        return Trees(model, np.array([model.tree_count_]), FORMS.get(loss.name, "RawFormulaVal"))


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Categories as text, which is what CatBoost takes; gaps are a level of their own."""
    kept = {}
    for name, column in frame.items():
        numeric = pd.api.types.is_numeric_dtype(column)
        kept[name] = column if numeric else column.astype(object).fillna("missing").astype(str)
    return pd.DataFrame(kept)


def numbers(task: Task, limits: Limits) -> Predict:
    return boosting.numbers(CatBoost(limits), task, limits)


def counts(task: Task, limits: Limits) -> Predict:
    return boosting.counts(CatBoost(limits), task, limits)


def classes(task: Task, limits: Limits) -> Predict:
    return boosting.classes(CatBoost(limits), task, limits)
