"""Numerical check of Proposition (ident_mix): different parameters, different kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from widegp.identifiability.coordinates import LOG, LOGIT, MAPS, Coordinates, coordinates
from widegp.kernels.closed import Mixed

# zeta: logs of variances between e^-2 and e^2, logits of alpha and w between 0.05 and 0.95.
REACH = {LOG: 2.0, LOGIT: 2.944439}
SEARCHES = 4
# Pairs of the search stay this far apart, so that it cannot end in the local limit.
LEAST_DISTANCE = 0.5


@dataclass(frozen=True)
class InjectivityReport:
    """Distances between kernels over distances between parameters, for random pairs.

    ``distance`` (N,) between parameters, in logs and logits; ``gap`` (N,) between kernels, relative;
    ``smallest_ratio`` of the two and its ``pair`` (2, 6); ``hardest_ratio`` and ``hardest_pair`` after a
    search that starts from the smallest and keeps to pairs at least 0.5 apart; ``smallest_slope`` the least
    change of the kernel per unit of parameters in the limit of near pairs, over at most 200 points.
    """

    names: tuple[str, ...]
    distance: np.ndarray
    gap: np.ndarray
    smallest_ratio: float
    pair: np.ndarray
    hardest_ratio: float
    hardest_pair: np.ndarray
    smallest_slope: float

    @property
    def injective(self) -> bool:
        """Whether every pair differs by far more than rounding."""
        return min(self.smallest_ratio, self.hardest_ratio, self.smallest_slope) > 1e-10

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "injective": self.injective,
            "n_pairs": len(self.distance),
            "smallest_ratio": self.smallest_ratio,
            "hardest_ratio": self.hardest_ratio,
            "smallest_slope": self.smallest_slope,
            "pair": [dict(zip(self.names, map(float, theta), strict=True)) for theta in self.pair],
            "hardest_pair": [dict(zip(self.names, map(float, t), strict=True)) for t in self.hardest_pair],
        }


def injectivity_check(n_pairs: int = 1000, seed: int = 0, n_inputs: int = 3) -> InjectivityReport:
    """min over pairs of |K(theta_1) - K(theta_2)| / |theta_1 - theta_2|, Proposition (ident_mix).

    The kernel norm is root mean square over all pairs of a set of inputs that varies norms and angles, as
    the proof does, relative to the kernels' own size. Half of the pairs are drawn far apart, half near.

    What the proof rests on, and the check with it: 1, asin, c and J are linearly independent over such
    inputs, asin fixes the scale of (sigma_a2, sigma_u2), and the weights of c and J stand in the ratio
    alpha / (1 - alpha)^2, which increases on (0, 1).
    """
    if n_pairs < 2:
        raise ValueError(f"n_pairs must be at least 2; got {n_pairs}.")
    rng = np.random.default_rng(seed)
    X = probing_inputs(n_inputs, rng)
    at = coordinates(Mixed(), 1.0)
    kernel_of, names = _vectorised(at, X), at.names[:-1]
    reach = np.array([REACH[scale] for scale in at.scales[:-1]])
    first = rng.uniform(-reach, reach, (n_pairs, len(reach)))
    second = rng.uniform(-reach, reach, first.shape)
    near = np.arange(n_pairs) % 2 == 1
    steps = rng.normal(size=first.shape) * 10 ** rng.uniform(-3, -0.5, (n_pairs, 1))
    second[near] = np.clip(first + steps, -reach, reach)[near]
    gap, distance = _gap(kernel_of(first), kernel_of(second)), np.linalg.norm(first - second, axis=1)
    order = np.argsort(gap / distance)
    best = order[0]
    ratio, pair = _search(kernel_of, reach, [(first[k], second[k]) for k in order if distance[k] > 0.5])
    slopes = [_smallest_slope(kernel_of, z) for z in first[: min(n_pairs, 200)]]
    return InjectivityReport(
        names, distance, gap, float(gap[best] / distance[best]),
        np.array([_theta(first[best], at), _theta(second[best], at)]),
        ratio, np.array([_theta(z, at) for z in pair]), float(np.min(slopes)),
    )  # fmt: skip


def probing_inputs(n_inputs: int, rng: np.random.Generator, n_rows: int = 40) -> np.ndarray:
    """Rows (n, I) in random directions, norms from 0.1 to 10, with opposite and orthogonal pairs."""
    directions = rng.normal(size=(n_rows, n_inputs))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    axes = np.concatenate([np.eye(n_inputs), -np.eye(n_inputs)])
    norms = np.geomspace(0.1, 10.0, n_rows)
    return np.concatenate([directions * norms[:, None], axes, 3 * axes, np.zeros((1, n_inputs))])


def _vectorised(at: Coordinates, X: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """zeta (N, 6) -> entries of the kernel on and above the diagonal (N, q)."""
    import jax

    upper = np.triu_indices(len(X))
    compiled = jax.jit(jax.vmap(lambda theta: at.kernel_at(theta)(X)[upper]))

    def kernel_of(zeta: np.ndarray) -> np.ndarray:
        theta = np.array([_theta(z, at) for z in np.atleast_2d(zeta)])
        # Fixed batches: one compilation, bounded memory.
        size = 64
        padded = np.concatenate([theta, np.repeat(theta[-1:], -len(theta) % size, axis=0)])
        with jax.enable_x64(True):
            parts = [np.asarray(compiled(padded[k : k + size])) for k in range(0, len(padded), size)]
        return np.concatenate(parts)[: len(theta)]

    return kernel_of


def _theta(zeta: np.ndarray, at: Coordinates) -> np.ndarray:
    """The parameters of the kernel (p,) from zeta (p,), each by the map of its scale."""
    return np.array([MAPS[scale].forward(z) for scale, z in zip(at.scales[:-1], zeta, strict=True)])


def _gap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Root mean square difference over the geometric mean of the root mean squares, row by row."""
    size = np.sqrt(np.sqrt(np.mean(first**2, axis=-1) * np.mean(second**2, axis=-1)))
    return np.sqrt(np.mean((first - second) ** 2, axis=-1)) / size


