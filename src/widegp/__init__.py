"""Gaussian processes from wide Bayesian neural networks, for tables of up to millions of rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widegp import budget, designs, identifiability, kernels, metrics, networks, plot, simulate
    from widegp.classifier import WideGPClassifier
    from widegp.estimator import WideGPRegressor, load
    from widegp.inference.priors import Beta, InverseGamma, LogNormal
    from widegp.inference.result import FitResult, Reason
    from widegp.predictive import Predictive
    from widegp.table_encoder import TableEncoder
    from widegp.table_model import TableModel

__version__ = "0.1.0"

__all__ = [
    "Beta",
    "FitResult",
    "InverseGamma",
    "LogNormal",
    "Predictive",
    "Reason",
    "TableEncoder",
    "TableModel",
    "WideGPClassifier",
    "WideGPRegressor",
    "budget",
    "designs",
    "identifiability",
    "kernels",
    "load",
    "metrics",
    "networks",
    "plot",
    "simulate",
]

# Where each public name lives. They are imported when first asked for: JAX and scikit-learn take seconds, and
# `widegp --help` needs neither.
_HOMES = {
    "Beta": "widegp.inference.priors",
    "FitResult": "widegp.inference.result",
    "InverseGamma": "widegp.inference.priors",
    "LogNormal": "widegp.inference.priors",
    "Predictive": "widegp.predictive",
    "Reason": "widegp.inference.result",
    "TableEncoder": "widegp.table_encoder",
    "TableModel": "widegp.table_model",
    "WideGPClassifier": "widegp.classifier",
    "WideGPRegressor": "widegp.estimator",
    "load": "widegp.estimator",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'widegp' has no attribute {name!r}")
    try:
        home = import_module(_HOMES.get(name, f"widegp.{name}"))
    except ModuleNotFoundError as error:
        from widegp.extras import MissingExtra, missing_words

        words = missing_words(error.name or "")
        if words is None or isinstance(error, MissingExtra):
            raise
        raise MissingExtra(f"{name} cannot be used: {words}", name=error.name) from error
    value = getattr(home, name) if name in _HOMES else home
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
