"""LightGBM: categories as they are; one model for each quantile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import lightgbm
import numpy as np

from benchmarks.league.models import Limits, boosting
from benchmarks.league.models.boosting import PATIENCE, ROUNDS, Loss
from benchmarks.league.tables import Task

OBJECTIVES = {"squared": "regression", "poisson": "poisson", "logistic": "binary", "quantile": "quantile"}


@dataclass(frozen=True)
class Trees:
    models: list[Any]
    rounds: np.ndarray

    def predict(self, X: Any) -> np.ndarray:
        found = [model.predict(X, num_iteration=k) for model, k in zip(self.models, self.rounds, strict=True)]
        return found[0] if len(found) == 1 else np.stack(found, axis=1)


@dataclass(frozen=True)
class LightGBM:
    limits: Limits
    space: ClassVar[dict[str, tuple[Any, ...]]] = {
        "learning_rate": (0.1, 0.05, 0.03),
        "num_leaves": (31, 7, 15, 63, 127, 255),
        "min_child_samples": (20, 3, 10, 50),
        "subsample": (1.0, 0.6, 0.8),
        "colsample_bytree": (1.0, 0.5, 0.8),
        "reg_lambda": (0.0, 1.0, 10.0),
    }

    def rows(self, task: Task) -> tuple[Any, Any]:
        return task.typed

    def grow(
        self, X: Any, y: np.ndarray, loss: Loss, setting: Mapping[str, Any],
        held: tuple[Any, np.ndarray] | None = None, rounds: np.ndarray | None = None,
    ) -> Trees:  # fmt: skip
        one = partial(self._one, lightgbm.Dataset(X, y, free_raw_data=False), setting, held)
        levels = loss.levels or (None,)
        asked = [ROUNDS] * len(levels) if rounds is None else list(rounds)
        models = [one(loss.name, level, int(k)) for level, k in zip(levels, asked, strict=True)]
        # Without early stopping best_iteration is 0.
        return Trees(models, np.array([model.best_iteration or model.num_trees() for model in models]))

    def _one(
        self, data: Any, setting: Mapping[str, Any], held: tuple[Any, np.ndarray] | None, loss: str,
        level: float | None, rounds: int,
    ) -> Any:  # fmt: skip
        asked = {**setting, "objective": OBJECTIVES[loss], "subsample_freq": 1, "verbose": -1}
        asked |= {"num_threads": self.limits.threads, "seed": self.limits.seed, "max_cat_to_onehot": 4}
        asked |= {} if level is None else {"alpha": level}
        if held is None:
            return lightgbm.train(asked, data, rounds)
        judged = lightgbm.Dataset(*held, reference=data)
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        return lightgbm.train(asked, data, rounds, valid_sets=[judged], callbacks=[stop])


numbers, counts, classes = boosting.entries(LightGBM)
