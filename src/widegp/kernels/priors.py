"""Priors of eq. (map_loss_body): Inverse-Gamma for variances, Beta for fractions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Prior(Protocol):
    """Minus the log density up to a constant, summed over entries, and its derivative."""

    def penalty(self, x: np.ndarray) -> float: ...

    def slope(self, x: np.ndarray) -> np.ndarray: ...

    def distribution(self) -> Any:
        """The same as a frozen distribution of `scipy.stats`: ``pdf``, ``ppf``, ``rvs``."""

    def words(self) -> str:
        """Name and numbers, as a reader likes them."""


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

    def scaled(self, factor: float) -> InverseGamma:
        """The prior of ``factor`` times the variance."""
        return InverseGamma(self.shape, self.scale * factor)

    def distribution(self) -> Any:
        from scipy import stats

        return stats.invgamma(self.shape, scale=self.scale)

    def words(self) -> str:
        return f"Inverse-Gamma({self.shape:.3g}, {self.scale:.3g})"


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

    def distribution(self) -> Any:
        from scipy import stats

        return stats.beta(self.a, self.b)

    def words(self) -> str:
        return f"Beta({self.a:.3g}, {self.b:.3g})"
