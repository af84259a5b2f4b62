"""What a backend offers, and which one serves a kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from widegp.jit import COMPILED
from widegp.kernels.base import Kernel

Array = Any

BLOCK_BYTES = 256 * 2**20
WITHOUT_NUMBA = "Numba is not installed, so that fits take longer; pip install 'widegp[fast]'."


class Block(NamedTuple):
    """Rows to be conditioned, followed by their halo: the rows that they condition on.

    X (B + H, I), y (B + H,), spread (B + H,) the noise variance of each row in units of the model's,
    neighbors (B, m) indices into X with -1 for none, weight (B,) 1 for a row and 0 for padding.
    Self-contained: it can be streamed, put on a device or sent to a worker.
    """

    X: Array
    y: Array
    spread: Array
    neighbors: Array
    weight: Array

    @property
    def n_own(self) -> int:
        return int(self.neighbors.shape[0])


class Conditional(NamedTuple):
    """y_i - a_i'y_N ~ N(0, phi~_i' Phi~ + d_i): phi~ (B, r), y~ (B,), d (B,), rows that failed."""

    features: Array
    y: Array
    d: Array
    failed: Array


class RowBars(NamedTuple):
    """dF/dy_i (B + H,) and spread_i dF/dspread_i (B + H,) of a block's rows."""

    y: Array
    spread: Array


class Cotangent(NamedTuple):
    """dF/dK = left right + column row', (n, p), which a backend may make in parts, where they are used.

    left (n, r) and right (r, p), or left (n, p) alone; column (n,) and row (p,), or neither.
    """

    left: Array
    right: Array | None = None
    column: Array | None = None
    row: Array | None = None


class RowCotangents(NamedTuple):
    """dF/d(A, b, q, l) of the four sums A = sum phi~phi~'/d, b = sum phi~y~/d, q = sum y~^2/d, l = sum log d.

    ``q`` and ``l`` are numbers, ``b`` (r,), ``A`` (r, r) symmetric.
    """

    A: Array
    b: Array
    q: Array
    log_d: Array

    def to_rows(self, rows: Conditional, weight: Array) -> tuple[Array, Array, Array]:
        """Cotangents of phi~ (B, r), y~ (B,) and d (B,) of each row."""
        scaled = weight / rows.d
        by_A = rows.features @ self.A
        b_phi = rows.features @ self.b
        phi_bar = (2 * by_A + rows.y[:, None] * self.b) * scaled[:, None]
        y_bar = (b_phi + 2 * self.q * rows.y) * scaled
        quadratic = (by_A * rows.features).sum(1) + b_phi * rows.y + self.q * rows.y**2
        return phi_bar, y_bar, scaled * (self.log_d - quadratic / rows.d)


