"""Named parameters as one unconstrained vector z, and back.

    variance  sigma2 = softplus(z)      sigma_a2, sigma_u2, sigma_b2, sigma_v2; or exp(z), see below
    fraction  p = sigmoid(z)            alpha, w, weights
    noise     sigma_eps2 = exp(2 z)     z = log sigma_eps, the paper's nugget
    free      psi = z                   parameters of a target warp

The fit maximises the posterior density of the parameters themselves, so no Jacobian of these maps enters,
and the maximum is the same under softplus and exp. Adam uses softplus, in which the paper's steps of 1e-3 are
taken. L-BFGS uses exp: variances run over many orders of magnitude, and softplus is linear for the large
ones, so that from 10 to 1,000 is a hundred times as far as from 0.1 to 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

Values = dict[str, np.ndarray]


class Kind(NamedTuple):
    """Range within which a fit may move the parameter; flat directions end here, not at infinity."""

    name: str
    lower: float
    upper: float


VARIANCE = Kind("variance", 1e-9, 1e6)
FRACTION = Kind("fraction", 1e-8, 1 - 1e-8)
NOISE = Kind("noise", 1e-7, 1e3)
FREE = Kind("free", -np.inf, np.inf)

KINDS = {"alpha": FRACTION, "w": FRACTION, "weights": FRACTION, "sigma_eps2": NOISE, "psi": FREE}


def kind_of(name: str) -> Kind:
    return KINDS.get(name, VARIANCE)


def to_unconstrained(name: str, value: np.ndarray, log: bool = False) -> np.ndarray:
    """z of a value; ``log`` maps variances by exp instead of softplus, here and below."""
    value, kind = np.asarray(value, float), kind_of(name)
    if kind is VARIANCE and log:
        return np.log(value)
    if kind is VARIANCE:
        return value + np.log(-np.expm1(-value))
    if kind is FRACTION:
        return np.log(value) - np.log1p(-value)
    return 0.5 * np.log(value) if kind is NOISE else value


def from_unconstrained(name: str, z: np.ndarray, log: bool = False) -> np.ndarray:
    """Value of a z."""
    kind = kind_of(name)
    if kind is VARIANCE:
        return np.exp(z) if log else np.logaddexp(0.0, z)
    if kind is FRACTION:
        return expit(z)
    return np.exp(2 * z) if kind is NOISE else z


def slope(name: str, z: np.ndarray, log: bool = False) -> np.ndarray:
    """d value / d z."""
    kind = kind_of(name)
    if kind is VARIANCE:
        return np.exp(z) if log else expit(z)
    if kind is FRACTION:
        return expit(z) * expit(-z)
    return 2 * np.exp(2 * z) if kind is NOISE else np.ones_like(z)


@dataclass(frozen=True)
class ParameterSpace:
    """Names and shapes in a fixed order, the bounds of a warp's parameters, and the map of the variances."""

    shapes: dict[str, tuple[int, ...]]
    psi_bounds: tuple[tuple[float, float], ...] = ()
    log: bool = True

    @classmethod
    def of(
        cls, values: Values, psi_bounds: tuple[tuple[float, float], ...] = (), log: bool = True
    ) -> ParameterSpace:
        return cls({name: np.shape(value) for name, value in values.items()}, psi_bounds, log)

    def pack(self, values: Values) -> np.ndarray:
        """{name: value} -> z (p,), pulled inside the bounds."""
        inside = {name: _inside(name, values[name]) for name in self.shapes}
        parts = [np.ravel(to_unconstrained(name, value, self.log)) for name, value in inside.items()]
        return np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, z: np.ndarray) -> Values:
        """z (p,) -> {name: value}."""
        return {name: from_unconstrained(name, part, self.log) for name, part in self.split(z).items()}

    def split(self, z: np.ndarray) -> Values:
        """z (p,) -> {name: its part of z}."""
        out, start = {}, 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            out[name] = z[start : start + size].reshape(shape)
            start += size
        return out

    def pull_back(self, z: np.ndarray, gradient: Values) -> np.ndarray:
        """dF/d values -> dF/dz."""
        pieces = self.split(z).items()
        parts = [np.ravel(gradient[name] * slope(name, part, self.log)) for name, part in pieces]
        return np.concatenate(parts) if parts else np.zeros(0)

    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of z, one pair per entry."""
        out: list[tuple[float, float]] = []
        for name, shape in self.shapes.items():
            if name == "psi":
                out += list(self.psi_bounds)
                continue
            kind = kind_of(name)
            ends = to_unconstrained(name, np.array([kind.lower, kind.upper]), self.log)
            out += [(float(ends[0]), float(ends[1]))] * int(np.prod(shape))
        return out

    def labels(self) -> list[str]:
        """One name per entry of z: sigma_u2[3] for vectors."""
        out: list[str] = []
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            out += [name] if shape == () else [f"{name}[{j}]" for j in range(size)]
        return out


def _inside(name: str, value: np.ndarray) -> np.ndarray:
    kind = kind_of(name)
    return np.clip(np.asarray(value, float), kind.lower, kind.upper)
