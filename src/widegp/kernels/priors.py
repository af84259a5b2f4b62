"""Priors of eq. (map_loss_body): log-normal or Inverse-Gamma for variances, Beta for fractions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import betaln, gammaln

LOG_ROOT_2PI = float(np.log(2 * np.pi)) / 2


class Prior(Protocol):
    """Minus the log density up to a constant, summed over entries, and its derivative.

    ``of_logarithm`` : whether exp(-penalty) is the density of log x, instead of that of x.
    """

    of_logarithm: ClassVar[bool]

    def penalty(self, x: np.ndarray) -> float: ...

    def each(self, x: np.ndarray) -> np.ndarray:
        """`penalty` of every entry as if it were the only one."""

    def slope(self, x: np.ndarray) -> np.ndarray: ...

    def log_normaliser(self, size: int) -> float:
        """log int exp(-penalty), over x or over log x, for ``size`` entries."""

    def distribution(self) -> Any:
        """The same as a frozen distribution of `scipy.stats`: ``pdf``, ``ppf``, ``rvs``."""

    def words(self) -> str:
        """Name and numbers, as a reader likes them."""


@dataclass(frozen=True)
class InverseGamma:
    """(shape + 1) log x + scale / x. The mode is scale / (shape + 1)."""

    of_logarithm: ClassVar[bool] = False
    shape: float
    scale: float

    def __post_init__(self) -> None:
        if not (self.shape > 0 and self.scale > 0):
            raise ValueError(f"InverseGamma needs shape > 0 and scale > 0; got {self.shape}, {self.scale}.")

    def penalty(self, x: np.ndarray) -> float:
        return float(np.sum(self.each(x)))

    def each(self, x: np.ndarray) -> np.ndarray:
        penalties: np.ndarray = (self.shape + 1) * np.log(x) + self.scale / x
        return penalties

    def slope(self, x: np.ndarray) -> np.ndarray:
        return (self.shape + 1) / x - self.scale / x**2

    def log_normaliser(self, size: int) -> float:
        return size * float(gammaln(self.shape) - self.shape * np.log(self.scale))

    def scaled(self, factor: float) -> InverseGamma:
        """The prior of ``factor`` times the variance."""
        return InverseGamma(self.shape, self.scale * factor)

    def distribution(self) -> Any:
        from scipy import stats

        return stats.invgamma(self.shape, scale=self.scale)

    def words(self) -> str:
        return f"Inverse-Gamma({self.shape:.3g}, {self.scale:.3g})"


@dataclass(frozen=True)
class LogNormal:
    """log(x / median)^2 / (2 spread^2): log x is Gaussian, and its density, that of log x, enters the loss.

    The penalty is even in log x and grows slowly, so that few rows are not drawn to a variance of 0, as by
    the logarithm of an Inverse-Gamma, and many rows reach one that is thousands of times smaller than the
    median, which the term scale / x of an Inverse-Gamma forbids.
    """

    of_logarithm: ClassVar[bool] = True
    median: float
    spread: float

    def __post_init__(self) -> None:
        if not (self.median > 0 and self.spread > 0):
            raise ValueError(f"LogNormal needs median > 0 and spread > 0; got {self.median}, {self.spread}.")

    def penalty(self, x: np.ndarray) -> float:
        return float(np.sum(np.log(x / self.median) ** 2)) / (2 * self.spread**2)

    def each(self, x: np.ndarray) -> np.ndarray:
        penalties: np.ndarray = np.log(x / self.median) ** 2 / (2 * self.spread**2)
        return penalties

    def slope(self, x: np.ndarray) -> np.ndarray:
        return np.log(x / self.median) / (self.spread**2 * x)

    def log_normaliser(self, size: int) -> float:
        return size * (float(np.log(self.spread)) + LOG_ROOT_2PI)

    def scaled(self, factor: float) -> LogNormal:
        """The prior of ``factor`` times the variance."""
        return LogNormal(self.median * factor, self.spread)

    def distribution(self) -> Any:
        from scipy import stats

        return stats.lognorm(self.spread, scale=self.median)

    def words(self) -> str:
        return f"log-normal, median {self.median:.3g}, spread {self.spread:.3g}"


@dataclass(frozen=True)
class Relative:
    """common(m) + sum_i log(x_i / m)^2 / (2 spread^2), m the geometric mean of the entries of x (I,).

    The entries are compared with each other, and their mean alone with a scale from outside: equal entries
    have the penalty that a single variance for all inputs has, whatever their number. log m and the
    log(x_i / m) are independent under it, so that its normaliser is known, and the evidence of one variance
    per input can be set beside that of one for all.
    """

    of_logarithm: ClassVar[bool] = True
    common: LogNormal
    spread: float

    def penalty(self, x: np.ndarray) -> float:
        apart, m = self._parts(x)
        return self.common.penalty(m) + float(np.sum(apart**2)) / (2 * self.spread**2)

    def each(self, x: np.ndarray) -> np.ndarray:
        return self.common.each(x)

    def slope(self, x: np.ndarray) -> np.ndarray:
        # The derivatives of sum_i log(x_i / m)^2 by m cancel, since the logarithms sum to 0.
        apart, m = self._parts(x)
        slopes: np.ndarray = (apart / self.spread**2 + m * self.common.slope(m) / np.size(x)) / x
        return slopes

    @staticmethod
    def _parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log(x_i / m) (I,) and m."""
        logs = np.log(x)
        level = np.mean(logs)
        return logs - level, np.exp(level)

    def log_normaliser(self, size: int) -> float:
        """log int exp(-penalty) d log x: I - 1 directions across the mean, and sqrt I d log m along it."""
        apart = (size - 1) * (float(np.log(self.spread)) + LOG_ROOT_2PI) + float(np.log(size)) / 2
        return self.common.log_normaliser(1) + apart

    def scaled(self, factor: float) -> Relative:
        """The prior of ``factor`` times the variances."""
        return Relative(self.common.scaled(factor), self.spread)

    def distribution(self) -> Any:
        """Of one entry."""
        return LogNormal(self.common.median, float(np.hypot(self.common.spread, self.spread))).distribution()

    def words(self) -> str:
        return f"{self.common.words()}; entries around their mean with spread {self.spread:.3g}"


@dataclass(frozen=True)
class Beta:
    """-(a - 1) log x - (b - 1) log(1 - x)."""

    of_logarithm: ClassVar[bool] = False
    a: float
    b: float

    def __post_init__(self) -> None:
        if not (self.a > 0 and self.b > 0):
            raise ValueError(f"Beta needs a > 0 and b > 0; got {self.a}, {self.b}.")

    def penalty(self, x: np.ndarray) -> float:
        return float(np.sum(self.each(x)))

    def each(self, x: np.ndarray) -> np.ndarray:
        penalties: np.ndarray = -((self.a - 1) * np.log(x) + (self.b - 1) * np.log1p(-x))
        return penalties

    def slope(self, x: np.ndarray) -> np.ndarray:
        return -(self.a - 1) / x + (self.b - 1) / (1 - x)

    def log_normaliser(self, size: int) -> float:
        return size * float(betaln(self.a, self.b))

    def distribution(self) -> Any:
        from scipy import stats

        return stats.beta(self.a, self.b)

    def words(self) -> str:
        return f"Beta({self.a:.3g}, {self.b:.3g})"