class Backend(Protocol):
    """Kernel matrices, conditionals and their pullbacks; ``xp`` is the array namespace they work in.

    A kernel cotangent is whatever adds up and ``kernel_gradient`` turns into {parameter: dF/dparameter}.
    """

    @property
    def name(self) -> str: ...

    @property
    def xp(self) -> Any: ...

    @property
    def block_bytes(self) -> int:
        """Bytes of work that one block of rows may take."""

    @property
    def keep_bytes(self) -> int:
        """Bytes of features that may stay in one memory between two passes over the rows."""

    @property
    def block_rows(self) -> int:
        """Rows that a block need not exceed."""

    @property
    def pads(self) -> bool:
        """Whether blocks must all have one shape, the last padded with rows of weight 0."""

    def scope(self) -> AbstractContextManager:
        """What the computations must run inside: float64 for JAX, nothing for NumPy."""

    @property
    def keeps_shapes(self) -> bool:
        """Whether another shape of block costs seconds of compiling, and padding next to nothing."""

    def compiled(self, fn: Callable[..., Any], *fixed: Any) -> Callable[..., Any]:
        """``fn`` with its first arguments fixed, as one program where the backend makes programs."""

    def cholesky(self, matrix: Array) -> Array:
        """Lower factor; NaN where the matrix is not positive definite."""

    def solve_lower(self, lower: Array, right: Array, transposed: bool = False) -> Array: ...

    def invert_lower(self, lower: Array) -> Array: ...

    def residual_inverse(self, kernel: Kernel, X: Array, features: Array, noise: Array) -> Array:
        """L^-1 (m, m), L L' = K(X, X) - features features' + diag(noise), for X (m, I), features (m, r) and
        noise (m,); NaN where that is not positive definite.
        """

    def packed(self, lower: Array) -> Array:
        """The same matrix for ``packed @ right``, without its zeros where the backend can leave them out."""

    def matmul(self, left: Array, right: Array) -> Array:
        """left right, for left with many rows."""

    def inner(self, left: Array, right: Array) -> Array:
        """left' right, for both with many rows."""

    def fixed(self, kernel: Kernel, Z: Array) -> Any:
        """Points Z (p, I) for `cross`, with what it makes of them, where it is asked again and again."""

    def cross(self, kernel: Kernel, X: Array, Z: Any) -> Array:
        """K(X, Z), for Z an array or `fixed`."""

    def features(self, kernel: Kernel, X: Array, Z: Array, W: Array) -> Array:
        """K(X, Z) W for W (r, r), without keeping K beside it where that can be spared."""

    def cross_pullback(self, kernel: Kernel, X: Array, Z: Array, cotangent: Cotangent) -> Any: ...

    def diagonal(self, kernel: Kernel, X: Array) -> Array: ...

    def diagonal_pullback(self, kernel: Kernel, X: Array, cotangent: Array) -> Any: ...

    def scale_rows(self, matrix: Array, scale: Array) -> Array:
        """diag(scale) matrix; the matrix itself where that is known to be the same."""

    def condition(self, kernel: Kernel, noise: Array, block: Block, features: Array) -> Conditional:
        """Each row given its neighbours under R, whose diagonal has noise x spread besides."""

    def condition_pullback(
        self, kernel: Kernel, noise: Array, block: Block, features: Array, cotangents: RowCotangents,
        by_row: bool,
    ) -> tuple[Array, Array, Any, RowBars | None]:  # fmt: skip
        """dF/d(features of all rows, log noise, kernel) and, if asked for ``by_row``, dF/d(y, spread)."""

    def row_pullback(
        self, kernel: Kernel, noise: Array, block: Block, features: Array, cotangents: RowCotangents
    ) -> RowBars:
        """dF/d(y, spread) alone, at half the cost: no derivative of the kernel is made."""

    def kernel_gradient(self, kernel: Kernel, cotangent: Any) -> dict[str, np.ndarray]: ...


def choose_backend(kernel: Kernel, name: str = "auto") -> Backend:
    """``"native"`` for kernels with a native form where no accelerator is found, ``"xla"`` otherwise.

    Without Numba the native loops would take hours: XLA then stands in for them.
    """
    if name not in ("auto", "native", "xla"):
        raise ValueError(f"Unknown backend {name!r}; choose 'auto', 'native' or 'xla'.")
    native = kernel.native_form() is not None
    if name == "native" and not native:
        raise ValueError(f"{type(kernel).__name__} has no closed form; use backend='xla' for it.")
    if name == "auto":
        name = "native" if native and not _accelerator() else "xla"
    if name == "native" and COMPILED:
        from widegp.compute.native import NativeBackend

        return NativeBackend()
    if name == "native":
        warnings.warn(WITHOUT_NUMBA, UserWarning, stacklevel=2)
    from widegp.compute.xla import XlaBackend

    return XlaBackend()


def serving(kernel: Kernel, name: str) -> str:
    """``name``, or ``"auto"`` where a kernel beside the one that it was chosen for has no native form."""
    return "auto" if name == "native" and kernel.native_form() is None else name


def _accelerator() -> bool:
    import jax

    return jax.default_backend() != "cpu"
