"""Anchors and neighbours: dtc, vfe, fitc, vecchia and full-scale are one class with two dials."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from widegp.approximations.evaluation import Evaluation, failure
from widegp.approximations.objective import feature_weights, negative_log_likelihood
from widegp.approximations.sums import (
    RULES,
    BlockGradient,
    Model,
    Rule,
    Sums,
    block_pullback,
    block_sums,
    block_sums_kept,
    weigh,
    weigh_pullback,
)
from widegp.approximations.whitening import JITTERS, whiten, whiten_pullback
from widegp.compute.backend import Backend
from widegp.engines.base import Engine, Rows
from widegp.engines.blocks import add_trees
from widegp.kernels.base import Kernel

Array = Any

# Error of W'SW / noise, beside the identity, up to which sums are made of raw k(Z, x).
DIGITS = 1e-6


@dataclass
class Family:
    """The likelihood of rows given anchors Z (r, I) and, for residual rules, their earlier neighbours.

    ``jitter`` grows as the first value needs it. Then the likelihood is ``settled``: it stays one function,
    and parameters that would need more of it have no value. ``share`` is 1, or n / |batch| where the sums run
    over a batch of rows and stand for all of them.
    """

    name: str
    rows: Rows
    Z: np.ndarray
    backend: Backend
    engine: Engine
    jitter: float = JITTERS[0]
    share: float = 1.0
    settled: bool = False

    def rule(self, model: Model) -> Rule:
        """How the sums are made under this model: of features where sums of k(Z, x) would lose their digits.

        S = sum k(Z, x) k(Z, x)' carries an error of about eps n mean(K)^2, which W'SW / noise multiplies by
        |W|^2 / noise. It stands beside the identity.
        """
        rule = RULES[self.name]
        if rule.residual or len(self.Z) == 0:
            return rule
        scale = self.backend.compiled(_scale_of_weighing, self.backend)(model)
        error = float(np.finfo(float).eps) * self.n_rows * float(scale)
        return rule._replace(whitened=not error < DIGITS)

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    def model(self, kernel: Kernel, noise: float) -> Model | None:
        most = self.jitter if self.settled else JITTERS[-1]
        white = whiten(self.backend, kernel, self.Z, jitter=self.jitter, most=most)
        if white is None:
            return None
        return Model(kernel, noise, self.Z, white)

    def settle(self, jitter: float) -> None:
        """A value was found with this jitter: it stays."""
        self.jitter, self.settled = max(self.jitter, jitter), True

    def sums(self, rule: Rule, model: Model, rows: Rows) -> Sums:
        return self.engine.map_sum(partial(block_sums, self.backend, rule, model), rows)

    def _sums_kept(self, rule: Rule, model: Model, rows: Rows) -> tuple[Sums, Any]:
        """The sums and, where the rows of features fit the room there is, these rows for the second pass."""
        room = self.backend.keep_bytes * self.engine.keepers
        if rule.residual or 8 * self.n_rows / self.share * len(self.Z) > room:
            return self.sums(rule, model, rows), None
        return self.engine.map_keep(partial(block_sums_kept, self.backend, rule, model), rows)

    def evaluate(
        self, kernel: Kernel, noise: float, y: np.ndarray, dy: np.ndarray | None = None
    ) -> Evaluation:
        """Two passes over the rows: the sums, then their pullback."""
        rows = self.rows.with_target(y, dy)
        model = self.model(kernel, noise)
        if model is None:
            return failure("the anchors' kernel matrix has no Cholesky factor; use fewer anchors")
        rule = self.rule(model)
        made, kept = self._sums_kept(rule, model, rows)
        raw = _scaled(made, self.share)
        if int(raw.failed):
            return failure(f"{int(raw.failed)} rows have no positive variance given their neighbours")
        from_sums = self.backend.compiled(_from_sums, self.backend, rule)
        value, raw_bar, inner, noise_bar = from_sums(model, raw)
        if not np.isfinite(float(value)):
            return failure("the likelihood is not finite at these parameters")
        self.settle(model.white.jitter)
        passed: BlockGradient = self.engine.map_sum(
            partial(block_pullback, self.backend, rule, model, _scaled(raw_bar, self.share)), rows, kept
        )
        kernel_bar = passed.kernel
        if len(self.Z):
            through_anchors = self.backend.compiled(_through_anchors, self.backend, rule)(
                model, inner, passed.W
            )
            kernel_bar = add_trees(kernel_bar, through_anchors)
        gradient = self.backend.kernel_gradient(kernel, kernel_bar)
        gradient["sigma_eps2"] = np.asarray(float(noise_bar + passed.noise))
        gradient["psi"] = np.asarray(passed.psi)
        return Evaluation(float(value), gradient, self.jitter)

    def posterior(self, kernel: Kernel, noise: float, y: np.ndarray) -> FamilyPosterior:
        """The feature weights given all rows; with neighbours, the rows themselves are kept too."""
        rows = self.rows.with_target(y)
        model = self.model(kernel, noise)
        if model is None:
            raise ArithmeticError("The anchors' kernel matrix has no Cholesky factor; use fewer anchors.")
        rule = self.rule(model)
        sums = weigh(self.backend, rule, model, self.sums(rule, model, rows))
        weights = feature_weights(self.backend, sums)
        if not np.all(np.isfinite(np.asarray(weights.beta))):
            raise ArithmeticError(
                "The weights of the features are not finite at the estimates; use fewer anchors, or"
                " approximation='fitc', which rounds less."
            )
        return FamilyPosterior(
            self.name,
            kernel,
            noise,
            self.Z,
            np.asarray(model.white.W),
            np.asarray(weights.beta),
            np.asarray(weights.L_B),
        )

    def batch(self, rows: np.ndarray) -> Family:
        """The likelihood estimated from some rows (b,), each given all its neighbours.

        Without anchors the objective is a sum over rows and the estimate is unbiased. With anchors the sums
        A and b are estimated without bias, and the objective, which is not linear in them, nearly so.
        """
        placed = self.engine.place(self.rows.restricted(rows))
        return replace(self, rows=placed, share=self.n_rows / len(rows))


def _scale_of_weighing(backend: Backend, model: Model) -> Array:
    """mean(K)^2 |W|^2 / noise, with the longest column of W for its norm."""
    xp = backend.xp
    mean = xp.mean(backend.diagonal(model.kernel, model.Z))
    return mean**2 * xp.max(xp.sum(model.white.W**2, axis=0)) / model.noise


def _from_sums(backend: Backend, rule: Rule, model: Model, raw: Sums) -> tuple[Array, Sums, Array, Array]:
    """F, dF/d(raw sums), W_bar'W, dF/dnoise."""
    weighted = weigh(backend, rule, model, raw)
    value, bar = negative_log_likelihood(backend, rule, weighted)
    return value, *weigh_pullback(backend, rule, model, raw, weighted, bar)


def _through_anchors(backend: Backend, rule: Rule, model: Model, inner: Array, by_blocks: Array) -> Array:
    """dF/dkernel through K_ZZ; where residuals are kept, dF/dW comes from the blocks."""
    if rule.residual:
        inner = inner + by_blocks.T @ model.white.W
    return whiten_pullback(backend, model.kernel, model.Z, model.white, inner)[0]


def _scaled(sums: Sums, share: float) -> Sums:
    return sums if share == 1.0 else Sums(*(share * part for part in sums))


@dataclass(frozen=True)
class FamilyPosterior:
    """kernel, noise, anchors and the posterior N(beta, B^-1) of the feature weights; no training rows."""

    name: str
    kernel: Kernel
    noise: float
    Z: np.ndarray
    W: np.ndarray
    beta: np.ndarray
    L_B: np.ndarray
