"""Priors of eq. (map_loss_body): Inverse-Gamma for variances, Beta for alpha and w."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from widegp.inference.parameters import FRACTION, FREE, Values, kind_of


class Prior(Protocol):
    """Minus the log density up to a constant, summed over entries, and its derivative."""

    def penalty(self, x: np.ndarray) -> float: ...

    def slope(self, x: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class InverseGamma:
    """(shape + 1) log x + scale / x. The mode is scale / (shape + 1)."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        if not (self.shape > 0 and self.scale > 0):
            raise ValueError(f"InverseGamma needs shape > 0 and scale > 0; got {self.shape}, {self.scale}.")

    def penalty(self, x: np.ndarray) -> float:
        return float(np.sum((self.shape + 1) * np.log(x) + self.scale / x))

    def slope(self, x: np.ndarray) -> np.ndarray:
        return (self.shape + 1) / x - self.scale / x**2


@dataclass(frozen=True)
class Beta:
    """-(a - 1) log x - (b - 1) log(1 - x)."""

    a: float
    b: float

    def __post_init__(self) -> None:
        if not (self.a > 0 and self.b > 0):
            raise ValueError(f"Beta needs a > 0 and b > 0; got {self.a}, {self.b}.")

    def penalty(self, x: np.ndarray) -> float:
        return float(-np.sum((self.a - 1) * np.log(x) + (self.b - 1) * np.log1p(-x)))

    def slope(self, x: np.ndarray) -> np.ndarray:
        return -(self.a - 1) / x + (self.b - 1) / (1 - x)


def default_priors(n_inputs: int, ard: bool) -> dict[str, Prior]:
    """Weak priors on the scale of a standardised target and standardised inputs.

    They say little where the data speak and keep the flat directions finite where they do not
    (sigma_a2, sigma_u2 and sigma_v2 trade off as w nears 1). With one sigma_u2 per input the scale is
    small against 1/I, so that the logarithm in the density pulls inputs that explain nothing towards 0.
    """
    scale = 1.0 / n_inputs
    return {
        "sigma_a2": InverseGamma(1.0, 1.0),
        "sigma_u2": InverseGamma(0.2, 1e-3 * scale) if ard else InverseGamma(1.0, scale),
        "sigma_b2": InverseGamma(1.0, 0.5),
        "sigma_v2": InverseGamma(1.0, 1.0),
        "alpha": Beta(1.5, 1.5),
        "w": Beta(1.5, 1.5),
        "weights": Beta(1.5, 1.5),
        "sigma_eps2": InverseGamma(1.0, 1e-3),
    }


def resolve_priors(priors: object, n_inputs: int, ard: bool) -> dict[str, Prior]:
    """``"default"``, None (no priors), or a mapping that replaces some defaults (None switches one off)."""
    if priors is None or priors == "none":
        return {}
    defaults = default_priors(n_inputs, ard)
    if priors == "default":
        return defaults
    if not isinstance(priors, Mapping):
        raise ValueError(
            f"priors must be 'default', None or a mapping of names to InverseGamma or Beta; got {priors!r}."
        )
    for name, prior in priors.items():
        if name not in defaults:
            raise ValueError(
                f"There is no parameter {name!r} to put a prior on; choose from {', '.join(defaults)}."
            )
        wanted = Beta if kind_of(name) is FRACTION else InverseGamma
        if prior is not None and not isinstance(prior, wanted):
            raise ValueError(f"The prior of {name} must be {wanted.__name__} or None; got {prior!r}.")
    merged = {**defaults, **priors}
    return {name: prior for name, prior in merged.items() if prior is not None}


def penalty(priors: Mapping[str, Prior], values: Values) -> tuple[float, Values]:
    """Sum of the priors' penalties and its derivative by every value."""
    total, slopes = 0.0, {}
    for name, value in values.items():
        prior = priors.get(name)
        if prior is None or kind_of(name) is FREE:
            slopes[name] = np.zeros_like(value)
        else:
            total += prior.penalty(value)
            slopes[name] = prior.slope(value)
    return total, slopes
