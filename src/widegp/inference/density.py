"""The posterior density of z that the priors, as they are declared, imply.

    -log p(y, z) = L(z) + sum_j [log c_j - log dx_j/dz + o_j log x_j]
    L(z) = -log p(y | x) + sum_j penalty_j(x_j)

x_j are the parameters and z their unconstrained coordinates. exp(-penalty_j) / c_j is the density of x_j
(o_j = 0: Beta, Inverse-Gamma) or of log x_j (o_j = 1: log-normal). A parameter without a prior is uniform in
z between its bounds. The fit maximises exp(-L), the density of the parameters themselves, in which no
derivative of a map enters; whoever averages needs the density of one fixed vector, and that is z.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from widegp.inference.objective import Answer, MapObjective
from widegp.inference.optimizers import (
    SMALLEST_GAIN,
    Objective,
    Task,
    bfgs,
    curvature_at,
    newton_step,
    raised,
)
from widegp.inference.parameters import ParameterSpace
from widegp.inference.result import Reason

# Iterations from the MAP to the mode of z, at most, and how near to it a last step must begin.
ITERATIONS = 40
NEAR = 0.01
# Step of the differences of the gradient, either way.
STEP = 0.02


@dataclass(frozen=True)
class Mode:
    """Where the density of z is highest: z (p,), -log p(y, z) there, and its Hessian H (p, p)."""

    z: np.ndarray
    value: float
    hessian: np.ndarray


@dataclass(frozen=True)
class PosteriorDensity:
    """-log p(y, z) and its gradient; ``evaluate`` answers for ``objective``, maybe from a journal."""

    objective: MapObjective
    evaluate: Objective

    @property
    def space(self) -> ParameterSpace:
        return self.objective.space

    @cached_property
    def bounds(self) -> np.ndarray:
        """(p, 2), of z."""
        return np.array(self.space.bounds(), float).reshape(-1, 2)

    def __call__(self, z: np.ndarray) -> Answer:
        answer = self.evaluate(z)
        if answer.problem is not None:
            return answer
        value, gradient = self._measure(z)
        return answer._replace(value=answer.value + value, gradient=answer.gradient + gradient)

    def value(self, z: np.ndarray) -> float:
        """-log p(y, z), inf where it cannot be evaluated; no journal keeps it."""
        return self.objective.value(z) + self._measure(z)[0]

    @cached_property
    def constant(self) -> float:
        """sum_j log c_j."""
        total, priors = 0.0, self.objective.problem.priors
        widths = self.space.split(self.bounds[:, 1] - self.bounds[:, 0])
        for name, width in widths.items():
            prior = priors.get(name)
            total += float(np.log(width).sum()) if prior is None else prior.log_normaliser(width.size)
        return total

    def _measure(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """sum_j [log c_j - log dx_j/dz + o_j log x_j] and its gradient (p,)."""
        priors, total, slopes = self.objective.problem.priors, self.constant, [np.zeros(0)]
        for name, part in self.space.split(z).items():
            prior, mapped = priors.get(name), self.space.map_of(name)
            if prior is None:
                slopes.append(np.zeros(part.size))
                continue
            x, slope = mapped.forward(part), mapped.slope(part)
            own = prior.of_logarithm
            total += float(np.sum(own * np.log(x) - np.log(slope)))
            slopes.append(np.ravel(own * slope / x - mapped.bend(part)))
        return total, np.concatenate(slopes)

    def mode(self, start: np.ndarray) -> Mode | None:
        """The mode near ``start``, such as the MAP; None where no Hessian can be made."""
        here, n = self(start), self.objective.n_rows
        if here.problem is not None:
            return None
        H = curvature_at(self, start, here.gradient, n)
        if H is None:
            return None
        task = Task(self, [(low, high) for low, high in self.bounds], n, ITERATIONS, gain=SMALLEST_GAIN)
        found = bfgs(task, start, H)
        if found.reason is Reason.FAILED or found.gradient is None:
            return None
        H = curvature_at(self, found.z, found.gradient, n)
        if H is None:
            return None
        z = self._refined(found.z, found.gradient, H * n)
        hessian = self._hessian(z)
        return None if hessian is None else Mode(z, self.value(z), hessian)

    def _hessian(self, z: np.ndarray) -> np.ndarray | None:
        """H (p, p) by central differences of the gradient within the bounds; None where one fails.

        Where rows nearly repeat a gradient has an error, which is divided by the step: hence a long step.
        """
        low, high = self.bounds.T
        H = np.empty((z.size, z.size))
        for j, unit in enumerate(np.eye(z.size)):
            ends = np.clip([z - STEP * unit, z + STEP * unit], low, high)
            below, above = (self(end) for end in ends)
            if below.problem is not None or above.problem is not None:
                return None
            H[j] = (above.gradient - below.gradient) / (ends[1, j] - ends[0, j])
        return (H + H.T) / 2

    def _refined(self, z: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> np.ndarray:
        """z after one more Newton step, where that makes the gradient (p,) smaller.

        A search along a line ends where values differ by no more than rounding; the gradient tells z to twice
        as many digits.
        """
        low, high = self.bounds.T
        step = newton_step(raised(hessian), gradient, z, low, high)
        moved = np.clip(z + step, low, high)
        there, free = self(moved), (moved > low) & (moved < high)
        near = there.problem is None and float(np.abs(step).max()) < NEAR
        nearer = np.linalg.norm(there.gradient[free]) < np.linalg.norm(gradient[free])
        return moved if near and nearer else z