def _smallest_slope(kernel_of: Callable[[np.ndarray], np.ndarray], zeta: np.ndarray) -> float:
    """Smallest singular value of d K / d zeta over |K|, by central differences."""
    step = 1e-5
    shifts = step * np.eye(len(zeta))
    moved = kernel_of(np.concatenate([zeta + shifts, zeta - shifts, zeta[None]]))
    p = len(zeta)
    J = (moved[:p] - moved[p : 2 * p]) / (2 * step)
    return float(np.linalg.svd(J, compute_uv=False)[-1] / np.linalg.norm(moved[-1]))


def _search(
    kernel_of: Callable[[np.ndarray], np.ndarray], reach: np.ndarray, pairs: list
) -> tuple[float, np.ndarray]:
    """Minimise the ratio over both ends of a pair, from the pairs that look worst."""
    p = len(reach)

    def losses(flat: np.ndarray) -> np.ndarray:
        K = kernel_of(flat.reshape(-1, p)).reshape(len(flat), 2, -1)
        apart = np.linalg.norm(flat[:, :p] - flat[:, p:], axis=1)
        short = np.maximum(LEAST_DISTANCE - apart, 0.0)
        return np.log(_gap(K[:, 0], K[:, 1])) - np.log(np.maximum(apart, LEAST_DISTANCE)) + 20 * short

    def gradient(flat: np.ndarray) -> np.ndarray:
        step = 1e-5
        values = losses(flat + step * np.concatenate([np.eye(2 * p), -np.eye(2 * p)]))
        return (values[: 2 * p] - values[2 * p :]) / (2 * step)

    bounds = [(-r, r) for r in (*reach, *reach)]
    best: tuple[float, np.ndarray] = (np.inf, np.zeros((2, p)))
    for a, b in pairs[:SEARCHES]:
        out = minimize(
            lambda flat: losses(flat[None])[0], np.concatenate([a, b]), jac=gradient, method="L-BFGS-B",
            bounds=bounds, options={"maxiter": 60},
        )  # fmt: skip
        if out.fun < best[0]:
            best = (float(out.fun), out.x.reshape(2, p))
    return float(np.exp(best[0])), best[1]
