"""Eq. (nystrom_noise) read literally: K~(:,S) K~(S,S)^-1 K~(S,:) for the noisy K~.

It has rank r, so for n > r its inverse and determinant exist only as pseudo-inverse and
pseudo-determinant: with B = K~(:,S) L^-T, L L' = K~(S,S), G = B'B and g = G^-1 B'y,
    quad = |g|^2,   logdet = logdet G.
The anchors must be rows. Their own rows of B are L, so the sums run over the other rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from widegp.approximations.base import Approximation, Expansion, Features, Grown, Shape, Work, anchor_work
from widegp.approximations.dense import Dense, DensePosterior
from widegp.approximations.evaluation import (
    LOG_2PI,
    Evaluation,
    GaussianLikelihood,
    Observed,
    failure,
    refuse_batch,
)
from widegp.approximations.sums import Model, Rule, Sums, block_pullback, block_sums
from widegp.approximations.whitening import JITTERS, whiten, whiten_pullback
from widegp.compute.backend import Backend, Block, RowBars
from widegp.data.arrays import take
from widegp.engines.base import Engine, Rows
from widegp.engines.blocks import BlockedRows, add_trees
from widegp.kernels.base import Kernel
from widegp.registry import saveable

if TYPE_CHECKING:
    from widegp.approximations.build import Builder
    from widegp.approximations.layout import Layout

RAW = Rule(residual=False)


class NystromApproximation(Approximation):
    """The paper's; anchors that are all rows leave nothing to approximate."""

    def likelihood(self, builder: Builder, layout: Layout) -> Nystrom | Dense:
        kept = np.asarray(layout.anchors.rows)
        rest = np.setdiff1d(np.arange(len(builder.X)), kept)
        if len(rest) == 0:
            return Dense(builder.X[kept], builder.backend, kept)
        rows = builder.placed(take(builder.X, rest), layout.neighbors[rest])
        return Nystrom(rows, kept, rest, layout.anchors.points, builder.backend, builder.engine)

    def grown(
        self, posterior: NystromPosterior | DensePosterior, backend: Backend, new: BlockedRows
    ) -> Grown:
        if isinstance(posterior, DensePosterior):
            posterior = NystromPosterior.of_anchors(backend, posterior)
        return posterior.grown(backend, new.X, Observed(new.y, posterior.noise, new.spread))

    def work(self, shape: Shape, keep_bytes: int) -> Work:
        return Work(anchors=anchor_work(shape, by_rank=2, cubic=8, passes=3))

    def numbers(self, shape: Shape, block: int, keep_bytes: int) -> float:
        return block * (4 * shape.r + 2 * shape.i) + 12 * shape.r**2


