"""Covariance matrices, their derivatives by the parameters, and the trace form of the information."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from widegp.identifiability.coordinates import Coordinates


@cache
def _compiled() -> tuple[Callable, Callable]:
    """K(X, Y) and its derivative along a change of the kernel; one compilation per form and shape."""
    import jax

    def along(kernel, change, X, Y):  # type: ignore[no-untyped-def]
        return jax.jvp(lambda k: k(X, Y), (kernel,), (change,))[1]

    return jax.jit(lambda kernel, X, Y: kernel(X, Y)), jax.jit(along)


@dataclass(frozen=True)
class Covariance:
    """S(theta) = K(X, Y) + sigma_eps2 1{same row} and dS/dtheta_j at the coordinates, in float64."""

    coordinates: Coordinates

    def matrix(self, X: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """S of the rows X (b, I) with the rows earlier (r, I) and with themselves: (b, r + b)."""
        import jax
        import jax.numpy as jnp

        at = self.coordinates
        with jax.enable_x64(True):
            kernel = at.kernel_at(jnp.asarray(at.theta[:-1]))
            S = np.array(_compiled()[0](kernel, X, np.concatenate([earlier, X])))
        S[:, len(earlier) :][np.diag_indices(len(X))] += at.noise
        return S

    def derivatives(self, X: np.ndarray, earlier: np.ndarray) -> Iterator[np.ndarray]:
        """dS/dtheta_j (b, r + b), one at a time, by forward differentiation; the noise's is (0, I)."""
        import jax
        import jax.numpy as jnp

        at, Y = self.coordinates, np.concatenate([earlier, X])
        for tangent in np.eye(len(at.theta) - 1):
            with jax.enable_x64(True):
                theta = jnp.asarray(at.theta[:-1])
                kernel, change = jax.jvp(at.kernel_at, (theta,), (jnp.asarray(tangent),))
                yield np.array(_compiled()[1](kernel, change, X, Y))
        yield np.eye(len(X), len(Y), k=len(earlier))


@dataclass(frozen=True)
class Whitened:
    """Rows X (r, I), L with L L' = S (r, r), and W_j = L^-1 dS_j L^-T as ``W`` (p, r, r)."""

    X: np.ndarray
    L: np.ndarray
    W: np.ndarray

    def information(self) -> np.ndarray:
        """I_jk = tr(S^-1 dS_j S^-1 dS_k) / 2 = <W_j, W_k> / 2, a Gram matrix and so never indefinite."""
        flat = self.W.reshape(len(self.W), -1)
        return flat @ flat.T / 2


def whiten(covariance: Covariance, X: np.ndarray) -> Whitened:
    """Factor and whitened derivatives of the rows X (n, I)."""
    none = X[:0]
    L = factor(covariance.matrix(X, none))
    W = np.empty((len(covariance.coordinates.names), len(X), len(X)))
    for j, dS in enumerate(covariance.derivatives(X, none)):
        W[j] = _between(L, dS, L)
    return Whitened(X, L, W)


def conditional_information(covariance: Covariance, given: Whitened, X: np.ndarray) -> np.ndarray:
    """I(y_B | y_A) = I(y_A, y_B) - I(y_A) of rows X (b, I) given the rows of ``given``, (p, p).

    The factor of the joint covariance has the rows (C, L_B), C = S_BA L_A^-T, L_B L_B' = S_BB - C C'. With
    G = dS_BA L_A^-T the new blocks of W = L^-1 dS L^-T are

        W_BA = L_B^-1 (G - C W_AA),   W_BB = L_B^-1 (dS_BB - C G' - G C' + C W_AA C') L_B^-T,

    and the sum of their squares, W_BA counted twice, is what the rows add. O(p r^2 b) for r rows A.
    """
    r = len(given.X)
    S = covariance.matrix(X, given.X)
    C = _right(S[:, :r], given.L)
    L = factor(S[:, r:] - C @ C.T)
    p = len(covariance.coordinates.names)
    across, within = np.empty((p, len(X) * r)), np.empty((p, len(X) ** 2))
    for j, dS in enumerate(covariance.derivatives(X, given.X)):
        G = _right(dS[:, :r], given.L)
        CW = C @ given.W[j]
        across[j] = solve_triangular(L, G - CW, lower=True, check_finite=False).ravel()
        mixed = C @ G.T
        within[j] = _between(L, dS[:, r:] - mixed - mixed.T + CW @ C.T, L).ravel()
    return across @ across.T + within @ within.T / 2


def factor(S: np.ndarray) -> np.ndarray:
    """The lower Cholesky factor of S, or one sentence on why there is none."""
    try:
        return cholesky(S, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise ArithmeticError(
            f"The covariance of {len(S)} rows has no Cholesky factor at these parameters; raise sigma_eps2"
            " or bring the variances nearer to 1."
        ) from None


def _right(M: np.ndarray, L: np.ndarray) -> np.ndarray:
    """M L^-T."""
    if M.shape[1] == 0:
        return M
    return solve_triangular(L, M.T, lower=True, check_finite=False).T


def _between(L: np.ndarray, symmetric: np.ndarray, right: np.ndarray) -> np.ndarray:
    """L^-1 symmetric right^-T."""
    return _right(solve_triangular(L, symmetric, lower=True, check_finite=False), right)
