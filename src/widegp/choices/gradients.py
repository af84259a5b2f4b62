"""Gradients of the posterior mean by the inputs, in closed form, from any posterior.

Every predictive mean is a sum of kernels, mu(x) = sum_p w_p K(x, z_p), and so is its gradient,

    grad mu(x) = sum_p w_p dK(x, z_p)/dx

    posterior              points z                   weights w
    exact, subset          training rows              alpha = K~^-1 y
    nystrom                anchors Z                  W g
    dtc, vfe, fitc         anchors Z                  W beta
    vecchia, full-scale    Z and the nearest rows N   W (beta - Phi_N'g) on Z,  g on N

with g = R_NN^-1 (y_N - Phi_N beta) and R = K - Phi Phi' plus noise on its diagonal: from mu = phi'beta +
R_xN g and R_xN = K(x, N) - phi'Phi_N'. N belongs to the row and is held fixed: where it changes the mean of
these two approximations jumps, and between the jumps this is its gradient.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from widegp.conditioning import TrainingRows

Array = Any

# Numbers of a kernel block that a step may hold, and the rows of a step at most: few shapes to compile.
BLOCK_NUMBERS = 2**21
BLOCK_ROWS = 1024


def mean_gradients(posterior: Any, X: np.ndarray, rows: TrainingRows | None = None) -> np.ndarray:
    """d mu/dx at the rows of X (q, I) -> (q, I), in the coordinates and the target's scale of the posterior.

    ``rows`` are the training rows where predictions condition on the nearest of them, as ``rows.count`` says.
    """
    X = np.asarray(X, float)
    needed = ("expansion",) if rows is None else ("Z", "W", "beta")
    if not all(hasattr(posterior, name) for name in needed):
        raise ValueError(
            f"{type(posterior).__name__} has no {' and '.join(needed)}, of which gradients are made;"
            " fit with metric='iso'."
        )
    kernel = posterior.kernel
    with jax.enable_x64(True):
        if rows is None:
            points, weights = map(jnp.asarray, posterior.expansion())
            return _stream(partial(_of_points, kernel, points, weights), X, len(points))
        Z, W, beta = (jnp.asarray(part) for part in (posterior.Z, posterior.W, posterior.beta))
        near = rows.nearest(X)
        size = len(Z) + near.shape[1] * (near.shape[1] + len(Z) + X.shape[1])

        def beside(block: np.ndarray, near: np.ndarray) -> Array:
            points, y = jnp.asarray(rows.X[near]), jnp.asarray(rows.y[near])
            given = _Neighbors(points, y, _noise(posterior, rows, near))
            return _of_neighbors(kernel, Z, W, beta, jnp.asarray(block), given)

        return _stream(beside, X, size, near)


def _noise(posterior: Any, rows: TrainingRows, near: np.ndarray) -> Array:
    """Variance of the noise of the rows ``near`` (q, m)."""
    return posterior.noise * (jnp.ones(near.shape) if rows.spread is None else jnp.asarray(rows.spread[near]))


@jax.jit
def _of_points(kernel: Any, points: Array, weights: Array, X: Array) -> Array:
    """sum_p w_p dK(x, z_p)/dx for points (p, I), weights (p,), X (b, I) -> (b, I)."""
    # The rows of K(X, points) depend on their own x alone, so the gradient of their sum holds one per row.
    return jax.grad(lambda X: jnp.sum(kernel(X, points) @ weights))(X)


class _Neighbors(NamedTuple):
    """Of each of b rows the m training rows nearest to it: points (b, m, I), y (b, m), noise (b, m)."""

    points: Array
    y: Array
    noise: Array


@jax.jit
def _of_neighbors(kernel: Any, Z: Array, W: Array, beta: Array, X: Array, near: _Neighbors) -> Array:
    """The same for rows X (b, I), each with its neighbours."""

    def row(x: Array, own: _Neighbors) -> Array:
        points, y, noise = own
        phi = kernel(points, Z) @ W if len(Z) else jnp.zeros((len(points), 0))
        R = kernel(points, points) - phi @ phi.T + jnp.diag(noise)
        g = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(R), True), y - phi @ beta)

        def mean(x: Array) -> Array:
            near = kernel(x[None], points)[0] @ g
            return near + kernel(x[None], Z)[0] @ (W @ (beta - phi.T @ g)) if len(Z) else near

        return jax.grad(mean)(x)

    return jax.vmap(row)(X, near)


def _stream(step: Any, X: np.ndarray, numbers: int, *others: np.ndarray) -> np.ndarray:
    """step over blocks of rows of equal size, the last one filled up with its own rows."""
    size = max(1, min(BLOCK_ROWS, len(X), BLOCK_NUMBERS // max(numbers, 1)))
    out = np.empty_like(X)
    for start in range(0, len(X), size):
        rows = np.resize(np.arange(start, min(start + size, len(X))), size)
        made = np.asarray(step(*(part[rows] for part in (X, *others))))
        out[start : start + size] = made[: len(X) - start]
    return out
