"""scikit-learn's HistGradientBoosting: encoded numbers, one model for each quantile.

Early stopping looks back: trees are grown to the end, and as many kept as left-out rows liked best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from benchmarks.league.models import Limits, boosting
from benchmarks.league.models.boosting import Loss, value
from benchmarks.league.tables import Task

ROUNDS = 200


@dataclass(frozen=True)
class Trees:
    models: list[Any]
    rounds: np.ndarray

    def predict(self, X: Any) -> np.ndarray:
        found = []
        for model, count in zip(self.models, self.rounds, strict=True):
            # The stage that was kept; the stages after it cost nothing, since they are not asked for.
            for k, stage in enumerate(_stages(model, X), start=1):
                if k == count:
                    found.append(stage)
                    break
        return found[0] if len(found) == 1 else np.stack(found, axis=1)


@dataclass(frozen=True)
class HistBoosting:
    limits: Limits
    space: ClassVar[dict[str, tuple[Any, ...]]] = {
        "learning_rate": (0.1, 0.05, 0.2),
        "max_leaf_nodes": (31, 7, 15, 63, 127),
        "min_samples_leaf": (20, 3, 10, 50),
        "l2_regularization": (0.0, 1.0, 10.0),
        "max_features": (1.0, 0.5),
    }

    def rows(self, task: Task) -> tuple[Any, Any]:
        return task.numbers

    def grow(
        self, X: Any, y: np.ndarray, loss: Loss, setting: Mapping[str, Any],
        held: tuple[Any, np.ndarray] | None = None, rounds: np.ndarray | None = None,
    ) -> Trees:  # fmt: skip
        levels = loss.levels or (None,)
        asked = [ROUNDS] * len(levels) if rounds is None else list(rounds)
        models = [
            self._one(X, y, loss, level, {**setting, "max_iter": int(count)})
            for level, count in zip(levels, asked, strict=True)
        ]
        if held is None:
            return Trees(models, np.array(asked, int))
        best = [_best(model, held, loss, level) for model, level in zip(models, levels, strict=True)]
        return Trees(models, np.array(best))

    def _one(
        self, X: np.ndarray, y: np.ndarray, loss: Loss, level: float | None, setting: Mapping[str, Any]
    ) -> Any:
        common = {**setting, "early_stopping": False, "random_state": self.limits.seed}
        if loss.name == "logistic":
            return HistGradientBoostingClassifier(**common).fit(X, y)
        name = "squared_error" if loss.name == "squared" else loss.name
        return HistGradientBoostingRegressor(loss=name, quantile=level, **common).fit(X, y)


def _stages(model: Any, X: np.ndarray) -> Any:
    if hasattr(model, "staged_predict_proba"):
        return (p[:, 1] for p in model.staged_predict_proba(X))
    return model.staged_predict(X)


def _best(model: Any, held: tuple[Any, np.ndarray], loss: Loss, level: float | None) -> int:
    """The number of trees with which left-out rows have the lowest loss."""
    X, y = held
    one = loss if level is None else Loss("quantile", (level,))
    shaped = (stage if level is None else stage[:, None] for stage in _stages(model, X))
    return 1 + int(np.argmin([value(one, y, stage) for stage in shaped]))


numbers, counts, classes = boosting.entries(HistBoosting)
