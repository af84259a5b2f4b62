"""From a posterior to means, variances and joint draws at new rows, block by block through an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse

from widegp.compute.backend import Backend, choose_backend
from widegp.data.arrays import take
from widegp.engines.base import Engine
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.kernels.base import Kernel
from widegp.neighbors import NeighborIndex
from widegp.registry import saveable

PREDICT_BYTES = 128 * 2**20
# Blocks given to an engine at a time, for each that it works on at once.
BLOCKS_AHEAD = 2
# Rows of the table taken at a time where a joint covariance is made.
JOINT_ROWS = 1024


class Moments(NamedTuple):
    """Mean and variance of f at new rows, (q,) each, without the noise of a new observation."""

    mean: np.ndarray
    variance: np.ndarray


class Posterior(Protocol):
    """What an approximation leaves to predict with: arrays, and the formula that makes moments of them."""

    kernel: Kernel
    noise: float

    def numbers(self) -> tuple[Any, ...]:
        """The arguments of ``moments`` between backend and block."""

    def bytes_per_row(self, neighbors: int) -> int: ...

    def moments(self, backend: Backend, *numbers: Any) -> tuple[Any, Any]: ...

    def joint(self, backend: Backend, X: np.ndarray, near: Any) -> tuple[np.ndarray, np.ndarray]: ...


class Explained(NamedTuple):
    """What training rows explain of new rows: A Phi_N (q, r), A (y_N - Phi_N beta) (q,), and what that adds
    to the covariance of the residuals, A (R_NN + noise) A' - A R_Nq - R_qN A' (q, q).
    """

    features: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


@saveable
@dataclass
class TrainingRows:
    """The rows that predictions condition on, X (n, I), y (n,) and spread (n,), with an index built once."""

    X: np.ndarray
    y: np.ndarray
    kernel: Kernel
    count: int
    spread: np.ndarray | None = None
    _index: NeighborIndex | None = field(default=None, repr=False)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """The ``count`` training rows that each row of X correlates with most, (q, count)."""
        if self._index is None:
            width = self.kernel.embedding(self.X[:1]).shape[1]
            points = take(self.X, fn=self.kernel.embedding, width=width)
            self._index = NeighborIndex(points)
        return self._index.query(self.kernel.embedding(X), min(self.count, len(self.X)))

    def blocks(self, X: np.ndarray, size: int, pad: bool) -> BlockedRows:
        """New rows X (q, I), each beside the training rows that it conditions on; new targets are 0."""
        near = self.nearest(X)
        halo, local = np.unique(near, return_inverse=True)
        neighbors = (local.reshape(near.shape) + len(X)).astype(np.int32)
        points = np.concatenate([X, self.X[halo]])
        y, spread = np.zeros(len(points)), np.ones(len(points))
        y[len(X) :] = self.y[halo]
        if self.spread is not None:
            spread[len(X) :] = self.spread[halo]
        rows = BlockedRows(points, y, spread, neighbors, size, pad)
        return rows.restricted(np.arange(len(X)), size)

    def explain(self, backend: Backend, posterior: Any, X: np.ndarray, phi: np.ndarray) -> Explained:
        """What the nearest training rows explain of new rows X (q, I) with features phi (q, r)."""
        near = self.nearest(X)
        halo, local = np.unique(near, return_inverse=True)
        local = local.reshape(near.shape)
        points = self.X[halo]
        phi_halo = np.asarray(backend.cross(self.kernel, points, posterior.Z) @ posterior.W)
        noise = posterior.noise * (np.ones(len(halo)) if self.spread is None else self.spread[halo])

        def residual(left: slice | np.ndarray, right: slice | np.ndarray) -> np.ndarray:
            K = np.asarray(backend.cross(self.kernel, points[left], points[right]))
            return K - phi_halo[left] @ phi_halo[right].T

        crossed = np.asarray(backend.cross(self.kernel, X, points)) - phi @ phi_halo.T
        weights = np.empty(near.shape)
        for i, own in enumerate(local):
            R_NN = residual(own, own) + np.diag(noise[own])
            weights[i] = scipy.linalg.solve(R_NN, crossed[i, own], assume_a="pos")
        pointers = np.arange(len(X) + 1) * near.shape[1]
        A = scipy.sparse.csr_array((weights.ravel(), local.ravel(), pointers), shape=(len(X), len(halo)))
        spread = np.zeros((len(X), len(X)))
        for start in range(0, len(halo), JOINT_ROWS):
            part = slice(start, start + JOINT_ROWS)
            spread += A[:, part] @ (A @ residual(slice(None), part)).T
        covariance = spread + A @ (noise[:, None] * A.T.toarray()) - A @ crossed.T - (A @ crossed.T).T
        rest = self.y[halo] - phi_halo @ posterior.beta
        return Explained(A @ phi_halo, A @ rest, covariance)


@dataclass
class Predictor:
    """Moments and draws of a posterior; ``rows`` where it conditions on training rows."""

    posterior: Posterior
    backend: Backend
    rows: TrainingRows | None = None
    engine: Engine = field(default_factory=LocalEngine)

    @property
    def noise(self) -> float:
        """sigma_eps2, the noise variance of a row of spread 1."""
        return self.posterior.noise

    def predict(self, X: np.ndarray) -> Moments:
        """At the rows of X (q, I), streamed in blocks whose work fits PREDICT_BYTES or an accelerator."""
        size = self._block_rows(len(X))
        moments = partial(_block_moments, type(self.posterior).moments, self.backend, *self._resident)
        out = Moments(np.empty(len(X)), np.empty(len(X)))
        step = size * BLOCKS_AHEAD * self.engine.parallel_blocks
        for start in range(0, len(X), step):
            part = X[start : start + step]
            with self.backend.scope():
                made = self.engine.map_rows(moments, self._blocks(part, size))
            for k, (mean, variance) in enumerate(made):
                rows = slice(start + k * size, min(start + (k + 1) * size, start + len(part)))
                count = rows.stop - rows.start
                out.mean[rows] = np.asarray(mean)[:count]
                out.variance[rows] = np.maximum(np.asarray(variance)[:count], 0.0)
        return out

    def _blocks(self, X: np.ndarray, size: int) -> BlockedRows:
        if self.rows is not None:
            return self.rows.blocks(X, size, self.backend.pads)
        return BlockedRows.cut(X, np.zeros(len(X)), np.zeros((len(X), 0), np.int32), size, self.backend.pads)

    def _block_rows(self, n_rows: int) -> int:
        """Rows of a block; a power of two where blocks are padded, so that few shapes are compiled."""
        backend = self.backend
        room = max(PREDICT_BYTES, backend.block_bytes // 4) if backend.keeps_shapes else PREDICT_BYTES
        bytes_per_row = self.posterior.bytes_per_row(0 if self.rows is None else self.rows.count)
        size = max(16, int(room // max(bytes_per_row, 1)))
        if not backend.pads:
            return size
        return min(1 << (size.bit_length() - 1), 1 << max(n_rows - 1, 0).bit_length())

    @cached_property
    def _resident(self) -> tuple[Any, ...]:
        """The posterior's numbers where the backend computes: a device is sent them once."""
        with self.backend.scope():
            kernel, *arrays = self.posterior.numbers()
            return kernel, *(self.backend.xp.asarray(part) for part in arrays)

    def joint(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q,) and covariance (q, q) of f at new rows; its diagonal is that of `predict`."""
        with self.backend.scope():
            return self.posterior.joint(self.backend, X, self.rows)

    def sample(
        self, X: np.ndarray, n_samples: int, rng: np.random.Generator, spread: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """mean + chol(cov f + noise spread) z: joint draws of y at the rows of X, (q, n_samples)."""
        mean, covariance = self.joint(X)
        covariance = covariance + np.diag(np.broadcast_to(self.noise * spread, len(X)))
        return mean[:, None] + np.linalg.cholesky(covariance) @ rng.normal(size=(len(X), n_samples))


def make_predictor(
    posterior: Posterior, rows: TrainingRows | None, backend: str = "auto", engine: Engine | None = None
) -> Predictor:
    """The predictor of a posterior; ``rows`` where it conditions on neighbours."""
    return Predictor(posterior, choose_backend(posterior.kernel, backend), rows, engine or LocalEngine())


def _block_moments(moments: Any, backend: Backend, *numbers_and_block: Any) -> tuple[Any, Any]:
    """``moments`` as a block function, which may run in another process."""
    with backend.scope():
        *numbers, block = numbers_and_block
        return moments(backend, *numbers, block)
