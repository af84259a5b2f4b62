"""Monotone transforms of the target, z = (g(y; psi) - mu) / s, fitted together with the process.

y is the standardised target, mu and s the mean and sd of g over the training rows. If z has log density
l(z), then y has l(z) + log g'(y) - log s: the log Jacobian makes likelihoods of different warps comparable.

    none          g = y
    yeo-johnson   g = P(log(1 + y), lambda) for y >= 0,  -P(log(1 - y), 2 - lambda) for y < 0
    box-cox       g = P(log x, lambda), x = offset + scale y > 0;  P(L, lambda) = (e^(lambda L) - 1) / lambda
    sqrt, log     box-cox with lambda = 1/2, 0
    sinh-arcsinh  g = sinh(delta arcsinh(y) - epsilon)
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import hyp1f1

NAMES = ("none", "yeo-johnson", "box-cox", "sqrt", "log", "sinh-arcsinh")
MAX_LOG = 345.0  # e^345 squared is still finite, so second moments of an inverse never overflow
TINY = 1e-200  # |lambda| below this is 0: dividing by a subnormal number would lose all digits
PROFILE_ROWS = 20_000  # more rows do not better a starting value


class Terms(NamedTuple):
    """A warp at n targets: values, log slopes and their derivatives by the k parameters."""

    value: np.ndarray  # g(y), (n,)
    log_jacobian: np.ndarray  # log g'(y), (n,); -inf outside the support
    d_value: np.ndarray  # dg / dpsi, (n, k)
    d_log_jacobian: np.ndarray  # d log g' / dpsi, (n, k)


class Warp(ABC):
    """g(y; psi), increasing in y (n,), with parameters psi (k,) inside ``bounds``; linear at ``start``."""

    name: ClassVar[str]
    bounds: ClassVar[tuple[tuple[float, float], ...]] = ()
    start: ClassVar[tuple[float, ...]] = ()

    @abstractmethod
    def terms(self, y: np.ndarray, psi: np.ndarray) -> Terms:
        """g, log g' and their derivatives at y."""

    @abstractmethod
    def inverse(self, w: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """The y with g(y) = w, (n,); for w beyond the range of g the end of the range, never NaN."""

    def poles(self, psi: np.ndarray) -> tuple[bool, bool]:
        """Whether g stays bounded as y -> -inf, +inf, so that its inverse has a pole there."""
        return False, False

    def initial(self, y: np.ndarray) -> np.ndarray:
        """``start`` as psi (k,); raises if the family cannot take training targets y."""
        return np.array(self.start, float)

    def forward(self, y: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """g(y), (n,)."""
        return self.terms(y, psi).value


@dataclass(frozen=True)
class Identity(Warp):
    """g(y) = y."""

    name = "none"

    def terms(self, y: np.ndarray, psi: np.ndarray) -> Terms:
        none = np.empty((*y.shape, 0))
        return Terms(y, np.zeros_like(y), none, none)

    def inverse(self, w: np.ndarray, psi: np.ndarray) -> np.ndarray:
        return w


@dataclass(frozen=True)
class YeoJohnson(Warp):
    """g(y) = sign(y) P(log(1 + |y|), lambda or 2 - lambda), psi = (lambda,)."""

    name = "yeo-johnson"
    bounds = ((-2.0, 4.0),)
    start = (1.0,)

    def terms(self, y: np.ndarray, psi: np.ndarray) -> Terms:
        level, exponent = np.log1p(np.abs(y)), np.where(y < 0, 2 - psi[0], psi[0])
        signed = np.copysign(level, y)
        value = np.copysign(_power(level, exponent), y)
        slope = _power_slope(level, exponent)
        return Terms(value, (psi[0] - 1) * signed, slope[..., None], signed[..., None])

    def inverse(self, w: np.ndarray, psi: np.ndarray) -> np.ndarray:
        exponent = np.where(w < 0, 2 - psi[0], psi[0])
        return np.copysign(np.expm1(_inverse_power(np.abs(w), exponent)), w)

    def poles(self, psi: np.ndarray) -> tuple[bool, bool]:
        return bool(psi[0] > 2), bool(psi[0] < 0)


@dataclass(frozen=True)
class BoxCox(Warp):
    """g(y) = P(log x, lambda), x = offset + scale y > 0, psi = (lambda,).

    With ``power`` (0 for "log", 1/2 for "sqrt") lambda is that number and psi is empty.
    For y outside the support (x <= 0) g takes its limit at x = 0. Multiplying x by a constant changes no z.
    """

    offset: float = 0.0
    scale: float = 1.0
    power: float | None = None

    name = property(lambda self: {None: "box-cox", 0.5: "sqrt", 0.0: "log"}[self.power])
    bounds = property(lambda self: ((-1.0, 3.0),) if self.power is None else ())
    start = property(lambda self: (1.0,) if self.power is None else ())

    def terms(self, y: np.ndarray, psi: np.ndarray) -> Terms:
        x, exponent = self.offset + self.scale * y, self._exponent(psi)
        level = np.log(np.where(x > 0, x, 1.0))
        value = _power(np.where(x > 0, level, -np.inf), exponent)
        log_jacobian = np.where(x > 0, (exponent - 1) * level + math.log(self.scale), -np.inf)
        slopes = np.stack([_power_slope(level, exponent), level], axis=-1)
        return Terms(value, log_jacobian, slopes[..., : psi.size], slopes[..., 1 : 1 + psi.size])

    def inverse(self, w: np.ndarray, psi: np.ndarray) -> np.ndarray:
        return (np.exp(_inverse_power(w, self._exponent(psi))) - self.offset) / self.scale

    def poles(self, psi: np.ndarray) -> tuple[bool, bool]:
        return False, self._exponent(psi) < 0

    def initial(self, y: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(~(self.offset + self.scale * y > 0))
        if bad.size:
            more = f" ({bad.size} such rows)" if bad.size > 1 else ""
            raise ValueError(
                f"The {self.name} warp needs a positive target, and row {bad[0]} has"
                f" {self.offset + self.scale * y[bad[0]]:.6g}{more}; use 'yeo-johnson', or add a constant to"
                " the target."
            )
        return np.array(self.start, float)

    def _exponent(self, psi: np.ndarray) -> float:
        return float(psi[0]) if self.power is None else self.power


@dataclass(frozen=True)
class SinhArcsinh(Warp):
    """g(y) = sinh(u), u = delta arcsinh(y) - epsilon, psi = (epsilon, delta).

    epsilon takes out skewness; delta < 1 pulls heavy tails in, delta > 1 stretches light ones.
    """

    name = "sinh-arcsinh"
    bounds = ((-3.0, 3.0), (0.2, 3.0))
    start = (0.0, 1.0)

    def terms(self, y: np.ndarray, psi: np.ndarray) -> Terms:
        angle = np.arcsinh(y)
        u = np.clip(psi[1] * angle - psi[0], -MAX_LOG, MAX_LOG)
        log_cosh = np.abs(u) + np.log1p(np.exp(-2 * np.abs(u))) - math.log(2)
        log_jacobian = math.log(psi[1]) + log_cosh - np.log(np.hypot(1.0, y))
        cosh, tanh = np.cosh(u), np.tanh(u)
        d_log_jacobian = np.stack([-tanh, 1 / psi[1] + angle * tanh], axis=-1)
        return Terms(np.sinh(u), log_jacobian, np.stack([-cosh, angle * cosh], axis=-1), d_log_jacobian)

    def inverse(self, w: np.ndarray, psi: np.ndarray) -> np.ndarray:
        return np.sinh(np.clip((np.arcsinh(w) + psi[0]) / psi[1], -MAX_LOG, MAX_LOG))


def make_warp(name: str, offset: float = 0.0, scale: float = 1.0) -> Warp:
    """The family called ``name``; offset + scale y is the positive target of box-cox, sqrt and log.

    Pass the mean and sd that standardised y. A positive offset is divided out, which changes no z and
    keeps powers of x near 1 in any unit of the target; offset = 0, scale = 1 takes y as it is.
    """
    if name not in NAMES:
        raise ValueError(f"Unknown warp {name!r}; choose one of {', '.join(map(repr, NAMES))}.")
    plain: dict[str, Warp] = {w.name: w for w in (Identity(), YeoJohnson(), SinhArcsinh())}
    if name in plain:
        return plain[name]
    if not scale > 0:
        raise ValueError(f"The scale of a {name} warp is {scale}; pass the positive sd of the target.")
    if offset > 0:
        offset, scale = 1.0, scale / offset
    return BoxCox(float(offset), float(scale), {"box-cox": None, "sqrt": 0.5, "log": 0.0}[name])


def candidates(y: ArrayLike) -> tuple[str, ...]:
    """Families worth trying for a target y (n,) in its own units, the likeliest first."""
    y = np.asarray(y, float)
    # Two values are as Gaussian after any warp as before it.
    if np.unique(y).size < 3:
        return ("none",)
    general = ("yeo-johnson", "sinh-arcsinh", "none")
    # Positive by more than rounding, since the standardised target has to be brought back.
    return ("box-cox", *general) if y.min() > 1e-10 * np.abs(y).mean() else general


def standardised(warp: Warp, y: ArrayLike, psi: ArrayLike) -> tuple[Terms, float, float]:
    """z = (g - mu) / s with mu = mean g, s^2 = mean (g - mu)^2 over y (n,): the terms of z, then mu and s.

        ds = mean(z dg),    dz = (dg - mean dg - z ds) / s,    d log(g'/s) = d log g' - ds / s

    The derivatives go through mu and s. If l(z) is the log density of the training rows, that of y is
    l(z) + sum log_jacobian, with gradient d_value' dl/dz + sum_i d_log_jacobian by psi.
    The identity keeps mu = 0, s = 1: it changes no bit of y.
    """
    y, psi = np.asarray(y, float), np.asarray(psi, float)
    if psi.shape != warp.initial(y).shape:
        raise ValueError(f"psi has shape {psi.shape}; {warp.name} has {len(warp.bounds)} parameters.")
    g = warp.terms(y, psi)
    if isinstance(warp, Identity):
        return g, 0.0, 1.0
    mu, s = float(np.mean(g.value)), float(np.std(g.value))
    # A constant target leaves s = rounding; it is standardised to 0 with unit scale instead.
    constant = s <= 16 * np.finfo(float).eps * np.abs(g.value).max()
    s = 1.0 if constant else s
    z = (g.value - mu) / s
    ds = np.zeros(psi.size) if constant else z @ g.d_value / y.size
    d_z = (g.d_value - g.d_value.mean(axis=0) - z[:, None] * ds) / s
    return Terms(z, g.log_jacobian - math.log(s), d_z, g.d_log_jacobian - ds / s), mu, s


def profile_start(y: ArrayLike, name: str, offset: float = 0.0, scale: float = 1.0) -> np.ndarray:
    """psi (k,) that maximises mean log g'(y_i) - log s, the Gaussian profile likelihood of independent rows.

    A start for the joint fit, by L-BFGS-B from the best point of a coarse grid within the bounds.
    Arguments as in ``make_warp``; long targets are thinned evenly.
    """
    warp, y = make_warp(name, offset, scale), np.asarray(y, float)
    start = warp.initial(y)
    y = y[:: max(1, -(-y.size // PROFILE_ROWS))]
    if start.size == 0 or np.unique(y).size < 3:
        return start

    def loss(psi: np.ndarray) -> tuple[float, np.ndarray]:
        z, _, _ = standardised(warp, y, psi)
        return -float(z.log_jacobian.mean()), -z.d_log_jacobian.mean(axis=0)

    grid = itertools.product(*(np.linspace(low, high, 7)[1:-1] for low, high in warp.bounds))
    best = min([start, *map(np.array, grid)], key=lambda psi: loss(psi)[0])
    return np.asarray(minimize(loss, best, jac=True, method="L-BFGS-B", bounds=warp.bounds).x)


def _power(level: np.ndarray, exponent: ArrayLike) -> np.ndarray:
    """P(L, lambda) = (e^(lambda L) - 1) / lambda, and L at lambda = 0."""
    zero = np.abs(exponent) < TINY
    safe = np.where(zero, 1.0, exponent)
    return np.where(zero, level, np.expm1(safe * level) / safe)


def _inverse_power(w: np.ndarray, exponent: ArrayLike) -> np.ndarray:
    """L = log(1 + lambda w) / lambda, and w at lambda = 0; at most MAX_LOG, -inf below the range of P."""
    zero = np.abs(exponent) < TINY
    safe = np.where(zero, 1.0, exponent)
    with np.errstate(divide="ignore"):
        level = np.log1p(np.maximum(safe * w, -1.0)) / safe
    return np.minimum(np.where(zero, w, level), MAX_LOG)


def _power_slope(level: np.ndarray, exponent: ArrayLike) -> np.ndarray:
    """dP/dlambda = L^2 int_0^1 t e^(lambda L t) dt = L^2 M(2, 3, lambda L) / 2, smooth through lambda = 0."""
    return level**2 * hyp1f1(2, 3, exponent * level) / 2
