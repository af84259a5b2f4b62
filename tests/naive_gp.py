"""Dense, slow and independent: likelihoods and predictions as written on paper, differentiated by JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def gaussian_nll(y, cov):
    """-log N(y; 0, cov) by a dense solve and slogdet."""
    return 0.5 * (y @ jnp.linalg.solve(cov, y) + jnp.linalg.slogdet(cov)[1] + len(y) * jnp.log(2 * jnp.pi))


def nystrom_part(kernel, X, Z, jitter):
    """Q = K_xz (K_zz + jitter mean diag I)^-1 K_zx."""
    if len(Z) == 0:
        return jnp.zeros((len(X), len(X)))
    Kzz = kernel(Z)
    Kzz = Kzz + jitter * jnp.mean(jnp.diag(Kzz)) * jnp.eye(len(Z))
    Kxz = kernel(X, Z)
    return Kxz @ jnp.linalg.solve(Kzz, Kxz.T)


def vecchia_precision(cov, neighbors):
    """(I - a)' D^-1 (I - a) from each row's conditional given its earlier neighbours, row by row."""
    n = len(cov)
    lower, d = jnp.eye(n), []
    for i in range(n):
        N = np.array([j for j in neighbors[i] if j >= 0], int)
        if len(N):
            a = jnp.linalg.solve(cov[jnp.ix_(N, N)], cov[N, i])
            lower = lower.at[i, N].set(-a)
            d.append(cov[i, i] - a @ cov[N, i])
        else:
            d.append(cov[i, i])
    return lower, jnp.stack(d)


def family_covariance(name, kernel, noise, X, Z, neighbors, jitter=1e-10):
    """The n x n covariance of y that a member of the family stands for."""
    Q = nystrom_part(kernel, X, Z, jitter)
    eye = jnp.eye(len(X))
    if name in ("dtc", "vfe"):
        return Q + noise * eye
    R = kernel(X) - Q + noise * eye
    lower, d = vecchia_precision(R, neighbors)
    inverse = jnp.linalg.inv(lower)
    return Q + inverse @ jnp.diag(d) @ inverse.T


def family_nll(name, kernel, noise, X, y, Z, neighbors, jitter=1e-10):
    value = gaussian_nll(y, family_covariance(name, kernel, noise, X, Z, neighbors, jitter))
    if name == "vfe":
        Q = nystrom_part(kernel, X, Z, jitter)
        value = value + 0.5 * jnp.sum(jnp.diag(kernel(X) - Q) / noise)
    return value


def value_and_gradient(function, kernel, noise):
    """Value and {parameter: derivative} of function(kernel, noise), by autodiff in float64."""
    with jax.enable_x64(True):
        kernel64 = jax.tree_util.tree_map(lambda v: jnp.asarray(v, float), kernel)
        value, (by_kernel, by_noise) = jax.value_and_grad(function, argnums=(0, 1))(
            kernel64, jnp.float64(noise)
        )
        gradient = {name: np.asarray(slope) for name, slope in by_kernel.parameters().items()}
        return float(value), gradient | {"sigma_eps2": np.asarray(by_noise)}


def nearest_earlier(X, count):
    """Double loop; -1 where a row has fewer than ``count`` earlier rows."""
    out = np.full((len(X), count), -1)
    for i in range(len(X)):
        order = np.argsort(((X[:i] - X[i]) ** 2).sum(1), kind="stable")[:count]
        out[i, : len(order)] = order
    return out
