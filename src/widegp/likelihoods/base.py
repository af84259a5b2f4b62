"""What a likelihood offers to those who fit a process to it and to those who predict from it.

Rows are independent given f: log p(y | f; psi) = sum_i log p(y_i | f_i; psi). An exposure e_i multiplies the
mean of a count, that is, it adds log e_i to f_i: callers add it to f, and to the mean of f at new rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from widegp.data.arrays import Floats


class Terms(NamedTuple):
    """log p(y_i | f_i) and its derivatives by f_i, each (n,).

    ``W`` > 0 is the curvature that a Gaussian in place of the likelihood has, and ``dW`` its derivative by f.
    It is -d2 where the density is log-concave in f. ``step`` > 0 is the curvature of Newton's steps to the
    mode, which does not depend on it.
    """

    log_p: Floats
    d1: Floats
    d2: Floats
    d3: Floats
    W: Floats
    dW: Floats
    step: Floats

    @classmethod
    def concave(cls, log_p: Floats, d1: Floats, W: Floats, dW: Floats) -> Self:
        """The terms of a density that is log-concave in f: W = -d2."""
        return cls(log_p, d1, -W, -dW, W, dW, W)


class PsiTerms(NamedTuple):
    """Derivatives by the k parameters psi of log p, of its slope d1 and of W, each (n, k)."""

    log_p: Floats
    d1: Floats
    W: Floats

    @classmethod
    def none(cls, n_rows: int) -> Self:
        """Those of a likelihood without parameters."""
        return cls(*(np.zeros((n_rows, 0)) for _ in cls._fields))


class LikelihoodParameter(NamedTuple):
    """A positive number psi = e^z, fitted in z with psi between ``lower`` and ``upper``; it has no prior.

    title, meaning : what it is in two words, and what it does in a sentence.
    """

    name: str
    lower: float
    upper: float
    title: str
    meaning: str


@dataclass(frozen=True)
class Likelihood(ABC):
    """p(y | f; psi), psi being the numbers in the fields that ``parameters`` names.

    support : where y lies: "real" numbers, "positive" ones, "counts" (0, 1, 2, ...), or "classes" (0 and 1).
    mean_warp : g, by its name in `widegp.warps.NAMES`, where E[y | f] = g^-1(f) up to the scale of y; None
        where f has no units of y.
    trees_loss : of boosted trees whose sum is a guess of f, see `widegp.trees`.
    """

    name: ClassVar[str]
    support: ClassVar[Literal["real", "positive", "counts", "classes"]] = "real"
    mean_warp: ClassVar[str | None] = "none"
    parameters: ClassVar[tuple[LikelihoodParameter, ...]] = ()
    trees_loss: ClassVar[str] = "squared_error"

    @property
    def discrete(self) -> bool:
        """Whether y is a whole number, so that its distribution has steps and no density."""
        return self.support in ("counts", "classes")

    @property
    def scales_target(self) -> bool:
        """Whether y may be standardised before the fit: a shift of any other kind of y means something."""
        return self.support == "real"

    @property
    def takes_exposure(self) -> bool:
        """Whether the mean of y is proportional to e^f, so that an exposure e adds log e to f."""
        return self.mean_warp == "log"

    def deviances(self, y: Floats, mean: Floats) -> dict[str, float]:
        """Mean deviances of predicted means from y, both (n,), by the names that scores have; of counts."""
        return {}

    @property
    def psi(self) -> Floats:
        """The parameters as a vector (k,)."""
        return np.array([getattr(self, p.name) for p in self.parameters], float)

    def with_psi(self, psi: ArrayLike) -> Self:
        """The same likelihood with other parameters (k,)."""
        values = np.asarray(psi, float).tolist()
        return replace(self, **{p.name: v for p, v in zip(self.parameters, values, strict=True)})

    @property
    def z(self) -> Floats:
        """log psi (k,), the coordinates that a fit moves."""
        return np.log(self.psi)

    @property
    def z_bounds(self) -> tuple[tuple[float, float], ...]:
        """Ends of each coordinate."""
        return tuple((float(np.log(p.lower)), float(np.log(p.upper))) for p in self.parameters)

    @property
    def psi_by_z(self) -> Floats:
        """d psi / dz = psi (k,)."""
        return self.psi

    def with_z(self, z: ArrayLike) -> Self:
        """The same likelihood at other coordinates (k,)."""
        return self.with_psi(np.exp(np.asarray(z, float)))

    @abstractmethod
    def check(self, y: ArrayLike) -> Floats:
        """y (n,) as floats; raises if the likelihood cannot have made one of them."""

    @abstractmethod
    def terms(self, y: Floats, f: Floats) -> Terms:
        """log p(y_i | f_i) and its derivatives by f_i."""

    @abstractmethod
    def psi_terms(self, y: Floats, f: Floats) -> PsiTerms:
        """Derivatives by psi."""

    @abstractmethod
    def level(self, y: Floats, offset: ArrayLike = 0.0, weight: ArrayLike = 1.0) -> float:
        """The constant c that suits y best where f_i = c + offset_i: the level about which f varies.

        A row of ``weight`` w counts as w rows.
        """

    @abstractmethod
    def start(self, y: Floats) -> Floats:
        """f (n,) from which Newton's method finds the mode."""

    @abstractmethod
    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        """A draw of y for each entry of f, in the shape of f."""

    @abstractmethod
    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """The distribution of y where f ~ N(mean, variance), row by row; mean and variance (n,)."""


