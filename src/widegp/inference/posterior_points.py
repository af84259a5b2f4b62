"""A few weighted points that stand for the posterior of z, where its mode alone would be too sure.

    p(z) ~ exp(-L(z)),   H = d^2 L / dz^2 at the mode m,   H = sum_k q_k q_k' / s_k^2   (k = 1..p)

Points: m, and m +- t r s_k q_k along each principal direction, r = F0 sqrt p. The length t = t_k+- is such
that L rises by r^2 / 2, as it does at t = 1 if the posterior is Gaussian: a side with a long tail gets a far
point, a steep one a near point.
Weights: 1 - 1 / F0^2 for the mode; a direction's share 1 / (p F0^2) is divided between its sides by t_k-,
t_k+, the masses of a Gaussian with another sd on either side. Of a Gaussian, mean and covariance are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Objective = Callable[[np.ndarray], float]

F0 = 1.1
# The largest standard deviation of z that is believed, a factor of e^3 in a variance, and the range of t.
WIDEST = 3.0
SHORTEST, LONGEST = 0.2, 3.0
# Evaluations that place one point, and the rise of L, relative to the one wanted, that is near enough.
TRIALS = 4
NEAR = 0.1


class WeightedPoint(NamedTuple):
    """A point z (p,) and its share of the posterior."""

    z: np.ndarray
    weight: float


def posterior_points(
    objective: Objective, mode: np.ndarray, hessian: np.ndarray, bounds: np.ndarray | None = None
) -> list[WeightedPoint]:
    """The mode, first, and two points along each principal direction; 2 p + 1 weights that sum to 1.

    objective : L(z), inf where it cannot be evaluated.
    mode, hessian : m (p,) and H (p, p).
    bounds : (p, 2), within which points are pulled.
    """
    p = len(mode)
    sds, vectors = principal(hessian)
    reach, lowest = F0 * np.sqrt(p), objective(mode)
    low, high = (-np.inf, np.inf) if bounds is None else np.asarray(bounds).T
    found = [WeightedPoint(mode, 1 - F0**-2)]

    def at(t: float, step: np.ndarray) -> np.ndarray:
        return np.clip(mode + t * step, low, high)

    for sd, direction in zip(sds, vectors.T, strict=True):
        steps = (-reach * sd * direction, reach * sd * direction)
        sides = [_length(objective, at, step, (lowest, reach)) for step in steps]
        for step, t in zip(steps, sides, strict=True):
            found.append(WeightedPoint(at(t, step), t / sum(sides) / (p * F0**2)))
    return found


def principal(hessian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """s (p,) and q (p, p), in columns, of H (p, p); no s is larger than WIDEST."""
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    return 1 / np.sqrt(np.maximum(values, WIDEST**-2)), vectors


def _length(
    objective: Objective, at: Callable[[float, np.ndarray], np.ndarray], step: np.ndarray,
    wanted: tuple[float, float],
) -> float:  # fmt: skip
    """t with L(at(t)) = lowest + reach^2 / 2, by t <- t reach / sqrt(2 rise): at once for a parabola.

    wanted : (lowest, reach).
    """
    t, (lowest, reach) = 1.0, wanted
    for _ in range(TRIALS):
        risen = objective(at(t, step)) - lowest
        share = np.sqrt(2 * risen) / reach if 0 < risen < np.inf else (2.0 if risen > 0 else 0.5)
        if abs(share**2 - 1) < NEAR:
            break
        t = float(np.clip(t * np.clip(1 / share, 0.5, 2.0), SHORTEST, LONGEST))
    return t
