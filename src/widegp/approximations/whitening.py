"""The anchors' factor K_ZZ = L L', the whitener W = L^-T that makes features of k(x, Z), its pullback."""

from __future__ import annotations

from typing import Any, NamedTuple

from widegp.compute.backend import Backend
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
    backend: Backend, kernel: Kernel, Z: Array, noise: Array = 0.0, jitter: float = JITTERS[0]
) -> Whitener | None:
    """Factor K_ZZ + (noise + jitter mean diag) I; None if even the largest jitter fails."""
    xp = backend.xp
    rank = Z.shape[0]
    K = backend.cross(kernel, Z, Z)
    eye = xp.eye(rank)
    if rank == 0:
        return Whitener(eye, eye, 0.0)
    mean = xp.mean(xp.diagonal(K))
    for relative in (j for j in JITTERS if j >= jitter):
        L = backend.cholesky(K + (noise + relative * mean) * eye)
        if bool(xp.all(xp.isfinite(xp.diagonal(L)))):
            return Whitener(L, backend.solve_lower(L, eye, transposed=True), relative)
    return None


def whiten_pullback(
    backend: Backend, kernel: Kernel, Z: Array, white: Whitener, W_bar: Array, L_bar: Array | None = None
) -> tuple[Any, Array]:
    """dF/d(kernel, noise) given dF/dW and dF/dL.

    dW = -W dL' W and dL = L tril(L^-1 dK L^-T), half the diagonal, give
    P = tril(L' L_bar - W_bar' W), half the diagonal,  K_bar = sym(W P W').
    """
    xp = backend.xp
    inner = -W_bar.T @ white.W
    if L_bar is not None:
        inner = inner + white.L.T @ L_bar
    P = xp.tril(inner) - xp.eye(inner.shape[0]) * xp.diagonal(inner) / 2
    S = white.W @ P @ white.W.T
    K_bar = (S + S.T) / 2
    noise_bar = xp.trace(K_bar)
    # The jitter is a share of the mean diagonal, so it moves with the kernel.
    K_bar = K_bar + xp.eye(K_bar.shape[0]) * (white.jitter * noise_bar / max(K_bar.shape[0], 1))
    return backend.cross_pullback(kernel, Z, Z, K_bar), noise_bar
