"""The models of the league: what each needs, which targets it takes, and the file that fits it.

A file of this folder has one function for each sort of target that its models take,

    numbers(task, limits, **settings), counts(...), classes(...) -> a function of no arguments

which fits, and returns what predicts the test rows: a `Distribution`, or P(y = 1) for classes. Where a file
has no ``counts``, counts are predicted as numbers and rounded. Outputs are fitted one by one, unless the file
has ``outputs``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple

Predict = Callable[[], Any]


class Limits(NamedTuple):
    """seconds : for tuning, or for steps of models that train by steps.    threads, seed : as they say."""

    seconds: float
    threads: int
    seed: int


@dataclass(frozen=True)
class Model:
    """file : of this folder.    needs : modules to import.    packages : whose versions matter.

    sorts : of targets it is entered for.    settings : for the file's functions.
    tuned : whether the seconds of `Limits` matter to it.    said : what it is and how it is tuned.
    """

    title: str
    file: str
    said: str
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ("scikit-learn",)
    sorts: tuple[str, ...] = ("numbers", "counts", "classes")
    settings: Mapping[str, Any] = field(default_factory=dict)
    tuned: bool = True

    @property
    def installed(self) -> bool:
        return all(find_spec(name) is not None for name in self.needs)


OWN = ("widegp", "numpy", "scipy", "numba", "jax", "faiss-cpu")
LENGTHS = "Matern 5/2 with a length for each input"
SEARCHED = (
    "random search over the settings named in its file, its own defaults first, until the tuning time is"
    " spent, with early stopping; intervals from quantile losses or from left-out residuals, whichever is"
    " likelier on left-out rows"
)
MODELS = {
    "widegp": Model(
        "widegp", "own", "`WideGPRegressor()` and `WideGPClassifier()`, nothing tuned", (), OWN, tuned=False
    ),
    "widegp-plain": Model(
        "widegp plain", "own", "`WideGPRegressor.plain()`: no choices on held-out rows", (), OWN,
        ("numbers", "counts"), {"plain": True}, tuned=False,
    ),
    "lightgbm": Model("LightGBM", "lightgbm_", SEARCHED, ("lightgbm",), ("lightgbm",)),
    "xgboost": Model("XGBoost", "xgboost_", SEARCHED, ("xgboost",), ("xgboost-cpu", "xgboost")),
    "catboost": Model("CatBoost", "catboost_", SEARCHED, ("catboost",), ("catboost",)),
    "hist-boosting": Model("HistGradientBoosting", "hist", SEARCHED),
    "ngboost": Model(
        "NGBoost", "ngboost_", "a Normal, by natural gradients; depth of trees chosen within the tuning time,"
        " rounds by early stopping; a step sees 2,000 rows at most", ("ngboost",), ("ngboost",),
    ),
    "sklearn-gp": Model(
        "scikit-learn GP", "sklearn_gp", LENGTHS + ", noise estimated, on a subset of 2,000 rows, and fewer"
        " where the gradients would take more than half a GB; classes: 500 rows", tuned=False,
    ),
    "gpboost": Model(
        "GPBoost", "gpboost_", "GP, Matern 3/2 with a length for each input, Vecchia with 20 neighbours",
        ("gpboost",), ("gpboost",), ("numbers", "counts"), tuned=False,
    ),
    "gpytorch-sgpr": Model(
        "GPyTorch SGPR", "gpytorch_", LENGTHS + ", 500 inducing rows, Adam for the tuning time",
        ("gpytorch",), ("gpytorch", "torch"), ("numbers", "counts"), {"variational": False},
    ),
    "gpytorch-svgp": Model(
        "GPyTorch SVGP", "gpytorch_", LENGTHS + ", 500 inducing points that move, batches of 1,024 rows, Adam"
        " for the tuning time", ("gpytorch",), ("gpytorch", "torch"), settings={"variational": True},
    ),
    "linear": Model(
        "linear", "linear", "Bayesian ridge; counts: Poisson regression, classes: logistic regression, with"
        " the penalty by cross-validation", tuned=False,
    ),
}  # fmt: skip
