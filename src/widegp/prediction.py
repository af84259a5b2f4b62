"""From a posterior to means, variances and joint draws at new rows, streamed over blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from widegp.approximations.dense import DensePosterior
from widegp.approximations.family import FamilyPosterior
from widegp.approximations.nystrom import NystromPosterior
from widegp.approximations.sums import RULES, Rule
from widegp.compute.backend import Backend, Block, choose_backend
from widegp.data.arrays import take
from widegp.kernels.base import Kernel
from widegp.neighbors import NeighborIndex
from widegp.neighbors.metric import embed

PREDICT_BYTES = 128 * 2**20


class Predictor(Protocol):
    """Mean and variance of y (noise included) at new rows, and joint draws of y."""

    @property
    def noise(self) -> float: ...

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray: ...


@dataclass
class TrainingRows:
    """The rows that predictions condition on, X (n, I) and y (n,), with an index built once."""

    X: np.ndarray
    y: np.ndarray
    kernel: Kernel
    count: int
    _index: NeighborIndex | None = field(default=None, repr=False)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """The ``count`` training rows that each row of X correlates with most, (q, count)."""
        if self._index is None:
            points = take(self.X, fn=partial(embed, self.kernel), width=self.X.shape[1] + 1)
            self._index = NeighborIndex(points)
        return self._index.query(embed(self.kernel, X), min(self.count, len(self.X)))


def make_predictor(posterior: Any, rows: TrainingRows | None, backend: str = "auto") -> Predictor:
    """The predictor of a posterior; ``rows`` where it conditions on neighbours."""
    chosen = choose_backend(posterior.kernel, backend)
    if isinstance(posterior, DensePosterior):
        return DensePredictor(posterior, chosen)
    if isinstance(posterior, NystromPosterior):
        return NystromPredictor(posterior, chosen)
    return FamilyPredictor(posterior, chosen, rows)


@dataclass
class DensePredictor:
    """mu = k*'alpha, sigma^2 = k** - |L^-1 k*|^2 + noise, eq. (gp_pred_mom_pt)."""

    posterior: DensePosterior
    backend: Backend

    @property
    def noise(self) -> float:
        return self.posterior.noise

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _stream(X, self._predict, 24 * len(self.posterior.X), self.backend)

    def _cross(self, X: np.ndarray) -> tuple[Any, Any]:
        K = self.backend.cross(self.posterior.kernel, X, self.posterior.X)
        return K, self.backend.solve_lower(self.posterior.L, K.T)

    def _predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with self.backend.scope():
            K, half = self._cross(X)
            prior = self.backend.diagonal(self.posterior.kernel, X)
            latent = np.asarray(prior - (half * half).sum(0))
            return np.asarray(K @ self.posterior.alpha), np.maximum(latent, 0.0) + self.noise

    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        with self.backend.scope():
            K, half = self._cross(X)
            prior = self.backend.cross(self.posterior.kernel, X, X)
            covariance = np.asarray(prior - half.T @ half) + self.noise * np.eye(len(X))
            mean = np.asarray(K @ self.posterior.alpha)
        return mean[:, None] + np.linalg.cholesky(covariance) @ rng.normal(size=(len(X), n_samples))


@dataclass
class NystromPredictor:
    """mu = b*'g, sigma^2 = k** - |b*|^2 + noise, b* = W'k(Z, x*): eq. (gp_pred_mom_pt), literally."""

    posterior: NystromPosterior
    backend: Backend

    @property
    def noise(self) -> float:
        return self.posterior.noise

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _stream(X, self._predict, 24 * len(self.posterior.Z), self.backend)

    def _features(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.backend.cross(self.posterior.kernel, X, self.posterior.Z) @ self.posterior.W)

    def _predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with self.backend.scope():
            b = self._features(X)
            latent = np.asarray(self.backend.diagonal(self.posterior.kernel, X)) - (b * b).sum(1)
        return b @ self.posterior.beta, np.maximum(latent, 0.0) + self.noise

    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        with self.backend.scope():
            b = self._features(X)
            covariance = np.asarray(self.backend.cross(self.posterior.kernel, X, X)) - b @ b.T
        covariance = covariance + self.noise * np.eye(len(X))
        return (b @ self.posterior.beta)[:, None] + np.linalg.cholesky(covariance) @ rng.normal(
            size=(len(X), n_samples)
        )


