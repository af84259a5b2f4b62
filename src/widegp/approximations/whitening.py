"""The anchors' factor K_ZZ = L L', the whitener W = L^-T that makes features of k(x, Z), its pullback."""

from __future__ import annotations

from typing import Any, NamedTuple

from widegp.compute.backend import Backend, Cotangent
from widegp.kernels.base import Kernel

Array = Any

# Relative to the mean of the diagonal; raised tenfold until the factor exists, and recorded.
JITTERS = tuple(10.0**p for p in range(-10, -3))


class Whitener(NamedTuple):
    """L (r, r), W = L^-T (r, r), the relative jitter that was added to the diagonal of K_ZZ."""

    L: Array
    W: Array
    jitter: float


def whiten(
    backend: Backend, kernel: Kernel, Z: Array, noise: Array = 0.0, jitter: float = JITTERS[0],
    most: float = JITTERS[-1],
) -> Whitener | None:  # fmt: skip
    """Factor K_ZZ + diag(noise + jitter mean diag); None if even a jitter of ``most`` fails.

    ``noise`` is a number or one for each anchor (r,).
    """
    if Z.shape[0] == 0:
        eye = backend.xp.eye(0)
        return Whitener(eye, eye, 0.0)
    factor = backend.compiled(_factor, backend)
    for relative in (j for j in JITTERS if jitter <= j <= most):
        L, W = factor(kernel, Z, noise, relative)
        if bool(backend.xp.isfinite(L[-1, -1])):
            return Whitener(L, W, relative)
    return None


def _factor(backend: Backend, kernel: Kernel, Z: Array, noise: Array, relative: float) -> tuple[Array, Array]:
    xp = backend.xp
    K, eye = backend.cross(kernel, Z, Z), xp.eye(Z.shape[0])
    L = backend.cholesky(K + (noise + relative * xp.mean(xp.diagonal(K))) * eye)
    return L, backend.invert_lower(L).T


def whiten_pullback(
    backend: Backend, kernel: Kernel, Z: Array, white: Whitener, inner: Array, L_bar: Array | None = None
) -> tuple[Any, Array]:
    """dF/d(kernel, noise (r,)) given inner = W_bar'W, W_bar = dF/dW, and L_bar = dF/dL.

    dW = -W dL' W and dL = L tril(L^-1 dK L^-T), half the diagonal, give
    P = tril(L' L_bar - W_bar' W), half the diagonal,  K_bar = sym(W P W').
    """
    xp = backend.xp
    inner = -inner if L_bar is None else white.L.T @ L_bar - inner
    P = xp.tril(inner) - xp.eye(inner.shape[0]) * xp.diagonal(inner) / 2
    S = backend.matmul(white.W, backend.matmul(P, white.W.T))
    K_bar = (S + S.T) / 2
    noise_bar = xp.diagonal(K_bar)
    # The jitter is a share of the mean diagonal, so it moves with the kernel.
    K_bar = K_bar + xp.eye(K_bar.shape[0]) * (white.jitter * xp.sum(noise_bar) / max(K_bar.shape[0], 1))
    return backend.cross_pullback(kernel, Z, Z, Cotangent(K_bar)), noise_bar
