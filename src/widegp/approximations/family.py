"""Anchors and neighbours: dtc, vfe, fitc, vecchia and full-scale are one class with two dials."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from widegp.approximations.base import Approximation, Grown, Shape, Work, anchor_work, neighbor_work
from widegp.approximations.evaluation import Evaluation, Observed, failure
from widegp.approximations.objective import feature_weights, negative_log_likelihood
from widegp.approximations.posterior import FamilyPosterior
from widegp.approximations.sums import (
    Model,
    Rule,
    Sums,
    block_pullback,
    block_pullback_by_row,
    block_rows_alone,
    block_sums,
    block_sums_kept,
    weigh,
    weigh_pullback,
)
from widegp.approximations.whitening import JITTERS, whiten, whiten_pullback
from widegp.compute.backend import Backend, RowBars
from widegp.engines.base import Engine, Rows
from widegp.engines.blocks import BlockedRows, add_trees
from widegp.kernels.base import Kernel

if TYPE_CHECKING:
    from widegp.approximations.build import Builder
    from widegp.approximations.layout import Layout

Array = Any

# Error of W'SW / noise, beside the identity, up to which sums are made of raw k(Z, x).
DIGITS = 1e-6


@dataclass(frozen=True)
class FamilyApproximation(Approximation):
    """Anchors, neighbours or both; ``rule`` says what becomes of the residual, ``posterior`` what of it is
    predicted.
    """

    rule: Rule = Rule(residual=True)  # noqa: RUF009 (a tuple)
    posterior: type[FamilyPosterior] = FamilyPosterior

    def likelihood(self, builder: Builder, layout: Layout) -> Family:
        assert layout.rows is not None
        Z = layout.anchors.points
        neighbors = builder.dials.neighbors if self.neighbors else 0
        return Family(
            self.name, self.rule, layout.rows, Z, builder.backend, builder.engine, layout.order, neighbors,
            made=self.posterior,
        )  # fmt: skip

    def grown(self, posterior: FamilyPosterior, backend: Backend, new: BlockedRows) -> Grown:
        """Rows are added block by block to bound memory."""
        t, log_sd = [], []
        for block in new:
            posterior, *foretold = posterior.given_block(backend, block, self.rule.residual)
            t.append(foretold[0])
            log_sd.append(foretold[1])
        return Grown(posterior, np.concatenate(t), np.concatenate(log_sd))

    def _keeps(self, shape: Shape, keep_bytes: int) -> bool:
        """Whether the features of all rows stay in memory between the two passes."""
        return not self.rule.residual and 8 * shape.n * shape.r <= keep_bytes

    def work(self, shape: Shape, keep_bytes: int) -> Work:
        if self.rule.residual:
            return Work(anchor_work(shape, by_rank=6, cubic=4, passes=3), neighbor_work(shape))
        passes = 2 if self._keeps(shape, keep_bytes) else 3
        return Work(anchor_work(shape, by_rank=2, cubic=8, passes=passes))

    def numbers(self, shape: Shape, block: int, keep_bytes: int) -> float:
        arrays = 4 * shape.r + 2 * shape.i
        kept = (shape.n - block) * shape.r if self._keeps(shape, keep_bytes) else 0
        return block * arrays + kept + 12 * shape.r**2


@dataclass
class Family:
    """The likelihood of rows given anchors Z (r, I) and, for residual rules, their earlier neighbours.

    ``order`` (n,) is the row of the table at each place of ``rows``, or None where they agree. ``jitter``
    grows as the first value needs it. Then the likelihood is ``settled``: it stays one function, and
    parameters that would need more of it have no value. ``share`` is 1, or n / |batch| where the sums run
    over a batch of rows and stand for all of them. ``made`` is the class of its posterior.
    """

    name: str
    member: Rule
    rows: Rows
    Z: np.ndarray
    backend: Backend
    engine: Engine
    order: np.ndarray | None = None
    neighbors: int = 0
    jitter: float = JITTERS[0]
    share: float = 1.0
    settled: bool = False
    made: type[FamilyPosterior] = FamilyPosterior

    def rule(self, model: Model, observed: Observed) -> Rule:
        """How the sums are made under this model: of features where sums of k(Z, x) would lose their digits.

        S = sum k(Z, x) k(Z, x)' / spread carries an error of about eps mean(K)^2 sum 1 / spread, which
        W'SW / noise multiplies by |W|^2 / noise. The identity is added to it.
        """
        if self.member.residual or len(self.Z) == 0:
            return self.member
        scale = self.backend.compiled(_scale_of_weighing, self.backend)(model)
        weight = self.n_rows if observed.spread is None else float(np.sum(1 / observed.spread))
        error = float(np.finfo(float).eps) * weight * float(scale)
        return self.member._replace(whitened=not error < DIGITS)

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def summed(self) -> Shape:
        return Shape(self.n_rows, self.Z.shape[1], len(self.Z), self.neighbors)

    def model(self, kernel: Kernel, noise: float) -> Model | None:
        most = self.jitter if self.settled else JITTERS[-1]
        white = whiten(self.backend, kernel, self.Z, jitter=self.jitter, most=most)
        if white is None:
            return None
        return Model(kernel, noise, self.Z, white)

    def settle(self, jitter: float) -> None:
        self.jitter, self.settled = max(self.jitter, jitter), True

    def _observed(self, observed: Observed) -> Rows:
        stored = observed if self.order is None else observed.of(self.order)
        return self.rows.with_target(stored.y, stored.spread)

    def sums(self, rule: Rule, model: Model, rows: Rows) -> Sums:
        return self.engine.map_sum(partial(block_sums, self.backend, rule, model), rows)

    def _sums_kept(self, rule: Rule, model: Model, rows: Rows) -> tuple[Sums, Any]:
        """The sums and, where the rows of features fit the room there is, these rows for the second pass."""
        room = self.backend.keep_bytes * self.engine.stores
        if rule.residual or 8 * self.n_rows / self.share * len(self.Z) > room:
            return self.sums(rule, model, rows), None
        return self.engine.map_keep(partial(block_sums_kept, self.backend, rule, model), rows)

    def evaluate(
        self, kernel: Kernel, observed: Observed, by_row: bool = False, gradient: bool = True
    ) -> Evaluation:
        """Two passes over the rows: the sums, then their pullback."""
        rows = self._observed(observed)
        model = self.model(kernel, observed.noise)
        if model is None:
            return failure("the anchors' kernel matrix has no Cholesky factor; use fewer anchors")
        rule = self.rule(model, observed)
        made, kept = self._sums_kept(rule, model, rows)
        raw = _scaled(made, self.share)
        if int(raw.failed):
            return failure(f"{int(raw.failed)} rows have no positive variance given their neighbours")
        from_sums = self.backend.compiled(_from_sums, self.backend, rule)
        value, raw_bar, inner, by_log_noise = from_sums(model, raw)
        if not np.isfinite(float(value)):
            return failure("the likelihood is not finite at these parameters")
        self.settle(model.white.jitter)
        bound = (self.backend, rule, model, _scaled(raw_bar, self.share))
        if by_row and not gradient:
            _, parts = self.engine.map_sum_rows(partial(block_rows_alone, *bound), rows, kept)
            return Evaluation(float(value), {}, model.white.jitter, by_row=self._by_row(rows, parts))
        if by_row:
            passed, parts = self.engine.map_sum_rows(partial(block_pullback_by_row, *bound), rows, kept)
        else:
            passed = self.engine.map_sum(partial(block_pullback, *bound), rows, kept)
        kernel_bar = passed.kernel
        if len(self.Z):
            through_anchors = self.backend.compiled(_through_anchors, self.backend, rule)(
                model, inner, passed.inner
            )
            kernel_bar = add_trees(kernel_bar, through_anchors)
        slopes = self.backend.kernel_gradient(kernel, kernel_bar)
        slopes["sigma_eps2"] = np.asarray(float(by_log_noise + passed.log_noise) / observed.noise)
        bars = self._by_row(rows, parts) if by_row else None
        return Evaluation(float(value), slopes, model.white.jitter, by_row=bars)

    def _by_row(self, rows: Rows, parts: list[RowBars]) -> RowBars:
        """Cotangents of the blocks' rows, added up and in the order of the table."""
        added = [rows.added([getattr(part, name) for part in parts]) for name in RowBars._fields]
        if self.order is not None:
            back = np.argsort(self.order)
            added = [values[back] for values in added]
        return RowBars(*added)

    def posterior(self, kernel: Kernel, observed: Observed) -> FamilyPosterior:
        """The feature weights given all rows; with neighbours, the rows themselves are kept too."""
        rows = self._observed(observed)
        model = self.model(kernel, observed.noise)
        if model is None:
            raise ArithmeticError("The anchors' kernel matrix has no Cholesky factor; use fewer anchors.")
        rule = self.rule(model, observed)
        sums = weigh(self.backend, rule, model, self.sums(rule, model, rows))
        weights = feature_weights(self.backend, sums)
        if not np.all(np.isfinite(np.asarray(weights.beta))):
            raise ArithmeticError(
                "The weights of the features are not finite at the estimates; use fewer anchors, or"
                " approximation='fitc', which rounds less."
            )
        W, beta, L_B = (np.asarray(part) for part in (model.white.W, weights.beta, weights.L_B))
        return self.made(self.name, kernel, observed.noise, self.Z, W, beta, L_B, self.neighbors)

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
    """F, dF/d(raw sums), W_bar'W, dF/dlog noise."""
    weighted = weigh(backend, rule, model, raw)
    value, bar = negative_log_likelihood(backend, rule, weighted)
    return value, *weigh_pullback(backend, rule, model, raw, weighted, bar)


def _through_anchors(backend: Backend, rule: Rule, model: Model, inner: Array, by_blocks: Array) -> Array:
    """dF/dkernel through K_ZZ; where residuals are kept, W_bar'W comes from the blocks."""
    if rule.residual:
        inner = inner + by_blocks
    return whiten_pullback(backend, model.kernel, model.Z, model.white, inner)[0]


def _scaled(sums: Sums, share: float) -> Sums:
    return sums if share == 1.0 else Sums(*(share * part for part in sums))
