"""Eq. (nystrom_noise) read literally: K~(:,S) K~(S,S)^-1 K~(S,:) for the noisy K~.

It has rank r, so for n > r its inverse and determinant exist only as pseudo-inverse and
pseudo-determinant: with B = K~(:,S) L^-T, L L' = K~(S,S), G = B'B and g = G^-1 B'y,
    quad = |g|^2,   logdet = logdet G.
The anchors must be rows. Their own rows of B are L, so the sums run over the other rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from widegp.approximations.evaluation import LOG_2PI, Evaluation, failure
from widegp.approximations.sums import Model, Rule, Sums, block_pullback, block_sums
from widegp.approximations.whitening import JITTERS, whiten, whiten_pullback
from widegp.compute.backend import Backend
from widegp.engines.base import Engine, Rows
from widegp.engines.blocks import add_trees
from widegp.kernels.base import Kernel

RAW = Rule(residual=False)


@dataclass
class Nystrom:
    """The paper's approximation; ``kept`` are the anchors' rows, ``others`` all further rows."""

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
        """The jitter only ever grows."""
        self.jitter = max(self.jitter, jitter)

    def _prepare(
        self, kernel: Kernel, noise: float, y: np.ndarray, dy: np.ndarray | None
    ) -> tuple[Model, Rows, Sums] | None:
        white = whiten(self.backend, kernel, self.Z, noise, self.jitter)
        if white is None:
            return None
        self.settle(white.jitter)
        model = Model(kernel, noise, self.Z, white)
        rows = self.others.with_target(y[self.rest], None if dy is None else dy[self.rest])
        return model, rows, self.engine.map_sum(partial(block_sums, self.backend, RAW, model), rows)

    def _gram(self, model: Model, raw: Sums, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G = W'SW + L'L and c = W's + L'y_S."""
        L, W = model.white.L, model.white.W
        return W.T @ raw.A @ W + L.T @ L, raw.b @ W + y[self.kept] @ L

    def evaluate(
        self, kernel: Kernel, noise: float, y: np.ndarray, dy: np.ndarray | None = None
    ) -> Evaluation:
        """With h = G^-1 g: F_G = (G^-1 - g h' - h g')/2, F_c = h."""
        prepared = self._prepare(kernel, noise, y, dy)
        if prepared is None:
            return failure("the anchors' kernel matrix has no Cholesky factor; use fewer anchors")
        model, rows, raw = prepared
        xp, solve = self.backend.xp, self.backend.solve_lower
        G, c = self._gram(model, raw, y)
        L_G = self.backend.cholesky(G)
        half = solve(L_G, xp.eye(len(c)))
        g = half.T @ (half @ c)
        h = half.T @ (half @ g)
        value = float(g @ g) / 2 + float(xp.sum(xp.log(xp.diagonal(L_G)))) + self.n_rows * LOG_2PI / 2
        if not np.isfinite(value):
            return failure("the pseudo-likelihood is not finite at these parameters")
        G_bar = (half.T @ half - g[:, None] * h[None, :] - h[:, None] * g[None, :]) / 2
        return self._gradient(model, rows, raw, y, dy, value, G_bar, h)

    def _gradient(self, model, rows, raw, y, dy, value, G_bar, c_bar) -> Evaluation:  # type: ignore[no-untyped-def]
        L, W = model.white.L, model.white.W
        W_bar = 2 * raw.A @ W @ G_bar + raw.b[:, None] * c_bar[None, :]
        L_bar = 2 * L @ G_bar + self.backend.xp.asarray(y[self.kept])[:, None] * c_bar[None, :]
        bar = Sums(W @ G_bar @ W.T, W @ c_bar, 0.0, 0.0, 0.0, 0.0, 0)
        passed = self.engine.map_sum(partial(block_pullback, self.backend, RAW, model, bar), rows)
        through_anchors, noise_bar = whiten_pullback(
            self.backend, model.kernel, self.Z, model.white, W_bar.T @ W, L_bar
        )
        gradient = self.backend.kernel_gradient(model.kernel, add_trees(passed.kernel, through_anchors))
        gradient["sigma_eps2"] = np.asarray(float(noise_bar))
        own = np.zeros(0) if dy is None else np.asarray(L @ c_bar) @ dy[self.kept]
        gradient["psi"] = np.asarray(passed.psi) + own
        return Evaluation(value, gradient, self.jitter)

    def posterior(self, kernel: Kernel, noise: float, y: np.ndarray) -> NystromPosterior:
        prepared = self._prepare(kernel, noise, y, None)
        if prepared is None:
            raise ArithmeticError("The anchors' kernel matrix has no Cholesky factor; use fewer anchors.")
        model, _, raw = prepared
        G, c = self._gram(model, raw, y)
        g = np.linalg.solve(np.asarray(G), np.asarray(c))
        return NystromPosterior(kernel, noise, self.Z, np.asarray(model.white.W), g)


@dataclass(frozen=True)
class NystromPosterior:
    """mean = b*'g, variance = K(x,x) - |b*|^2 + noise with b* = W'k(Z, x); g (r,)."""

    kernel: Kernel
    noise: float
    Z: np.ndarray
    W: np.ndarray
    beta: np.ndarray
