"""Kernels that are an elementwise map of the covariances of Gaussian pre-activations."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from widegp.data.arrays import Floats
from widegp.kernels import parameters
from widegp.kernels.base import CURVE_POINTS, Array, Curve, NetworkKernel, namespace

VARIANCES = tuple(parameter.name for parameter in parameters.VARIANCES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentKernel(NetworkKernel):
    """K(x, x') = sigma_b2 + sigma_v2 E[h(Z) h(Z')], eq. (kernel_general_main).

    (Z, Z') is centred Gaussian with covariance c = sigma_a2 + sum_i sigma_u2_i x_i x'_i and variances
    d, e = sigma_a2 + |x|^2, |x'|^2 in the same metric (appendix, pre-activation moments).
    An activation h enters through ``moment`` alone, an elementwise map of (c, d, e).

    Parameters
    ----------
    sigma_a2, sigma_u2 : prior variances of the hidden biases and hidden weights;
        ``sigma_u2`` may be a vector with one entry per input (ARD).
    sigma_b2, sigma_v2 : prior variances of the output bias and (times the width) output weights.
    """

    sigma_a2: Array = 1.0
    sigma_u2: Array = 1.0
    sigma_b2: Array = 1.0
    sigma_v2: Array = 1.0

    declared: ClassVar[tuple[parameters.Parameter, ...]] = parameters.VARIANCES

    @abstractmethod
    def moment(self, c: Array, d: Array, e: Array) -> Array:
        """E[h(Z) h(Z')] for Cov(Z, Z') = c, Var Z = d, Var Z' = e, elementwise."""

    def entry(self, c: Array, d: Array, e: Array) -> Array:
        """K(c, d, e) = sigma_b2 + sigma_v2 E[h(Z) h(Z')], elementwise."""
        return self.sigma_b2 + self.sigma_v2 * self.moment(c, d, e)

    def preactivation_variance(self, X: Array) -> Array:
        """d(x) = sigma_a2 + sum_i sigma_u2_i x_i^2; X (..., I) -> (...)."""
        return self.sigma_a2 + jnp.sum(X * X * self.sigma_u2, axis=-1)

    def between(self, X: Array, Y: Array) -> Array:
        d = self.preactivation_variance(X)
        e = d if Y is X else self.preactivation_variance(Y)
        c = self.sigma_a2 + weighted_products(X, Y, self.sigma_u2)
        return self.entry(c, d[..., :, None], e[..., None, :])

    def variance(self, X: Array) -> Array:
        d = self.preactivation_variance(X)
        return self.entry(d, d, d)

    def embedding(self, X: Array) -> Array:
        """u(x) = (sqrt(sigma_a2), sqrt(sigma_u2) x) / sqrt(d): X (n, I) -> (n, I + 1).

        |u - u'|^2 = 2 (1 - rho): Euclidean distance orders rows by the correlation rho of their
        pre-activations, which every such kernel increases with. With ARD the inputs are weighed by sigma_u2.
        """
        xp = namespace(X)
        scaled = X * np.sqrt(np.asarray(self.sigma_u2, np.float64))
        d = float(self.sigma_a2) + (scaled * scaled).sum(1)
        root = xp.sqrt(xp.maximum(d, np.finfo(float).tiny))
        bias = xp.full((len(X), 1), math.sqrt(self.sigma_a2))
        return xp.concatenate([bias, scaled], axis=1) / root[:, None]

    def unembedding(self, points: Floats, n_inputs: int) -> Floats:
        """Back from (homogeneous) coordinates u (r, I + 1) to inputs (r, I), for means of embedded rows too.

        The mean of u over a cluster comes back as the mean of its rows, weighted by 1 / sqrt(d).
        """
        bias = math.sqrt(self.sigma_a2)
        return points[:, 1:] / np.sqrt(np.asarray(self.sigma_u2, np.float64)) / (points[:, :1] / bias)

    def curve(self, rows: np.ndarray, points: int = CURVE_POINTS) -> Curve:
        """K over the correlation rho of two pre-activations, c = rho d, d the mean variance over the rows."""
        d = float(np.mean(float(self.sigma_a2) + np.square(rows) @ self.input_weights(rows.shape[1])))
        rho = np.linspace(-1, 1, points)
        ones = np.full_like(rho, d)
        return Curve("correlation", rho, self.entries(rho * d, ones, ones), d)

    def entries(self, c: np.ndarray, d: np.ndarray, e: np.ndarray) -> dict[str, np.ndarray]:
        """`summands` as maps of (c, d, e), arrays of one shape."""
        summands: dict[str, Any] = dict(self.summands())
        with jax.enable_x64(True):
            values = {name: np.asarray(part.entry(c, d, e)) for name, part in summands.items()}
        return {name: value + np.zeros_like(c) for name, value in values.items()}


def weighted_products(X: Array, Y: Array, weights: Array) -> Array:
    """sum_i weights_i x_i y_i for all pairs of rows: X (..., n, I), Y (..., p, I) -> (..., n, p).

    A single weight stays outside of the product, whose derivative by it then needs no second product.
    """
    highest, right = jax.lax.Precision.HIGHEST, jnp.swapaxes(Y, -1, -2)
    if jnp.ndim(weights) == 0:
        return weights * jnp.matmul(X, right, precision=highest)
    return jnp.matmul(X * weights, right, precision=highest)