@dataclass(frozen=True)
class Predictive(ABC):
    """p(y) = int p(y | f) N(f; mean_f, var_f) df for each row; mean_f and var_f (n,)."""

    likelihood: Any
    mean_f: Floats
    var_f: Floats

    @classmethod
    def of(cls, likelihood: Likelihood, mean: ArrayLike, variance: ArrayLike) -> Self:
        """The predictive at checked means and variances of f."""
        m, v = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
        if m.ndim != 1 or not (np.all(np.isfinite(m)) and np.all(np.isfinite(v)) and np.all(v >= 0)):
            raise ValueError(
                f"The latent means {m.shape} and variances must be one finite number per row, variances >= 0;"
                " check the prediction of f."
            )
        return cls(likelihood, m, v)

    @property
    @abstractmethod
    def mean(self) -> Floats:
        """E y, (n,)."""

    @property
    @abstractmethod
    def variance(self) -> Floats:
        """Var y, (n,)."""

    @abstractmethod
    def log_density(self, y: ArrayLike) -> Floats:
        """log p(y_i), (n,)."""

    @abstractmethod
    def cdf(self, y: ArrayLike) -> Floats:
        """P(Y_i <= y_i), (n,)."""

    @abstractmethod
    def _quantile(self, level: float) -> Floats:
        """The smallest y with P(Y_i <= y) >= level, (n,)."""

    def quantile(self, level: ArrayLike) -> Floats:
        """The smallest y with P(Y_i <= y) >= level: (n,), or (n, q) for q levels."""
        levels = np.asarray(level, float)
        if not np.all((levels > 0) & (levels < 1)):
            raise ValueError("Quantile levels must lie strictly between 0 and 1; pass for example 0.025.")
        if levels.ndim == 0:
            return self._quantile(float(levels))
        return np.stack([self._quantile(float(one)) for one in levels], axis=-1)

    def sample(self, rng: np.random.Generator, size: int = 1) -> Floats:
        """Draws of y, rows independent of each other, (size, n)."""
        f = self.mean_f + np.sqrt(self.var_f) * rng.standard_normal((size, self.mean_f.size))
        drawn: Floats = self.likelihood.sample(f, rng)
        return drawn


def finite_rows(y: ArrayLike, name: str) -> Floats:
    """y (n,) as floats, every one finite."""
    y = np.asarray(y, float)
    if y.ndim != 1:
        raise ValueError(f"The target has shape {y.shape}; the {name} likelihood needs one number per row.")
    refuse(~np.isfinite(y), y, f"the {name} likelihood needs finite numbers; drop that row or fill it in")
    return y


def per_row(weight: ArrayLike, y: Floats) -> Floats:
    """``weight`` as one number for each row of y (n,)."""
    return np.broadcast_to(np.asarray(weight, float), y.shape)


def refuse(bad: npt.NDArray[np.bool], y: Floats, need: str) -> None:
    """Raises where a target is bad: which row, what it holds and what is needed."""
    if np.any(bad):
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"The target is {y[row]:g} in row {row}, but {need}.")


def log_exposure(exposure: ArrayLike | None, n_rows: int) -> Floats:
    """log e_i (n,), what an exposure e_i > 0 adds to f_i; zeros for None."""
    if exposure is None:
        return np.zeros(n_rows)
    e = np.asarray(exposure, np.float64)
    if e.shape != (n_rows,):
        raise ValueError(f"exposure has shape {e.shape} for {n_rows} rows; pass one positive number per row.")
    bad = np.flatnonzero(~(np.isfinite(e) & (e > 0)))
    if bad.size:
        raise ValueError(f"exposure is {e[bad[0]]:g} in row {bad[0]}; pass positive, finite exposures.")
    return np.log(e)
