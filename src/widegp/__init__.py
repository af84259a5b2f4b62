"""Gaussian processes from wide Bayesian neural networks, for tables of up to millions of rows."""

from widegp import budget, kernels, metrics
from widegp.estimator import WideGPRegressor, load
from widegp.inference.priors import Beta, InverseGamma
from widegp.inference.result import FitResult, Reason

__version__ = "0.1.0"

__all__ = [
    "Beta",
    "FitResult",
    "InverseGamma",
    "Reason",
    "WideGPRegressor",
    "budget",
    "kernels",
    "load",
    "metrics",
]
