"""The limit kernel of any elementwise activation, from a trapezoidal rule and Mehler's series.

E[h(Z) h(Z')] is a double integral. With p_k the orthonormal Hermite polynomials of the standard normal
density, Mehler's formula makes the density diagonal and leaves one integral per row:

    E[h(Z) h(Z')] = sum_k rho^k a_k(sigma) a_k(sigma'),     a_k(sigma) = E[h(sigma U) p_k(U)],  U ~ N(0, 1)

with sigma^2 = d, sigma'^2 = e, rho = c / (sigma sigma'). A pair of rows then costs ``terms`` multiplications
instead of one evaluation of h per node of a two-dimensional grid, and a truncated series is still
symmetric and positive semi-definite. Price's theorem gives the derivatives, again moments of the same kind:

    dE/dc = E[h'(Z) h'(Z')],     dE/dd = E[h''(Z) h(Z')] / 2,     dE/de = E[h(Z) h''(Z')] / 2
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from widegp.kernels.base import Array, Arrays, as_kernel
from widegp.kernels.moment import MomentKernel

Slab = Callable[[Array, Array], Array]
Activation = Callable[[Array], Array]

REACH = 12.0  # the square root of the normal density, which damps both factors of a_k, is 2e-16 there
SLAB = 16  # terms added between two passes over the pairs of rows

# Trusted without a check, since building the ready-made kernels must not start JAX's device at import; and
# pickled by these names, since pickle finds no jitted function under its own.
_NAMED: dict[str, Activation] = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid}


@as_kernel
class FromActivation(MomentKernel):
    """sigma_b2 + sigma_v2 E[h(Z) h(Z')], eq. (kernel_general_main), for an elementwise activation h.

    Parameters
    ----------
    fn : h, written with ``jax.numpy``, array of any shape -> array of the same shape. It is a static part of
        the kernel: its own constants are not fitted.
    terms : length of the series. What is needed at rho = +-1 grows like the largest pre-activation
        variance; away from +-1 far fewer suffice.
    sigma_a2, sigma_u2, sigma_b2, sigma_v2 : as in `MomentKernel`.

    With the default terms, in float64, values and gradients are within 1e-12 (absolute) for tanh up to
    pre-activation variance 25 and for sigmoid up to 100; beyond, multiply ``terms`` by the same factor as
    the variance. An activation that grows like exp(z) keeps 1e-12 up to variance 6.
    Non-smooth activations are less accurate: with a kink (relu) about 1e-4 relative in values and 1e-3 in
    gradients, 1e-2 at rho = +-1; with a jump (sign) 1e-2 in values. `ReLU` and `LeakyReLU` are exact.
    For rows of variance below 4e-4 (0.03 in float32) derivatives use those of fn, which miss a kink at 0.

    Time is O((n + p) nodes terms + n p terms), memory O((n + p) nodes + n p), with nodes ~ 13 sqrt(terms).
    """

    fn: Activation = dataclasses.field(kw_only=False)
    terms: int = 2560
    static: ClassVar[tuple[str, ...]] = ("fn", "terms")

    def __post_init__(self) -> None:
        if not isinstance(self.terms, int) or self.terms < 1:
            raise ValueError(f"terms counts the terms of a series, a positive integer; got {self.terms!r}.")
        if not any(self.fn is known for known in _NAMED.values()):
            check_activation(self.fn)

    def __getstate__(self) -> dict[str, Any]:
        names = [name for name, fn in _NAMED.items() if fn is self.fn]
        return self.__dict__ | ({"fn": names[0]} if names else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        fn = state["fn"]
        self.__dict__.update(state | {"fn": _NAMED[fn] if isinstance(fn, str) else fn})

    def moment(self, c: Array, d: Array, e: Array) -> Array:
        return hermite_moment(_Factors(self.fn, self.terms), c, d, e)


class _Factors(NamedTuple):
    """h^(i)(Z) h^(j)(Z'), derivatives of order i and j of h = fn, whose mean is a series of ``terms`` terms.

    A program is compiled for each.
    """

    fn: Activation
    terms: int
    i: int = 0
    j: int = 0

    def raised(self, i: int, j: int) -> _Factors:
        """Differentiated i times more by Z and j times more by Z'."""
        return self._replace(i=self.i + i, j=self.j + j)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def hermite_moment(of: _Factors, c: Array, d: Array, e: Array) -> Array:
    """M_ij = E[h^(i)(Z) h^(j)(Z')], elementwise in (c, d, e)."""
    return _series(of, c, d, e)


@hermite_moment.defjvp
def _price(of: _Factors, primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    # Autodiff of the series would divide by sigma and store every term; Price's theorem does neither.
    dc, dd, de = tangents
    by_c = hermite_moment(of.raised(1, 1), *primals)
    by_d = hermite_moment(of.raised(2, 0), *primals) / 2
    by_e = hermite_moment(of.raised(0, 2), *primals) / 2
    return hermite_moment(of, *primals), by_c * dc + by_d * dd + by_e * de


@partial(jax.jit, static_argnums=0)
def _series(of: _Factors, c: Array, d: Array, e: Array) -> Array:
    """sum_k rho^k a_k(sigma) a_k(sigma'), a slab of terms at a time from k = 0 upwards."""
    fn, terms, i, j = of
    dtype = jnp.result_type(float, c, d, e)
    c, d, e = (jnp.asarray(v, dtype) for v in (c, d, e))
    scale = jnp.sqrt(d) * jnp.sqrt(e)
    rho = jnp.clip(c / jnp.where(scale > 0, scale, 1), -1, 1)
    u, weight = (jnp.asarray(v, dtype) for v in _nodes(terms))
    left = _coefficients(fn, i, d, u, weight)
    right = _coefficients(fn, j, e, u, weight)
    whole_slab = rho**SLAB

    def raise_degree(pair: Arrays, k: Array) -> tuple[Arrays, Array]:
        below, at_k = pair
        return (at_k, (u * at_k - jnp.sqrt(k) * below) / jnp.sqrt(k + 1)), at_k

    def add_slab(carry: Arrays, k: Array) -> tuple[Arrays, None]:
        total, power, *pair = carry
        degrees = k + jnp.arange(SLAB + 1 + max(i, j))
        basis: Array = jax.lax.scan(raise_degree, tuple(pair), degrees)[1]
        f, g = left(basis, k), right(basis, k)
        inner = f[..., -1] * g[..., -1]
        for s in reversed(range(SLAB - 1)):
            inner = inner * rho + f[..., s] * g[..., s]
        return (total + power * inner, power * whole_slab, basis[SLAB - 1], basis[SLAB]), None

    root_density = jnp.exp(-u * u / 4) / (2 * math.pi) ** 0.25
    start = (jnp.zeros_like(rho), jnp.ones_like(rho), jnp.zeros_like(u), root_density)
    (total, *_), _ = jax.lax.scan(add_slab, start, jnp.arange(0, terms, SLAB).astype(dtype))
    return total


def _nodes(terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes u and weights du sqrt(normal density); the other square root sits in the Hermite basis.

    p_terms oscillates with frequency sqrt(terms), and so does, to the accuracy stated for that many terms,
    the activation; the step resolves their product. An even number keeps u = 0, a usual kink, off the grid.
    """
    n_nodes = 2 * math.ceil(6.5 * math.sqrt(max(terms, 64)))
    du = 2 * REACH / n_nodes
    u = -REACH + du * (np.arange(n_nodes) + 0.5)
    return u, du * np.exp(-u * u / 4) / (2 * math.pi) ** 0.25


def _coefficients(fn: Activation, order: int, variance: Array, u: Array, weight: Array) -> Slab:
    """A map from the Hermite functions k, k+1, ... at the nodes (rows) to a_k = E[h^(order)(sigma U) p_k(U)].

    Integration by parts, sigma E[h'(sigma U) p_k] = sqrt(k + 1) E[h(sigma U) p_(k+1)], needs no derivative of
    h and so holds for kinks and jumps, but divides by sigma: rows of small variance differentiate h instead.
    """
    sigma = jnp.sqrt(variance)[..., None]
    small = sigma < np.finfo(sigma.dtype).eps ** 0.11
    nth = fn
    for _ in range(order):
        nth = _derivative(nth)
    direct = weight * nth(sigma * u)
    by_parts = weight * fn(sigma * u) / jnp.where(small, 1, sigma) ** order
    product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

    def slab(basis: Array, k: Array) -> Array:
        plain = product(direct, basis[:SLAB].T)
        if order == 0:
            return plain
        degrees = k + jnp.arange(SLAB)
        rising = math.prod(jnp.sqrt(degrees + s) for s in range(1, order + 1))
        return jnp.where(small, plain, rising * product(by_parts, basis[order : order + SLAB].T))

    return slab


def _derivative(fn: Activation) -> Activation:
    return lambda z: jax.jvp(fn, (z,), (jnp.ones_like(z),))[1]


@lru_cache(maxsize=256)
def check_activation(fn: Activation) -> None:
    """Raise ValueError unless fn is an elementwise JAX function with E[h(Z)^2] finite for Gaussian Z.

    The moment is finite for every variance when log|h(z)| = o(z^2), which holds for the polynomial growth of
    Proposition (second_moment) and for exp(z); it is judged on z = +-32, +-64.
    """
    if not callable(fn):
        raise ValueError(f"An activation is a function such as jnp.tanh; got {type(fn).__name__}.")
    z = np.concatenate([np.linspace(-8, 8, 50), [-64.0, -32.0, 32.0, 64.0]])
    values, part = _evaluate(fn, z), _evaluate(fn, z[::2])
    shapes_agree = values.shape == z.shape and part.shape == z[::2].shape
    if not shapes_agree or not np.allclose(part, values[::2], rtol=1e-9, equal_nan=True):
        raise ValueError(
            "The activation is not elementwise: an entry of its result depends on the other entries or the"
            f" shape changes ({z.shape} -> {values.shape}). Pass a function of one unit, such as jnp.tanh."
        )
    if np.isnan(values).any():
        where = z[np.isnan(values)][0]
        raise ValueError(f"The activation returns NaN at z = {where:g}; it must exist on the whole line.")
    growth = np.log1p(np.abs(values)) / z**2
    if np.isinf(values).any() or growth[-4] > 0.75 * growth[-3] or growth[-1] > 0.75 * growth[-2]:
        raise ValueError(
            "The activation grows too fast: E[h(Z)^2] must be finite for Gaussian Z, which fails when"
            " log|h(z)| grows like z^2. Polynomial growth or exp(z) is fine."
        )


def _evaluate(fn: Activation, z: np.ndarray) -> np.ndarray:
    # A kernel may be built while JAX is tracing; the check itself needs numbers.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        try:
            jax.eval_shape(fn, z)
        except (jax.errors.JAXTypeError, TypeError, ValueError) as error:
            raise ValueError(
                f"The activation fails on a JAX array ({type(error).__name__}); write it with jax.numpy,"
                " without branches on its argument (use jnp.where)."
            ) from error
        return np.asarray(fn(jnp.asarray(z)))


exact_tanh = FromActivation(jnp.tanh)  # type: ignore[call-arg]
exact_sigmoid = FromActivation(jax.nn.sigmoid)  # type: ignore[call-arg]
