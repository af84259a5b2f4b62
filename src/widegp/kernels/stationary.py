"""Stationary kernels as the limits of networks with cosine units.

A unit h(x) = sqrt(2) cos(u.x + phase) with phase uniform on [0, 2 pi) has E[h(x) h(x')] = E[cos u.(x - x')]:
the covariance is the characteristic function of the hidden weights u, and depends on x - x' alone. With

    s = sum_i sigma_u2_i (x_i - x'_i)^2,  r = sqrt(s)

Gaussian weights of variance sigma_u2 give `RBF`; multivariate Student-t weights with 2 nu degrees of freedom
and squared scale sigma_u2 give the Matérn kernel of smoothness nu: `Matern12`, `Matern32`, `Matern52`. The
length scale of the literature is 1 / sqrt(sigma_u2).

Where each unit has a variance of its own, u | tau ~ N(0, tau sigma_u2), the moment is E exp(-tau s / 2), the
Laplace transform of tau at s / 2. Of a Gamma-distributed tau with shape a and mean 1 it is
(1 + s / (2 a))^-a: `RationalQuadratic`. Of an inverse Gamma it is a Matérn kernel again.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from widegp.data.arrays import Floats
from widegp.kernels.base import Array, Arrays, NetworkKernel, as_kernel
from widegp.kernels.parameters import EXP, SIGMA_B2, SIGMA_U2, SIGMA_V2, SOFTPLUS, Kind, Parameter
from widegp.kernels.priors import LogNormal

# The weights of Matern12 have no variance; their squared scale is what the literature has as a length.
INVERSE_LENGTH = dataclasses.replace(
    SIGMA_U2, meaning="How quickly the function changes along the inputs (1 / length scale squared)."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StationaryKernel(NetworkKernel):
    """K(x, x') = sigma_b2 + sigma_v2 kappa(s),  s = sum_i sigma_u2_i (x_i - x'_i)^2.

    A family enters through ``correlation`` = kappa alone, an elementwise map of s with kappa(0) = 1.

    Parameters
    ----------
    sigma_u2 : squared scale of the hidden weights, 1 / length scale^2; a vector has one entry per input.
    sigma_b2, sigma_v2 : prior variances of the output bias and (times the width) output weights.
    """

    sigma_u2: Array = 1.0
    sigma_b2: Array = 1.0
    sigma_v2: Array = 1.0

    declared: ClassVar[tuple[Parameter, ...]] = (INVERSE_LENGTH, SIGMA_B2, SIGMA_V2)
    degrees_of_freedom: ClassVar[float | None] = None
    """Of the hidden weights' multivariate t distribution; infinite where they are Gaussian, None where they
    are distributed otherwise."""

    @abstractmethod
    def correlation(self, s: Array) -> Array:
        """kappa(s) = E[cos u.(x - x')], elementwise."""

    def formula(self, s: Any, ops: Any) -> Any:
        """kappa(s) by arithmetic and the functions ``exp``, ``sqrt`` and ``log1p`` of ``ops``, as exported
        graphs are made of; None where these do not suffice.
        """
        return None

    def between(self, X: Array, Y: Array) -> Array:
        s = weighted_distances(X, Y, self.sigma_u2)
        return self.sigma_b2 + self.sigma_v2 * self.correlation(s)

    def variance(self, X: Array) -> Array:
        return (self.sigma_b2 + self.sigma_v2) * jnp.ones_like(X[..., 0])

    def embedding(self, X: Array) -> Array:
        """sqrt(sigma_u2) x, at distance r from each other: X (n, I) -> (n, I)."""
        return X * np.sqrt(np.asarray(self.sigma_u2, np.float64))

    def unembedding(self, points: Floats, n_inputs: int) -> Floats:
        return points / np.sqrt(np.asarray(self.sigma_u2, np.float64))


@as_kernel
class RBF(StationaryKernel):
    """kappa = exp(-s / 2): Gaussian hidden weights; functions with all derivatives."""

    degrees_of_freedom: ClassVar[float] = math.inf

    def correlation(self, s: Array) -> Array:
        return self.formula(s, jnp)

    def formula(self, s: Any, ops: Any) -> Any:
        return ops.exp(s / -2.0)


@as_kernel
class Matern12(StationaryKernel):
    """kappa = exp(-r): hidden weights with Cauchy tails; functions that are continuous and no more."""

    degrees_of_freedom: ClassVar[float] = 1.0

    def correlation(self, s: Array) -> Array:
        return exponential(s)

    def formula(self, s: Any, ops: Any) -> Any:
        return ops.exp(-ops.sqrt(s))


@as_kernel
class Matern32(StationaryKernel):
    """kappa = (1 + sqrt(3) r) exp(-sqrt(3) r): t weights with 3 degrees of freedom; one derivative."""

    degrees_of_freedom: ClassVar[float] = 3.0

    def correlation(self, s: Array) -> Array:
        return matern32(s)

    def formula(self, s: Any, ops: Any) -> Any:
        q = ops.sqrt(3.0 * s)
        return (1.0 + q) * ops.exp(-q)


@as_kernel
class Matern52(StationaryKernel):
    """kappa = (1 + sqrt(5) r + 5 s/3) exp(-sqrt(5) r): t weights, 5 degrees of freedom; two derivatives."""

    degrees_of_freedom: ClassVar[float] = 5.0

    def correlation(self, s: Array) -> Array:
        return matern52(s)

    def formula(self, s: Any, ops: Any) -> Any:
        q = ops.sqrt(5.0 * s)
        return (1.0 + q + q * q / 3.0) * ops.exp(-q)


# Below the one end the correlation hardly falls with distance, beyond the other it is that of `RBF`.
MIXING_SHAPE = Kind("shape", EXP, SOFTPLUS, 0.05, 100.0, (LogNormal,))
MIXING = Parameter(
    "mixing", MIXING_SHAPE, LogNormal(1.0, 1.0), "mixing of length scales",
    "How alike the length scales are that the function has at once: small, very unlike; from 10 on, one.",
)  # fmt: skip


@as_kernel
class RationalQuadratic(StationaryKernel):
    """kappa = (1 + s / (2 a))^-a, a = ``mixing``: Gaussian hidden weights whose variance, one for each unit,
    is Gamma-distributed with shape a; functions with all derivatives, on many length scales at once.

    a -> infinity is `RBF`.
    """

    word: ClassVar[str] = "rational_quadratic"
    declared: ClassVar[tuple[Parameter, ...]] = (*StationaryKernel.declared, MIXING)

    mixing: Array = 1.0

    def correlation(self, s: Array) -> Array:
        return self.formula(s, jnp)

    def formula(self, s: Any, ops: Any) -> Any:
        return ops.exp(ops.log1p(s / (2.0 * self.mixing)) * -self.mixing)


def weighted_distances(X: Array, Y: Array, weights: Array) -> Array:
    """sum_i weights_i (x_i - y_i)^2 for all pairs of rows: X (..., n, I), Y (..., p, I) -> (..., n, p).

    By differences: |x|^2 + |y|^2 - 2 x.y would leave duplicates eps |x|^2 apart, and r would lose half its
    digits there. XLA adds up over the inputs as it goes; nothing of size n p I is stored. A single weight
    stays outside of the sum, whose derivative by it then needs no second one.
    """
    if jnp.ndim(weights) == 0:
        return weights * _sum_of_squares(X, Y, 1.0)
    return _by_input(X, Y, weights)


def _sum_of_squares(X: Array, Y: Array, weights: Array) -> Array:
    return jnp.sum(jnp.square(X[..., :, None, :] - Y[..., None, :, :]) * weights, axis=-1)


@jax.custom_jvp
def _by_input(X: Array, Y: Array, weights: Array) -> Array:
    """s for one weight per input (I,), whose pullback goes input by input: autodiff of the sum would store
    the terms of all pairs and inputs, (n, p, I).
    """
    return _sum_of_squares(X, Y, weights)


@_by_input.defjvp
def _by_input_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    (X, Y, weights), (dX, dY, dw) = primals, tangents
    by_rows = jax.jvp(lambda X, Y: _sum_of_squares(X, Y, weights), (X, Y), (dX, dY))[1]
    return _by_input(X, Y, weights), by_rows + _one_after_the_other(X, Y, dw)


def _one_after_the_other(X: Array, Y: Array, weights: Array) -> Array:
    """`_sum_of_squares` input by input; to reverse it nothing larger than its result is stored."""

    @jax.checkpoint
    def add(total: Array, column: tuple[Array, Array, Array]) -> tuple[Array, None]:
        x, y, weight = column
        return total + weight * jnp.square(x[..., :, None] - y[..., None, :]), None

    columns = jnp.moveaxis(X, -1, 0), jnp.moveaxis(Y, -1, 0), weights
    start = jnp.zeros((*X.shape[:-1], Y.shape[-2]), jnp.result_type(X, Y, weights))
    return jax.lax.scan(add, start, columns)[0]


# Autodiff would form dr/ds = 1/(2 r), which is infinite at distance 0; kappa'(s) is written down instead.
@jax.custom_jvp
def exponential(s: Array) -> Array:
    """exp(-r), r = sqrt(s). kappa' = -exp(-r) / (2 r), taken as 0 at s = 0, which no parameter can change."""
    return jnp.exp(-jnp.sqrt(s))


@exponential.defjvp
def _exponential_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    (s,), (ds,) = primals, tangents
    value, apart = exponential(s), s > 0
    return value, ds * jnp.where(apart, -value / (2 * jnp.sqrt(jnp.where(apart, s, 1))), 0)


@jax.custom_jvp
def matern32(s: Array) -> Array:
    """(1 + q) exp(-q), q = sqrt(3 s). kappa' = -(3/2) exp(-q)."""
    q = jnp.sqrt(3 * s)
    return (1 + q) * jnp.exp(-q)


@matern32.defjvp
def _matern32_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    (s,), (ds,) = primals, tangents
    return matern32(s), ds * -1.5 * jnp.exp(-jnp.sqrt(3 * s))


@jax.custom_jvp
def matern52(s: Array) -> Array:
    """(1 + q + q^2 / 3) exp(-q), q = sqrt(5 s). kappa' = -(5/6) (1 + q) exp(-q)."""
    q = jnp.sqrt(5 * s)
    return (1 + q + q * q / 3) * jnp.exp(-q)


@matern52.defjvp
def _matern52_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    (s,), (ds,) = primals, tangents
    q = jnp.sqrt(5 * s)
    return matern52(s), ds * (-5 / 6) * (1 + q) * jnp.exp(-q)


STATIONARY: tuple[type[StationaryKernel], ...] = (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
)
