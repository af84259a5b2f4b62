"""Any kernel on any device that JAX finds; the same formulas as `widegp.compute.native_rows`, batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from threadpoolctl import threadpool_limits

from widegp.compute.backend import BLOCK_BYTES, Block, Conditional, Cotangent, RowBars, RowCotangents
from widegp.kernels.base import Kernel

Array = Any

# An accelerator is busy with so many rows; more in a block would only take more memory.
BLOCK_ROWS = 2**15
# Trying out every way to multiply takes XLA seconds per program and made no product faster that was tried;
# of the ways, Triton's takes twice as long in float64, which it does not give to the tensor cores.
QUICK = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


@dataclass(frozen=True)
class XlaBackend:
    """See `backend.Backend`. A kernel cotangent is a kernel whose parameters are derivatives."""

    name = "xla"
    xp = jnp
    pads = True
    block_rows = BLOCK_ROWS

    @property
    def block_bytes(self) -> int:
        """A sixteenth of an accelerator's memory: few, large blocks keep it busy."""
        return max(BLOCK_BYTES, self._memory() // 16)

    @property
    def keep_bytes(self) -> int:
        """A quarter of an accelerator's memory."""
        return max(BLOCK_BYTES, self._memory() // 4)

    def _memory(self) -> int:
        if not self.keeps_shapes:
            return 0
        return int((jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 0))

    @property
    def keeps_shapes(self) -> bool:
        return jax.default_backend() != "cpu"

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Float64 for the computations inside, and for nobody else.

        What is left to the host is small, and BLAS on all cores takes longer for it than on one.
        """
        with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
            yield

    def compiled(self, fn: Callable[..., Any], *fixed: Any) -> Callable[..., Any]:
        return _compiled(fn, fixed)

    def cholesky(self, matrix: Array) -> Array:
        return jnp.linalg.cholesky(matrix)

    def solve_lower(self, lower: Array, right: Array, transposed: bool = False) -> Array:
        if lower.shape[0] == 0:
            return right
        return jsl.solve_triangular(lower, right, lower=True, trans=1 if transposed else 0)

    def invert_lower(self, lower: Array) -> Array:
        return self.solve_lower(lower, jnp.eye(lower.shape[0], dtype=lower.dtype))

    def residual_inverse(self, kernel: Kernel, X: Array, features: Array, noise: Array) -> Array:
        R = self.cross(kernel, X, X) - features @ features.T
        return self.invert_lower(self.cholesky(R + jnp.diag(noise)))

    def packed(self, lower: Array) -> Array:
        return lower

    def matmul(self, left: Array, right: Array) -> Array:
        return jnp.matmul(left, right, precision="highest")

    def inner(self, left: Array, right: Array) -> Array:
        if left is right and self.keeps_shapes:
            zero = jnp.zeros((left.shape[1], left.shape[1]), left.dtype)
            return jax.lax.linalg.symmetric_product(left.T, zero, symmetrize_output=True)
        return jnp.matmul(left.T, right, precision="highest")

    def scale_rows(self, matrix: Array, scale: Array) -> Array:
        return matrix * scale[:, None]

    def fixed(self, kernel: Kernel, Z: Array) -> Array:
        return Z

    def cross(self, kernel: Kernel, X: Array, Z: Array) -> Array:
        return _cross(kernel, X, Z)

    def features(self, kernel: Kernel, X: Array, Z: Array, W: Array) -> Array:
        return self.matmul(_cross(kernel, X, Z), W)

    def cross_pullback(self, kernel: Kernel, X: Array, Z: Array, cotangent: Cotangent) -> Kernel:
        K_bar = cotangent.left
        if cotangent.right is not None:
            K_bar = self.matmul(K_bar, cotangent.right)
        if cotangent.column is not None:
            K_bar = K_bar + cotangent.column[:, None] * cotangent.row
        return _cross_pullback(kernel, X, Z, K_bar)

    def diagonal(self, kernel: Kernel, X: Array) -> Array:
        return _diagonal(kernel, X)

    def diagonal_pullback(self, kernel: Kernel, X: Array, cotangent: Array) -> Kernel:
        return _diagonal_pullback(kernel, X, cotangent)

    def condition(self, kernel: Kernel, noise: Array, block: Block, features: Array) -> Conditional:
        return _condition(kernel, noise, block, features)[0]

    def condition_pullback(
        self, kernel: Kernel, noise: Array, block: Block, features: Array, cotangents: RowCotangents,
        by_row: bool,
    ) -> tuple[Array, Array, Kernel, RowBars | None]:  # fmt: skip
        *bars, row_bars = _condition_pullback(kernel, noise, block, features, cotangents)
        return *bars, row_bars if by_row else None

    def row_pullback(
        self, kernel: Kernel, noise: Array, block: Block, features: Array, cotangents: RowCotangents
    ) -> RowBars:
        return _row_pullback(kernel, noise, block, features, cotangents)

    def kernel_gradient(self, kernel: Kernel, cotangent: Kernel) -> dict[str, np.ndarray]:
        slopes = cotangent.parameters()
        return {
            name: np.asarray(slopes[name], float).reshape(np.shape(value))
            for name, value in kernel.parameters().items()
        }


def compiler_options() -> dict[str, Any] | None:
    """For whole programs; a function jitted inside of one has none of its own."""
    return QUICK if jax.default_backend() in ("gpu", "cuda") else None


@lru_cache(maxsize=64)
def _compiled(fn: Callable[..., Any], fixed: tuple[Any, ...]) -> Callable[..., Any]:
    return jax.jit(partial(fn, *fixed), compiler_options=compiler_options())


@jax.jit
def _cross(kernel: Kernel, X: Array, Z: Array) -> Array:
    return kernel(X, Z)


@jax.jit
def _cross_pullback(kernel: Kernel, X: Array, Z: Array, cotangent: Array) -> Kernel:
    """dF/dtheta_k = sum_ij cotangent_ij dK_ij/dtheta_k.

    For a handful of numbers forward mode is the faster one: all slopes are functions of the same entries, so
    slopes, products and sums are one pass over them. A vector (ARD) has too many, and goes backwards.
    """
    leaves, tree = jax.tree_util.tree_flatten(_floats(kernel))
    if any(leaf.ndim for leaf in leaves):
        return jax.vjp(lambda k: k(X, Z), _floats(kernel))[1](cotangent)[0]

    def moved(k: int, leaf: Array) -> Array:
        return jax.tree_util.tree_unflatten(tree, [*leaves[:k], leaf, *leaves[k + 1 :]])(X, Z)

    slopes = [jax.jvp(partial(moved, k), (leaf,), (jnp.ones_like(leaf),))[1] for k, leaf in enumerate(leaves)]
    return jax.tree_util.tree_unflatten(tree, _sums([cotangent * slope for slope in slopes]))


def _sums(terms: list[Array]) -> list[Array]:
    """The sum of every term, in one reduction: apart, each would read all that they share again."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    add = lambda left, right: tuple(a + b for a, b in zip(left, right, strict=True))  # noqa: E731
    return list(jax.lax.reduce(tuple(terms), zeros, add, (0, 1)))


@jax.jit
def _diagonal(kernel: Kernel, X: Array) -> Array:
    return kernel.diag(X)


@jax.jit
def _diagonal_pullback(kernel: Kernel, X: Array, cotangent: Array) -> Kernel:
    return jax.vjp(lambda k: k.diag(X), _floats(kernel))[1](cotangent)[0]


def _floats(kernel: Kernel) -> Kernel:
    """Parameters as arrays: Python numbers have no tangent space under JAX."""
    return jax.tree_util.tree_map(jnp.asarray, kernel)


def _sets(block: Block) -> tuple[Array, Array]:
    """Indices of M = (N, i) for every row (B, m + 1), and which of them exist."""
    own = jnp.arange(block.neighbors.shape[0])[:, None]
    members = jnp.concatenate([block.neighbors, own], axis=1)
    return jnp.maximum(members, 0), members >= 0


@jax.jit
def _condition(kernel: Kernel, noise: Array, block: Block, features: Array) -> tuple[Conditional, Any]:
    members, exists = _sets(block)
    points, phi = block.X[members], features[members] * exists[:, :, None]
    y = jnp.where(exists, block.y[members], 0.0)
    low_rank = jnp.einsum("bmr,bnr->bmn", phi, phi, precision="highest")
    both = exists[:, :, None] & exists[:, None, :]
    residual = jnp.where(both, kernel.between(points, points) - low_rank, 0.0)
    diagonal = jnp.where(exists, noise * block.spread[members], 1.0)
    L = jnp.linalg.cholesky(residual + jnp.eye(members.shape[1], dtype=phi.dtype) * diagonal[:, :, None])
    ok = jnp.isfinite(L[:, -1, -1])
    L = jnp.where(ok[:, None, None], L, jnp.eye(members.shape[1], dtype=phi.dtype))
    a = _solve(L[:, :-1, :-1], L[:, -1, :-1], transposed=True)
    own_phi = phi[:, -1] - jnp.einsum("bm,bmr->br", a, phi[:, :-1], precision="highest")
    own_y = y[:, -1] - jnp.sum(a * y[:, :-1], axis=1)
    d = L[:, -1, -1] ** 2
    failed = jnp.sum(~ok & (block.weight > 0))
    return Conditional(own_phi, own_y, d, failed), (members, exists, points, phi, y, L, a)


def _solve(L: Array, right: Array, transposed: bool) -> Array:
    if L.shape[1] == 0:
        return right
    return jax.lax.linalg.triangular_solve(
        L, right[..., None], left_side=True, lower=True, transpose_a=transposed
    )[..., 0]


@jax.jit
def _condition_pullback(
    kernel: Kernel, noise: Array, block: Block, features: Array, cotangents: RowCotangents
) -> tuple[Array, Array, Kernel, RowBars]:
    """The formulas of `native_rows.condition_pullback`."""
    rows, (members, exists, points, phi, y, L, a) = _condition(kernel, noise, block, features)
    by_phi, by_y, by_d = cotangents.to_rows(rows, block.weight)
    g = -jnp.einsum("bmr,br->bm", phi[:, :-1], by_phi, precision="highest") - y[:, :-1] * by_y[:, None]
    s = _solve(L[:, :-1, :-1], _solve(L[:, :-1, :-1], g, False), True)
    v = (
        by_phi
        - jnp.einsum("bmr,bm->br", phi[:, :-1], s, precision="highest")
        - 2 * by_d[:, None] * rows.features
    )
    a_tilde = jnp.concatenate([a, -jnp.ones_like(by_d)[:, None]], axis=1)
    s_tilde = jnp.concatenate([s, jnp.zeros_like(by_d)[:, None]], axis=1)
    crossed = s_tilde[:, :, None] * a_tilde[:, None, :]
    T = by_d[:, None, None] * a_tilde[:, :, None] * a_tilde[:, None, :]
    T = T - (crossed + jnp.swapaxes(crossed, 1, 2)) / 2
    T = jnp.where(exists[:, :, None] & exists[:, None, :], T, 0.0)
    kernel_bar = jax.grad(lambda k: jnp.sum(T * k.between(points, points)))(_floats(kernel))
    noise_bar = jnp.diagonal(T, axis1=1, axis2=2) * noise * block.spread[members]
    to_members = -(a_tilde[:, :, None] * v[:, None, :]) - s_tilde[:, :, None] * rows.features[:, None, :]
    to_members = to_members * exists[:, :, None]
    features_bar = jnp.zeros_like(features).at[members].add(to_members)
    y_bar = jnp.zeros_like(block.y).at[members].add(-a_tilde * by_y[:, None] * exists)
    row_bars = RowBars(y_bar, jnp.zeros_like(block.y).at[members].add(noise_bar))
    return features_bar, jnp.sum(noise_bar), kernel_bar, row_bars


@jax.jit
def _row_pullback(
    kernel: Kernel, noise: Array, block: Block, features: Array, cotangents: RowCotangents
) -> RowBars:
    # The compiler leaves out what only the other cotangents need.
    return _condition_pullback(kernel, noise, block, features, cotangents)[-1]
