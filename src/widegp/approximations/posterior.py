"""The posterior of the family of anchors and neighbours, and what it says of new rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from widegp.approximations.base import Expansion, Features, Grown
from widegp.compute.backend import Backend, Block
from widegp.kernels.base import Kernel
from widegp.registry import saveable

Array = Any


class Numbers(NamedTuple):
    """kernel, anchors Z (r, I), W (r, r), beta (r,) and L_B (r, r): what its formulas need."""

    kernel: Kernel
    Z: Array
    W: Array
    beta: Array
    L_B: Array

    def features(self, backend: Backend, X: Array) -> Array:
        """Phi = K(X, Z) W  at rows X (q, I): (q, r)."""
        return backend.features(self.kernel, X, self.Z, self.W)


class Given(NamedTuple):
    """What m training rows N say of every new row that conditions on them, made once for all of these rows.

    V = L^-1 (m, m) with L L' = R_NN + diag(noise_N), R = K - Phi Phi': a new row then costs products and no
    solve; F = V Phi_N (m, r); e = V (y_N - Phi_N beta) (m,).
    """

    V: Array
    F: Array
    e: Array


class Weights(NamedTuple):
    """What means alone need: mu = K(x, N) g + K(x, Z) u,  g = V'e (m,),  u = W (beta - F'e) (r,)."""

    g: Array
    u: Array


@saveable
@dataclass(frozen=True)
class FamilyPosterior:
    """kernel, noise, anchors and the posterior N(beta, B^-1) of the feature weights; no training rows.

    More rows need no more than this: the sums are A = B - I and b = B beta, with B = L_B L_B'. ``neighbors``
    is how many earlier rows each row was conditioned on at most; None in files of earlier versions.
    """

    name: str
    kernel: Kernel
    noise: float
    Z: np.ndarray
    W: np.ndarray
    beta: np.ndarray
    L_B: np.ndarray
    neighbors: int | None = None

    def numbers(self) -> Numbers:
        return Numbers(self.kernel, self.Z, self.W, self.beta, self.L_B)

    def expansion(self) -> Expansion:
        return Expansion(self.Z, self.W @ self.beta)

    def features(self) -> Features:
        """T = L_B^-1."""
        T = solve_triangular(self.L_B, np.eye(len(self.beta)), lower=True)
        return Features(self.Z, self.W, self.beta, T)

    def bytes_per_row(self, neighbors: int) -> int:
        """Of work for each new row, given so many training rows of its own."""
        rank, n_inputs = map(int, self.Z.shape)
        return 8 * (4 * rank + (neighbors + 1) * (n_inputs + rank))

    def bytes_per_cell(self, neighbors: int) -> int:
        """Of so many training rows and what `given` makes of them."""
        rank, n_inputs = map(int, self.Z.shape)
        return 8 * (neighbors * (neighbors + n_inputs + rank + 2) + rank)

    @staticmethod
    def given(backend: Backend, numbers: Numbers, X: Array, y: Array, noise: Array) -> tuple[Given, Weights]:
        """From training rows X (m, I), y (m,) and their noise variances (m,)."""
        W, beta, phi = numbers.W, numbers.beta, numbers.features(backend, X)
        inverse = backend.residual_inverse(numbers.kernel, X, phi, noise)
        V = backend.packed(inverse)
        F, e = V @ phi, V @ (y - phi @ beta)
        return Given(V, F, e), Weights(inverse.T @ e, W @ (beta - F.T @ e))

    @staticmethod
    def mean(
        backend: Backend, numbers: Numbers, X: Array, near: Array | None = None,
        weights: Weights | None = None,
    ) -> Array:  # fmt: skip
        """The mean of `moments` alone, without a product of matrices beyond those of the kernel."""
        if weights is None:
            return numbers.features(backend, X) @ numbers.beta
        kernel = numbers.kernel
        return backend.cross(kernel, X, near) @ weights.g + backend.cross(kernel, X, numbers.Z) @ weights.u

    @staticmethod
    def moments(
        backend: Backend, numbers: Numbers, X: Array, near: Array | None = None, given: Given | None = None
    ) -> tuple[Array, Array]:
        """mu = phi*'beta + h'e,  Var f = K** - |phi*|^2 - |h|^2 + |L_B^-1 phi~*|^2  at new rows X (q, I),
        given training rows ``near`` (m, I), of which ``given`` was made;

        h = V R_N* = V K_N* - F phi*  and  phi~* = phi* - F'h.  Without neighbours h is empty, for dtc
        and vfe too: what the anchors cannot explain is missing from their likelihood, not from their
        prediction.
        """
        kernel, phi = numbers.kernel, numbers.features(backend, X)
        mean, d = phi @ numbers.beta, backend.diagonal(kernel, X) - (phi * phi).sum(1)
        if given is not None:
            h = given.V @ backend.cross(kernel, X, near).T - given.F @ phi.T
            mean, d = mean + h.T @ given.e, d - (h * h).sum(0)
            phi = phi - h.T @ given.F
        half = backend.solve_lower(numbers.L_B, phi.T)
        return mean, backend.xp.maximum(d, 0.0) + (half * half).sum(0)

    @staticmethod
    def each(backend: Backend, numbers: Numbers, noise: Array, block: Block) -> tuple[Array, Array]:
        """`moments` at the own rows of a block, each given training rows of its own: its neighbours there.

        mu = a*'y_N + phi~*'beta,  Var f = d* - noise + phi~*'B^-1 phi~*.
        """
        rows = backend.condition(numbers.kernel, noise, block, numbers.features(backend, block.X))
        half = backend.solve_lower(numbers.L_B, rows.features.T)
        variance = backend.xp.maximum(rows.d - noise, 0.0) + (half * half).sum(0)
        return rows.features @ numbers.beta - rows.y, variance

    def given_block(self, backend: Backend, block: Block, residual: bool) -> Grown:
        """The posterior given the own rows of a block too, and how each was predicted from those before it.

        B~ = B + sum phi~ phi~'/d,   b~ = B beta + sum phi~ y~/d,   and on the way
        y~ - Phi~ beta ~ N(0, S),  S = diag(d) + Phi~ B^-1 Phi~' = L_S L_S',  t = L_S^-1 (y~ - Phi~ beta).
        Without ``residual``, as in dtc and vfe, d is the noise, and a row is predicted as it would be
        predicted, with R_ii besides: sd_i^2 = (L_S)_ii^2 + R_ii.
        """
        features, y, d, dropped = self._conditional(backend, block, residual)
        half = backend.solve_lower(self.L_B, features.T)
        L_S = backend.cholesky(backend.xp.diag(d) + half.T @ half)
        if not np.all(np.isfinite(np.asarray(L_S))):
            raise ArithmeticError(
                "Some new rows have no positive variance given the rows near them; remove duplicates, or fit"
                " again."
            )
        t = np.asarray(backend.solve_lower(L_S, y - features @ self.beta))
        before, weight = self.L_B @ self.L_B.T, block.weight / d
        A = np.asarray(backend.inner(features, features * weight[:, None]))
        b = before @ self.beta + np.asarray((y * weight) @ features)
        L_B = backend.cholesky(before + A)
        beta = backend.solve_lower(L_B, backend.solve_lower(L_B, b), transposed=True)
        grown = replace(self, beta=np.asarray(beta), L_B=np.asarray(L_B))
        # Rows that pad the block come last.
        own, pivots = int(np.sum(np.asarray(block.weight))), np.diagonal(np.asarray(L_S))
        sd = np.sqrt(pivots**2 + np.asarray(dropped))
        return Grown(grown, (t * pivots / sd)[:own], np.log(sd)[:own])

    def _conditional(
        self, backend: Backend, block: Block, residual: bool
    ) -> tuple[Array, Array, Array, Array]:
        """phi~, y~, d of the own rows of a block, and the variance R_ii that d leaves out."""
        phi = self.numbers().features(backend, block.X)
        if block.neighbors.shape[1]:
            features, y, d, _ = backend.condition(self.kernel, self.noise, block, phi)
            return features, y, d, 0.0
        # Nothing to condition on: loops that would have to be compiled are not needed.
        left = backend.diagonal(self.kernel, block.X) - (phi * phi).sum(1)
        left, noise = backend.xp.maximum(left, 0.0), self.noise * block.spread
        return (phi, block.y, noise + left, 0.0) if residual else (phi, block.y, noise, left)

    def joint(self, backend: Backend, X: np.ndarray, near: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q,) and covariance (q, q) of f at new rows X (q, I); ``near`` explains them by training rows.

        f_i - a_i'y_N - phi~_i'w is the residual r_i - a_i'(r_N + eps_N), whose covariance over the new rows
        is that of the prior. Its diagonal is that of `moments`, whatever the order of the rows.
        """
        phi = np.asarray(backend.cross(self.kernel, X, self.Z) @ self.W)
        R = np.asarray(backend.cross(self.kernel, X, X)) - phi @ phi.T
        mean = phi @ self.beta
        if near is not None:
            explained = near(backend, self, X, phi)
            phi, mean, R = phi - explained.features, mean + explained.mean, R + explained.covariance
        half = np.asarray(backend.solve_lower(self.L_B, phi.T))
        return mean, R + half.T @ half


