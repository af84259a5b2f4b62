"""Dense, slow and independent: likelihoods and predictions as on paper, with complex steps for their slopes.

NumPy throughout, for JAX would compile every operation of them for every shape.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

STEP = 1e-30


def log_det(matrix):
    """log det of a matrix whose imaginary part is a small step."""
    sign, size = np.linalg.slogdet(matrix)
    return np.log(sign) + size


def gaussian_nll(y, cov):
    """-log N(y; 0, cov) by a dense solve and slogdet."""
    return 0.5 * (y @ np.linalg.solve(cov, y) + log_det(cov) + len(y) * np.log(2 * np.pi))


def nystrom_part(kernel, X, Z, jitter):
    """Q = K_xz (K_zz + jitter mean diag I)^-1 K_zx."""
    if len(Z) == 0:
        return np.zeros((len(X), len(X)))
    Kzz = kernel(Z)
    Kzz = Kzz + jitter * np.mean(np.diag(Kzz)) * np.eye(len(Z))
    Kxz = kernel(X, Z)
    return Kxz @ np.linalg.solve(Kzz, Kxz.T)


def vecchia_precision(cov, neighbors):
    """(I - a)' D^-1 (I - a) from each row's conditional given its earlier neighbours, row by row."""
    n = len(cov)
    lower, d = np.eye(n, dtype=cov.dtype), []
    for i in range(n):
        N = np.array([j for j in neighbors[i] if j >= 0], int)
        if len(N):
            a = np.linalg.solve(cov[np.ix_(N, N)], cov[N, i])
            lower[i, N] = -a
            d.append(cov[i, i] - a @ cov[N, i])
        else:
            d.append(cov[i, i])
    return lower, np.array(d)


def family_covariance(name, kernel, noise, X, Z, neighbors, jitter=1e-10):
    """The n x n covariance of y that a member of the family stands for."""
    Q = nystrom_part(kernel, X, Z, jitter)
    eye = np.eye(len(X))
    if name in ("sor", "dtc", "vfe"):
        return Q + noise * eye
    R = kernel(X) - Q + noise * eye
    lower, d = vecchia_precision(R, neighbors)
    inverse = np.linalg.inv(lower)
    return Q + inverse @ np.diag(d) @ inverse.T


def family_nll(name, kernel, noise, X, y, Z, neighbors, jitter=1e-10):
    value = gaussian_nll(y, family_covariance(name, kernel, noise, X, Z, neighbors, jitter))
    if name == "vfe":
        Q = nystrom_part(kernel, X, Z, jitter)
        value = value + 0.5 * np.sum(np.diag(kernel(X) - Q) / noise)
    return value


@jax.jit
def _value_and_slope(kernel, direction, X, Y):
    """K (n, p) and its derivative along a direction of the parameters."""
    return jax.jvp(lambda k: k(X, Y), (kernel,), (direction,))


def _filled(X):
    """Rows again and again up to a multiple of 32: one program serves small matrices of all shapes."""
    return jnp.asarray(np.resize(X, (-(-len(X) // 32) * 32, X.shape[1])))


class _Stepped:
    """Matrices of a kernel that is moved by i STEP along ``direction``, to first order."""

    def __init__(self, kernel, direction=None):
        self.kernel = jax.tree_util.tree_map(lambda v: jnp.asarray(v, float), kernel)
        self.direction = direction

    def along(self, name, entry):
        """The same kernel, moved in one entry of one parameter."""
        still = jax.tree_util.tree_map(jnp.zeros_like, self.kernel)
        one = np.zeros(np.shape(self.kernel.parameters()[name]))
        one.reshape(-1)[entry] = 1.0
        return _Stepped(self.kernel, still.replace(**{name: jnp.asarray(one)}))

    def __call__(self, X, Y=None):
        Y = X if Y is None else Y
        direction = self.kernel if self.direction is None else self.direction
        value, slope = _value_and_slope(self.kernel, direction, _filled(X), _filled(Y))
        value, slope = (np.asarray(part)[: len(X), : len(Y)] for part in (value, slope))
        return value if self.direction is None else value + 1j * STEP * slope


def value_and_gradient(function, kernel, noise):
    """Value and {parameter: derivative} of function(kernel, noise), an analytic one, in float64.

    Kernel matrices and their slopes are JAX's; from there on f(x + ih) = f(x) + ih f'(x) to rounding.
    """
    with jax.enable_x64(True):
        still = _Stepped(kernel)
        gradient = {
            name: np.reshape(
                [function(still.along(name, entry), noise).imag / STEP for entry in range(np.size(at))],
                np.shape(at),
            )
            for name, at in kernel.parameters().items()
        }
        by_noise = np.asarray(function(still, noise + 1j * STEP).imag / STEP)
        return float(function(still, noise)), gradient | {"sigma_eps2": by_noise}


def evaluated(function, kernel, *arguments):
    """function(kernel, ...) in float64; any of the other arguments may carry a step."""
    with jax.enable_x64(True):
        return function(_Stepped(kernel), *arguments)


def nearest_earlier(X, count):
    """Double loop; -1 where a row has fewer than ``count`` earlier rows."""
    out = np.full((len(X), count), -1)
    for i in range(len(X)):
        order = np.argsort(((X[:i] - X[i]) ** 2).sum(1), kind="stable")[:count]
        out[i, : len(order)] = order
    return out