@dataclass
class Nystrom:
    """The paper's approximation; ``kept`` are the anchors' rows, ``others`` all further rows, ``rest``.

    The noise enters through the anchors' rows alone.
    """

    others: Rows
    kept: np.ndarray
    rest: np.ndarray
    Z: np.ndarray
    backend: Backend
    engine: Engine
    jitter: float = JITTERS[0]

    @property
    def n_rows(self) -> int:
        return len(self.kept) + len(self.rest)

    def settle(self, jitter: float) -> None:
        self.jitter = max(self.jitter, jitter)

    summed = None

    def batch(self, rows: np.ndarray) -> GaussianLikelihood:
        refuse_batch()

    def _prepare(self, kernel: Kernel, observed: Observed) -> tuple[Model, Rows, Sums] | None:
        variances = self.backend.xp.asarray(observed.of(self.kept).variances())
        white = whiten(self.backend, kernel, self.Z, variances, self.jitter)
        if white is None:
            return None
        self.settle(white.jitter)
        model = Model(kernel, observed.noise, self.Z, white)
        rows = self.others.with_target(observed.y[self.rest])
        return model, rows, self.engine.map_sum(partial(block_sums, self.backend, RAW, model), rows)

    def _gram(self, model: Model, raw: Sums, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G = W'SW + L'L and c = W's + L'y_S."""
        L, W = model.white.L, model.white.W
        return W.T @ raw.A @ W + L.T @ L, raw.b @ W + y[self.kept] @ L

    def evaluate(
        self, kernel: Kernel, observed: Observed, by_row: bool = False, gradient: bool = True
    ) -> Evaluation:
        """With h = G^-1 g: F_G = (G^-1 - g h' - h g')/2, F_c = h."""
        prepared = self._prepare(kernel, observed)
        if prepared is None:
            return failure("the anchors' kernel matrix has no Cholesky factor; use fewer anchors")
        model, rows, raw = prepared
        xp, solve = self.backend.xp, self.backend.solve_lower
        G, c = self._gram(model, raw, observed.y)
        L_G = self.backend.cholesky(G)
        half = solve(L_G, xp.eye(len(c)))
        g = half.T @ (half @ c)
        h = half.T @ (half @ g)
        value = float(g @ g) / 2 + float(xp.sum(xp.log(xp.diagonal(L_G)))) + self.n_rows * LOG_2PI / 2
        if not np.isfinite(value):
            return failure("the pseudo-likelihood is not finite at these parameters")
        G_bar = (half.T @ half - g[:, None] * h[None, :] - h[:, None] * g[None, :]) / 2
        slopes, by_noise = self._gradient(model, rows, raw, observed.y, G_bar, h)
        by_spread = by_noise * observed.of(self.kept).variances()
        slopes["sigma_eps2"] = np.asarray(by_spread.sum() / observed.noise)
        bars = self._by_row(model, rows, h, by_spread) if by_row else None
        return Evaluation(value, slopes, model.white.jitter, by_row=bars)

    def _gradient(
        self, model: Model, rows: Rows, raw: Sums, y: np.ndarray, G_bar: Any, c_bar: Any
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """dF/dkernel by name and dF/dnoise of each anchor."""
        L, W = model.white.L, model.white.W
        W_bar = 2 * raw.A @ W @ G_bar + raw.b[:, None] * c_bar[None, :]
        L_bar = 2 * L @ G_bar + self.backend.xp.asarray(y[self.kept])[:, None] * c_bar[None, :]
        bar = Sums(W @ G_bar @ W.T, W @ c_bar, 0.0, 0.0, 0.0, 0.0, 0)
        passed = self.engine.map_sum(partial(block_pullback, self.backend, RAW, model, bar), rows)
        through_anchors, noise_bar = whiten_pullback(
            self.backend, model.kernel, self.Z, model.white, W_bar.T @ W, L_bar
        )
        gradient = self.backend.kernel_gradient(model.kernel, add_trees(passed.kernel, through_anchors))
        return gradient, np.asarray(noise_bar)

    def _by_row(self, model: Model, rows: Rows, c_bar: Any, by_spread: np.ndarray) -> RowBars:
        """dF/dy = B h: k(Z, x)'W h for the other rows, L h for the anchors."""
        bars = RowBars(np.zeros(self.n_rows), np.zeros(self.n_rows))
        cross = partial(_weighted_cross, self.backend, model.kernel, self.Z, model.white.W @ c_bar)
        bars.y[self.rest] = rows.added(self.engine.map_rows(cross, rows))
        bars.y[self.kept] = np.asarray(model.white.L @ c_bar)
        bars.spread[self.kept] = by_spread
        return bars

    def posterior(self, kernel: Kernel, observed: Observed) -> NystromPosterior:
        prepared = self._prepare(kernel, observed)
        if prepared is None:
            raise ArithmeticError("The anchors' kernel matrix has no Cholesky factor; use fewer anchors.")
        model, _, raw = prepared
        G, c = self._gram(model, raw, observed.y)
        g = np.linalg.solve(np.asarray(G), np.asarray(c))
        return NystromPosterior(kernel, observed.noise, self.Z, np.asarray(model.white.W), g, np.asarray(G))


def _weighted_cross(backend: Backend, kernel: Kernel, Z: Any, weights: Any, block: Block) -> Any:
    """K(X, Z) weights (B,) of a block's rows, 0 for those that pad it."""
    with backend.scope():
        return (backend.cross(kernel, block.X, Z) @ weights) * block.weight


class Numbers(NamedTuple):
    """kernel, anchors Z (r, I), W (r, r) and g (r,): what the formulas of the posterior need."""

    kernel: Kernel
    Z: Any
    W: Any
    g: Any


@saveable
@dataclass(frozen=True)
class NystromPosterior:
    """mean = b*'g, variance = K(x,x) - |b*|^2 + noise with b* = W'k(Z, x); g (r,).

    ``gram`` G (r, r), by which g = G^-1 c, is what more rows add to; files of earlier versions lack it.
    """

    kernel: Kernel
    noise: float
    Z: np.ndarray
    W: np.ndarray
    beta: np.ndarray
    gram: np.ndarray | None = None

    @classmethod
    def of_anchors(cls, backend: Backend, dense: DensePosterior) -> NystromPosterior:
        """That of the anchors' rows alone: B = L, so that G = L'L and g = L^-1 y."""
        W = np.asarray(backend.invert_lower(dense.L)).T
        g, G = dense.L.T @ dense.alpha, dense.L.T @ dense.L
        return cls(dense.kernel, dense.noise, dense.X, W, g, G)

    def grown(self, backend: Backend, X: np.ndarray, observed: Observed) -> Grown:
        """G~ = G + B_*'B_*,  c~ = G g + B_*'y_*  for new rows X (q, I); they are predicted one by one."""
        if self.gram is None:
            raise ValueError(
                "The model comes from a version of widegp that did not keep what more rows are added to;"
                " fit it again."
            )
        b = np.asarray(backend.matmul(backend.cross(self.kernel, X, self.Z), self.W))
        variance = np.asarray(backend.diagonal(self.kernel, X)) - (b * b).sum(1)
        sd = np.sqrt(np.maximum(variance, 0.0) + observed.variances())
        gram = self.gram + b.T @ b
        beta = np.linalg.solve(gram, self.gram @ self.beta + b.T @ observed.y)
        return Grown(replace(self, beta=beta, gram=gram), (observed.y - b @ self.beta) / sd, np.log(sd))

    def numbers(self) -> Numbers:
        return Numbers(self.kernel, self.Z, self.W, self.beta)

    def expansion(self) -> Expansion:
        return Expansion(self.Z, self.W @ self.beta)

    def features(self) -> Features:
        return Features(self.Z, self.W, self.beta)

    def bytes_per_row(self, neighbors: int) -> int:
        """Of work for each new row."""
        return 24 * len(self.Z)

    @staticmethod
    def moments(backend: Backend, numbers: Numbers, X: Any) -> tuple[Any, Any]:
        """mu = b*'g, Var f = k** - |b*|^2, eq. (gp_pred_mom_pt) literally, at new rows X (q, I)."""
        b = backend.matmul(backend.cross(numbers.kernel, X, numbers.Z), numbers.W)
        return b @ numbers.g, backend.diagonal(numbers.kernel, X) - (b * b).sum(1)

    @staticmethod
    def mean(backend: Backend, numbers: Numbers, X: Any) -> Any:
        """The mean of `moments` alone."""
        return backend.matmul(backend.cross(numbers.kernel, X, numbers.Z), numbers.W) @ numbers.g

    def joint(self, backend: Backend, X: np.ndarray, near: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q,) and covariance (q, q) of f at new rows X (q, I)."""
        b = np.asarray(backend.cross(self.kernel, X, self.Z) @ self.W)
        return b @ self.beta, np.asarray(backend.cross(self.kernel, X, X)) - b @ b.T