@saveable
@dataclass(frozen=True)
class DegeneratePosterior(FamilyPosterior):
    """f = phi(x)'w,  w ~ N(beta, B^-1): a linear model in the features, and nothing beside it.

    The posterior of `FamilyPosterior` without neighbours, but for the variance that the anchors leave over.
    """

    def features(self) -> Features:
        return super().features()._replace(residual=False)

    @staticmethod
    def moments(
        backend: Backend, numbers: Numbers, X: Array, near: Array | None = None, given: Given | None = None
    ) -> tuple[Array, Array]:
        """mu = phi*'beta,  Var f = |L_B^-1 phi*|^2  at new rows X (q, I)."""
        phi = numbers.features(backend, X)
        half = backend.solve_lower(numbers.L_B, phi.T)
        return phi @ numbers.beta, (half * half).sum(0)

    def joint(self, backend: Backend, X: np.ndarray, near: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q,) and covariance (q, q) = phi B^-1 phi' of f at new rows X (q, I)."""
        phi = np.asarray(self.numbers().features(backend, X))
        half = np.asarray(backend.solve_lower(self.L_B, phi.T))
        return phi @ self.beta, half.T @ half

    def _conditional(
        self, backend: Backend, block: Block, residual: bool
    ) -> tuple[Array, Array, Array, Array]:
        phi, y, d, _ = super()._conditional(backend, block, residual)
        return phi, y, d, 0.0
