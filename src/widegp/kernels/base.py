"""What every limit kernel shares: pre-activation moments, diagonal, precision, free parameters."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # NumPy or JAX; the kernels follow whichever they are given.

VARIANCES = ("sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """K(x, x') = sigma_b2 + sigma_v2 E[h(Z) h(Z')], eq. (kernel_general_main).

    (Z, Z') is centred Gaussian with covariance c = sigma_a2 + sum_i sigma_u2_i x_i x'_i and variances
    d, e = sigma_a2 + |x|^2, |x'|^2 in the same metric (appendix, pre-activation moments).
    An activation h enters through ``moment`` alone, an elementwise map of (c, d, e).

    Parameters
    ----------
    sigma_a2, sigma_u2 : prior variances of the hidden biases and hidden weights;
        ``sigma_u2`` may be a vector with one entry per input (ARD).
    sigma_b2, sigma_v2 : prior variances of the output bias and (times the width) output weights.

    NumPy in, NumPy out, in float64 whatever JAX's global setting is; JAX arrays and tracers (in
    the inputs or the parameters) keep their own precision and work under ``jit``, ``grad``, ``vmap``.
    """

    sigma_a2: Array = 1.0
    sigma_u2: Array = 1.0
    sigma_b2: Array = 1.0
    sigma_v2: Array = 1.0

    free: ClassVar[tuple[str, ...]] = VARIANCES
    """Names of the parameters that a fit may move."""

    @abstractmethod
    def moment(self, c: Array, d: Array, e: Array) -> Array:
        """E[h(Z) h(Z')] for Cov(Z, Z') = c, Var Z = d, Var Z' = e, elementwise."""

    def preactivation_variance(self, X: Array) -> Array:
        """d(x) = sigma_a2 + sum_i sigma_u2_i x_i^2; X (n, I) -> (n,)."""
        return self.sigma_a2 + jnp.sum(X * X * self.sigma_u2, axis=-1)

    def __call__(self, X: Array, Y: Array | None = None) -> Array:
        """K(X, Y): X (n, I), Y (p, I) -> (n, p); Y defaults to X."""
        if _all_numpy(self, X, Y):
            with jax.enable_x64(True):
                Y64 = None if Y is None else jnp.asarray(Y, float)
                return np.array(self._matrix(jnp.asarray(X, float), Y64))
        return self._matrix(jnp.asarray(X), None if Y is None else jnp.asarray(Y))

    def diag(self, X: Array) -> Array:
        """K(x, x) for every row of X: (n, I) -> (n,)."""
        if _all_numpy(self, X):
            with jax.enable_x64(True):
                return np.array(self._diagonal(jnp.asarray(X, float)))
        return self._diagonal(jnp.asarray(X))

    def _matrix(self, X: Array, Y: Array | None) -> Array:
        _check_inputs(self, X, Y)
        d = self.preactivation_variance(X)
        e = d if Y is None else self.preactivation_variance(Y)
        right = X if Y is None else Y
        inner = weighted_products(X, right, self.sigma_u2)
        return self._entry(self.sigma_a2 + inner, d[:, None], e[None, :])

    def _diagonal(self, X: Array) -> Array:
        _check_inputs(self, X, None)
        d = self.preactivation_variance(X)
        return self._entry(d, d, d)

    def _entry(self, c: Array, d: Array, e: Array) -> Array:
        return self.sigma_b2 + self.sigma_v2 * self.moment(c, d, e)

    def parameters(self) -> dict[str, Array]:
        """The free parameters by name."""
        return {name: getattr(self, name) for name in self.free}

    def replace(self, **parameters: Array) -> Self:
        """A copy with some parameters changed."""
        return dataclasses.replace(self, **parameters)


def weighted_products(X: Array, Y: Array, weights: Array) -> Array:
    """sum_i weights_i x_i y_i for all pairs of rows: X (n, I), Y (p, I) -> (n, p).

    A single weight stays outside of the product, whose derivative by it then needs no second product.
    """
    highest = jax.lax.Precision.HIGHEST
    if jnp.ndim(weights) == 0:
        return weights * jnp.matmul(X, Y.T, precision=highest)
    return jnp.matmul(X * weights, Y.T, precision=highest)


def as_kernel(cls: type) -> type:
    """Make a kernel class a frozen dataclass whose parameters are the leaves of a JAX pytree.

    Not by ``register_dataclass``: JAX (0.10) takes the structures of two such classes with the same fields
    for equal, and a function jitted for Tanh then now and then answers for Sigmoid.
    """
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    static = tuple(getattr(cls, "static", ()))
    leaves = tuple(f.name for f in dataclasses.fields(cls) if f.name not in static)
    make: Any = cls

    def flatten(kernel: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(kernel, n) for n in leaves), tuple(getattr(kernel, n) for n in static)

    def flatten_with_keys(kernel: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values, constants = flatten(kernel)
        keys = (jax.tree_util.GetAttrKey(n) for n in leaves)
        return tuple(zip(keys, values, strict=True)), constants

    def unflatten(constants: tuple[Any, ...], values: Any) -> Any:
        return make(**dict(zip(leaves, values, strict=True)), **dict(zip(static, constants, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _all_numpy(*trees: Any) -> bool:
    return not any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(trees))


def _check_inputs(kernel: Kernel, X: Array, Y: Array | None) -> None:
    if X.ndim != 2 or (Y is not None and Y.ndim != 2):
        shapes = X.shape if Y is None else (X.shape, Y.shape)
        raise ValueError(
            f"A kernel takes tables of rows, shape (n, I); got {shapes}. Reshape one row with X[None, :]."
        )
    if Y is not None and X.shape[1] != Y.shape[1]:
        raise ValueError(f"X has {X.shape[1]} inputs and Y has {Y.shape[1]}; they must agree.")
    n_variances = np.size(kernel.sigma_u2)
    if np.ndim(kernel.sigma_u2) > 0 and n_variances != X.shape[1]:
        raise ValueError(
            f"sigma_u2 has {n_variances} entries but the rows have {X.shape[1]} inputs;"
            " pass one entry per input, or a single number."
        )
