"""Centred priors of the weights, by name, scaled to unit variance."""

from __future__ import annotations

import math

import numpy as np

Prior = str | tuple[str, float]

NAMES = ("gaussian", "uniform", "laplace", "student-t")


def check_prior(prior: Prior) -> None:
    """Raise ValueError unless ``prior`` names a distribution with a finite variance."""
    name, df = _parts(prior)
    if name not in NAMES:
        raise ValueError(
            f"Unknown prior {prior!r}; choose 'gaussian', 'uniform', 'laplace' or ('student-t', df)."
        )
    if name == "student-t" and not df > 2:
        raise ValueError(
            f"A Student-t prior has a finite variance, which the limit needs, for df > 2 only; got {prior!r}."
            " Pass ('student-t', df) with a larger df."
        )


def unit_draws(prior: Prior, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Independent draws with mean 0 and variance 1, filled in C order whatever the shape."""
    name, df = _parts(prior)
    match name:
        case "gaussian":
            return rng.standard_normal(shape)
        case "uniform":
            return rng.uniform(-math.sqrt(3), math.sqrt(3), shape)
        case "laplace":
            return rng.laplace(scale=math.sqrt(0.5), size=shape)
    return rng.standard_t(df, shape) * math.sqrt((df - 2) / df)


def excess_kurtosis(prior: Prior) -> float:
    """E[v^4] / E[v^2]^2 - 3; infinite for Student-t up to four degrees of freedom."""
    name, df = _parts(prior)
    if name == "student-t":
        return 6 / (df - 4) if df > 4 else math.inf
    return {"gaussian": 0.0, "uniform": -1.2, "laplace": 3.0}[name]


def largest_power(prior: Prior) -> float:
    """sup of p with E|z|^p finite for a sum z of such weights: df for Student-t, infinite otherwise."""
    name, df = _parts(prior)
    return df if name == "student-t" else math.inf


def _parts(prior: Prior) -> tuple[str, float]:
    if isinstance(prior, str):
        return prior, 0.0 if prior == "student-t" else math.inf
    if isinstance(prior, tuple) and len(prior) == 2 and prior[0] == "student-t":
        return prior[0], float(prior[1])
    raise ValueError(f"A prior is 'gaussian', 'uniform', 'laplace' or ('student-t', df); got {prior!r}.")
