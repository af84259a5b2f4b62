"""The parameters of a kernel, the noise and the warp as one unconstrained vector z, and back.

The fit maximises the posterior density of the parameters themselves, so no Jacobian of the maps of
`widegp.kernels.parameters` enters, and the maximum is the same under softplus and exp. Adam uses softplus for
variances, in which the paper's steps of 1e-3 are taken, L-BFGS exp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from widegp.kernels.base import Kernel
from widegp.kernels.parameters import FREE, NOISE, Map, Parameter
from widegp.kernels.priors import LogNormal

Values = dict[str, np.ndarray]
Bounds = tuple[tuple[float, float], ...]

SIGMA_EPS2 = Parameter(
    "sigma_eps2", NOISE, LogNormal(0.1, 1.5), "noise",
    "What the inputs cannot explain (variance, target scaled to unit variance).",
)  # fmt: skip
PSI = Parameter(
    "psi", FREE, None, "warp of the target", "The monotone map under which the target is Gaussian."
)


def declared_parameters(kernel: Kernel) -> dict[str, Parameter]:
    """All that a fit may estimate, by name: the kernel's own parameters, the noise, the warp."""
    return {parameter.name: parameter for parameter in (*kernel.declarations(), SIGMA_EPS2, PSI)}


@dataclass(frozen=True)
class ParameterSpace:
    """Parameters and their shapes in a fixed order, the bounds of a warp's, and the map of the variances."""

    declared: dict[str, Parameter]
    shapes: dict[str, tuple[int, ...]]
    psi_bounds: Bounds = ()
    log: bool = True

    @classmethod
    def of(
        cls, kernel: Kernel, values: Values, psi_bounds: Bounds = (), log: bool = True
    ) -> ParameterSpace:
        known = declared_parameters(kernel)
        shapes = {name: np.shape(value) for name, value in values.items()}
        return cls({name: known[name] for name in values}, shapes, psi_bounds, log)

    def like(self, values: Values) -> ParameterSpace:
        """The same for values of other shapes."""
        return replace(self, shapes={name: np.shape(value) for name, value in values.items()})

    @property
    def per_input(self) -> tuple[str, ...]:
        """Names of the parameters that may have one entry per input."""
        return tuple(name for name, parameter in self.declared.items() if parameter.per_input)

    def map_of(self, name: str) -> Map:
        """The map from z to the parameter."""
        kind = self.declared[name].kind
        return kind.map if self.log else kind.adam

    def pack(self, values: Values) -> np.ndarray:
        """{name: value} -> z (p,), pulled inside the bounds."""
        inside = {name: self.declared[name].kind.inside(values[name]) for name in self.shapes}
        parts = [np.ravel(self.map_of(name).inverse(value)) for name, value in inside.items()]
        return np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, z: np.ndarray) -> Values:
        """z (p,) -> {name: value}."""
        return {name: self.map_of(name).forward(part) for name, part in self.split(z).items()}

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
        parts = [np.ravel(gradient[name] * self.map_of(name).slope(part)) for name, part in pieces]
        return np.concatenate(parts) if parts else np.zeros(0)

    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of z, one pair per entry."""
        out: list[tuple[float, float]] = []
        for name, shape in self.shapes.items():
            if name == PSI.name:
                out += list(self.psi_bounds)
                continue
            kind = self.declared[name].kind
            ends = self.map_of(name).inverse(np.array([kind.lower, kind.upper]))
            out += [(float(ends[0]), float(ends[1]))] * int(np.prod(shape))
        return out

    def labels(self) -> list[str]:
        """One name per entry of z: sigma_u2[3] for vectors."""
        out: list[str] = []
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            out += [name] if shape == () else [f"{name}[{j}]" for j in range(size)]
        return out
