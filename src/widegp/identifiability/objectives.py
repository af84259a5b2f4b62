"""The MAP loss of a table under a chosen approximation, ready for profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.identifiability.coordinates import MAPS, SIMPLEX, Coordinates
from widegp.inference.information import prior_information
from widegp.inference.objective import MapObjective, Problem, start_values
from widegp.inference.parameters import ParameterSpace, declared_parameters
from widegp.inference.priors import Prior, resolve_priors
from widegp.kernels.base import Kernel
from widegp.kernels.parameters import Map
from widegp.warps import make_warp

STEP = 1e-4


@dataclass(frozen=True)
class Computation:
    """How a likelihood is computed: ``approximation``, ``rank``, ``neighbors`` and ``backend`` as of
    `WideGPRegressor`; ``seed`` draws anchors and the order of the rows.
    """

    approximation: str = "exact"
    rank: int = 100
    neighbors: int = 20
    backend: str = "auto"
    seed: int = 0

    def dials(self) -> Dials:
        return Dials(self.approximation, self.rank, self.neighbors, "kmeans", "random", None)


EXACTLY = Computation()


def map_objective(
    kernel: Kernel,
    noise: float,
    X: ArrayLike,
    y: ArrayLike,
    *,
    priors: Any = "default",
    computation: Computation = EXACTLY,
) -> tuple[MapObjective, np.ndarray]:
    """L_MAP(z) of eq. (map_loss_body) for X (n, I), y (n,) as the kernel sees them, and z of ``kernel``.

    ``priors`` are those of `WideGPRegressor`, ``computation`` says how the likelihood is computed; neighbours
    and anchors suit ``kernel`` and stay fixed, so that a profile compares values of one function.
    """
    rows, target = np.ascontiguousarray(np.asarray(X, float)), np.asarray(y, float)
    if rows.ndim != 2 or target.shape != (len(rows),):
        raise ValueError(f"X must be (n, I) and y (n,); got {rows.shape} and {target.shape}.")
    backend = choose_backend(kernel, computation.backend)
    ard = any(np.ndim(kernel.parameters()[name]) > 0 for name in kernel.per_input)
    with backend.scope():
        likelihood = Builder(rows, computation.dials(), backend, computation.seed).build(kernel)
    values = start_values(kernel, noise, np.zeros(0), None)
    space = ParameterSpace.of(kernel, values)
    chosen = resolve_priors(priors, kernel, rows.shape[1], ard, noise)
    problem = Problem(kernel, target, make_warp("none"), chosen)
    return problem.on(likelihood, space), space.pack(values)


def prior_curvature(at: Coordinates, priors: dict[str, Prior]) -> np.ndarray:
    """d^2 [-log p(theta)] / d zeta_j^2 (p,), the information that the priors add; 0 where there is none.

    The curvature is taken as far as it is positive: an Inverse-Gamma far above its mode has none to give.
    """
    out = np.zeros(len(at.names))
    for j, (name, scale) in enumerate(zip(at.names, at.scales, strict=True)):
        prior = priors.get(name.split("[")[0])
        if prior is not None and scale != SIMPLEX:
            out[j] = max(_second(prior, MAPS[scale], at.theta[j]), 0.0)
    return out


def prior_informations(at: Coordinates, kernel: Kernel, priors: dict[str, Prior]) -> np.ndarray:
    """1 / Var zeta_j (p,) under the priors; weights of a mixture count as if they had none."""
    declared, out = declared_parameters(kernel), []
    for name, scale in zip(at.names, at.scales, strict=True):
        root = name.split("[")[0]
        kind = declared[root].kind
        prior = None if scale == SIMPLEX else priors.get(root)
        out.append(prior_information(prior, MAPS[scale], kind.lower, kind.upper))
    return np.array(out)


def _second(prior: Prior, mapped: Map, value: float) -> float:
    """d^2 [-log p] / d zeta^2 at a value, by central differences of the slope."""
    zeta = mapped.inverse(value)

    def gradient(shift: float) -> float:
        at = np.asarray(zeta + shift)
        return float(prior.slope(mapped.forward(at)) * mapped.slope(at))

    return (gradient(STEP) - gradient(-STEP)) / (2 * STEP)