@dataclass
class FamilyPredictor:
    """mu = a*'y_N + phi~*'beta, sigma^2 = d* + phi~*'B^-1 phi~*; without neighbours a* = 0."""

    posterior: FamilyPosterior
    backend: Backend
    rows: TrainingRows | None

    @property
    def noise(self) -> float:
        return self.posterior.noise

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = 0 if self.rows is None else self.rows.count
        per_row = 8 * (4 * len(self.posterior.Z) + (count + 1) * (X.shape[1] + len(self.posterior.Z)))
        return _stream(X, self._predict, per_row, self.backend)

    def _block(self, X: np.ndarray) -> Block:
        """New rows, then the training rows that they condition on; the new y are unknown, written as 0."""
        if self.rows is None:
            n = len(X)
            return Block(X, np.zeros(n), np.zeros((n, 0), np.int32), np.ones(n), np.zeros((n, 0)))
        near = self.rows.nearest(X)
        halo, local = np.unique(near, return_inverse=True)
        own, beside = len(X), len(halo)
        if self.backend.pads:
            # Few shapes for the compiler: powers of two.
            own, beside = (1 << (size - 1).bit_length() for size in (own, beside))
        points, y = np.zeros((own + beside, X.shape[1])), np.zeros(own + beside)
        points[: len(X)], points[own : own + len(halo)] = X, self.rows.X[halo]
        y[own : own + len(halo)] = self.rows.y[halo]
        neighbors = np.full((own, near.shape[1]), -1, np.int32)
        neighbors[: len(X)] = local.reshape(near.shape) + own
        return Block(points, y, neighbors, (np.arange(own) < len(X)) * 1.0, np.zeros((len(points), 0)))

    def _predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = self.posterior
        with self.backend.scope():
            moments = self.backend.compiled(_moments, self.backend, RULES[p.name])
            mean, variance = moments(p.kernel, p.noise, *self._resident, self._block(X))
            return np.asarray(mean)[: len(X)], np.asarray(variance)[: len(X)]

    @cached_property
    def _resident(self) -> tuple[Any, Any, Any, Any]:
        """Z, W, beta, L_B where the backend computes: a device need not be sent them for every block."""
        p, as_array = self.posterior, self.backend.xp.asarray
        return as_array(p.Z), as_array(p.W), as_array(p.beta), as_array(p.L_B)

    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """One draw of the feature weights per sample, then each row given its neighbours.

        With neighbours the new rows are drawn one after the other, each given its nearest training rows
        and the nearest of the new rows drawn before it, so that close rows move together.
        """
        p = self.posterior
        with self.backend.scope():
            noise = rng.normal(size=(len(p.beta), n_samples))
            weights = p.beta[:, None] + np.asarray(self.backend.solve_lower(p.L_B, noise, transposed=True))
            if self.rows is None:
                block = self._block(X)
                phi = np.asarray(self.backend.cross(p.kernel, block.X, p.Z) @ p.W)
                d = np.full(len(X), self.noise)
                if RULES[p.name].residual:
                    d = np.asarray(self.backend.condition(p.kernel, self.noise, block, phi).d)
                return phi @ weights + np.sqrt(d)[:, None] * rng.normal(size=(len(X), n_samples))
            return self._sample_in_turn(X, weights, rng)

    def _sample_in_turn(self, X: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        p, rows = self.posterior, self.rows
        assert rows is not None
        near, places = rows.nearest(X), embed(p.kernel, X)
        phi_new = np.asarray(self.backend.cross(p.kernel, X, p.Z) @ p.W)
        drawn = np.empty((len(X), weights.shape[1]))
        for i in range(len(X)):
            old = near[i]
            new = np.argsort(((places[:i] - places[i]) ** 2).sum(1), kind="stable")[: rows.count]
            own = slice(i, i + 1)
            points = np.concatenate([rows.X[old], X[new], X[own]])
            phi_old = np.asarray(self.backend.cross(p.kernel, rows.X[old], p.Z) @ p.W)
            phi = np.concatenate([phi_old, phi_new[new], phi_new[own]])
            R = np.asarray(self.backend.cross(p.kernel, points, points)) - phi @ phi.T
            L = np.linalg.cholesky(R + self.noise * np.eye(len(points)))
            a = np.linalg.solve(L[:-1, :-1].T, L[-1, :-1])
            earlier = np.concatenate([np.repeat(rows.y[old][:, None], weights.shape[1], 1), drawn[new]])
            mean = a @ earlier + (phi[-1] - a @ phi[:-1]) @ weights
            drawn[i] = mean + L[-1, -1] * rng.normal(size=weights.shape[1])
        return drawn


def _moments(
    backend: Backend, rule: Rule, kernel: Kernel, noise: Any,
    Z: Any, W: Any, beta: Any, L_B: Any, block: Block,
) -> tuple[Any, Any]:  # fmt: skip
    """mu and sigma^2 of a block's own rows."""
    phi = backend.matmul(backend.cross(kernel, block.X, Z), W)
    mean, d = phi @ beta, noise
    if rule.residual:
        rows = backend.condition(kernel, noise, block, phi)
        phi, d = rows.features, backend.xp.maximum(rows.d, noise)
        mean = phi @ beta - rows.y
    half = backend.solve_lower(L_B, phi.T)
    return mean, d + (half * half).sum(0)


def _stream(
    X: np.ndarray, predict: Any, bytes_per_row: int, backend: Backend
) -> tuple[np.ndarray, np.ndarray]:
    """predict over blocks whose work fits PREDICT_BYTES, or a share of an accelerator's memory."""
    room = max(PREDICT_BYTES, backend.block_bytes // 4) if backend.keeps_shapes else PREDICT_BYTES
    size = max(16, int(room // max(bytes_per_row, 1)))
    mean, variance = np.empty(len(X)), np.empty(len(X))
    for start in range(0, len(X), size):
        part = X[start : start + size]
        # The last rows repeat in a short block where another shape would have to be compiled.
        whole = np.resize(part, (size, X.shape[1])) if backend.keeps_shapes and start else part
        rows = slice(start, start + len(part))
        mean[rows], variance[rows] = (moment[: len(part)] for moment in predict(whole))
    return mean, variance
