"""Rounds of optimisation between searches for neighbours, on a table or a part of one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.layout import Layout
from widegp.inference.batches import BatchHessian, ahead_of
from widegp.inference.objective import MapObjective, Problem
from widegp.inference.optimizers import KnownAnswer
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.result import Optimum, Reason
from widegp.inference.run import Run

# Neighbours are found again when more than this share of them would change.
STALE = 0.08
# Searches for neighbours, at most.
ROUNDS = 4
FIRST_ROUND_ITERATIONS = 15


@dataclass(frozen=True)
class Fitted:
    """Where the fit ended, with which layout and likelihood, and the run that it was part of."""

    values: Values
    objective: MapObjective
    layout: Layout
    optimum: Optimum
    rounds: int
    run: Run
    seconds: dict[str, float] = field(default_factory=dict)


class _Placed(NamedTuple):
    """An objective on its layout, and its answer at the values that they were made for, where known."""

    objective: MapObjective
    layout: Layout
    known: KnownAnswer | None


@dataclass
class _State:
    """Where the rounds are: estimates, the Hessian per row there, the metric of the anchors, and counts so
    far of rounds, iterations and evaluations.
    """

    values: Values
    curvature: np.ndarray | None
    metric: str | None
    rounds: int = 0
    done: int = 0
    evaluations: int = 0
    path: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"search": 0.0, "optimise": 0.0})

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


@dataclass(frozen=True)
class Table:
    """A table, or a part of one, what is estimated from it, and the run that this is part of."""

    run: Run
    builder: Builder
    problem: Problem
    space: ParameterSpace

    def best_of(self, starts: list[Values], curvature: np.ndarray | None, metric: str | None) -> Fitted:
        """The lowest optimum that any of ``starts``, best first, leads to; only the first once time is up."""
        best = self.rounds(starts[0], curvature, metric)
        for start in starts[1:]:
            if not self.run.late():
                self.run.watch.again(start)
                other = self.rounds(start, curvature, metric)
                best = min(best, other, key=lambda fitted: fitted.optimum.value)
        return best

    def rounds(
        self, values: Values, curvature: np.ndarray | None = None, metric: str | None = None
    ) -> Fitted:
        """Optimise, find neighbours and anchors again where the metric has moved, optimise on; the anchors
        are those of ``metric``, or of the one under which the targets are likelier.
        """
        state = _State(values, curvature, metric)
        while True:
            placed = self._placed(state)
            moved = self._ahead(placed, state) if state.rounds == 1 else None
            if moved is not None and self._stale(placed.layout, state, moved):
                continue
            optimum = self._optimised(placed if moved is None else placed._replace(known=None), state)
            settings = self.run.settings
            ended = state.rounds >= ROUNDS or state.done >= settings.max_iter or settings.name != "lbfgs"
            if ended or not self._stale(placed.layout, state, optimum):
                break
        whole = replace(optimum, path=tuple(state.path), n_evaluations=state.evaluations)
        layout, objective = placed.layout, placed.objective
        return Fitted(state.values, objective, layout, whole, state.rounds, self.run, state.seconds)

    def _placed(self, state: _State) -> _Placed:
        """Anchors and neighbours that suit the estimates so far, and the objective on them."""
        state.rounds += 1
        with state.timed("search"):
            layout = self.builder.layout(self.problem.kernel_at(state.values), state.metric)
            objective = self.problem.on(self.builder.likelihood(layout), self.space)
            placed = _Placed(objective, layout, None)
            if state.metric is None:
                placed = self._with_better_anchors(placed, state.values)
                state.metric = placed.layout.metric
        return placed

    def _ahead(self, placed: _Placed, state: _State) -> Optimum | None:
        """Move to the optimum of a batch of the rows, where the table is large enough for one to go ahead."""
        run, batch = self.run, None
        if run.settings.name == "lbfgs" and self._limit(state) > 0 and not run.late():
            batch = ahead_of(placed.objective, self.builder.seed)
        if batch is None:
            return None
        run.watch.begin("batch", state.values)
        with state.timed("batch"):
            found = run.optimise(batch, state.values, self._limit(state), state.curvature)
        if found.reason is Reason.FAILED:
            del state.seconds["batch"]
            return None
        state.values, state.curvature = self.space.unpack(found.z), found.curvature
        state.done += found.n_iter
        run.watch.begin("whole", state.values)
        return found

    def _optimised(self, placed: _Placed, state: _State) -> Optimum:
        """Move to the optimum on this layout, or as far as the iterations of this round go."""
        run, objective = self.run, placed.objective
        with state.timed("optimise"):
            elsewhere = BatchHessian.of(run.journaled, objective, self.builder.seed)
            if elsewhere is not None and "batch" in state.seconds:
                # BFGS has learned the curvature along its steps alone; a batch gives all of it for a tenth.
                made = elsewhere(self.space.pack(state.values))
                state.curvature = state.curvature if made is None else made
            limit = self._limit(state)
            optimum = run.optimise(objective, state.values, limit, state.curvature, placed.known, elsewhere)
        state.values, state.curvature = self.space.unpack(optimum.z), optimum.curvature
        state.done += optimum.n_iter
        state.path += optimum.path
        state.evaluations += optimum.n_evaluations
        return optimum

    def _limit(self, state: _State) -> int:
        """Iterations left; few in a first round, where the metric moves as variances by input are fitted."""
        settings = self.run.settings
        moves = self.builder.approximation.neighbors and has_ard(self.space, state.values)
        first = state.rounds == 1 and settings.name == "lbfgs" and moves
        most = min(settings.max_iter, FIRST_ROUND_ITERATIONS) if first else settings.max_iter
        return most - state.done

    def _stale(self, layout: Layout, state: _State, optimum: Optimum) -> bool:
        """Whether the metric has moved away from the neighbours, or the round was cut short."""
        if optimum.reason in (Reason.BUDGET, Reason.FAILED, Reason.FIXED):
            return False
        changed = self.builder.changed
        cut = optimum.reason is Reason.MAX_ITER
        return cut or changed(layout, self.problem.kernel_at(state.values)) > STALE

    def _with_better_anchors(self, placed: _Placed, values: Values) -> _Placed:
        """The anchors, of those spread in either metric, under which the targets are likelier at ``values``,
        and what the objective is there.
        """
        objective, layout, _ = placed
        other = self.builder.with_other_anchors(layout, self.problem.kernel_at(values))
        if other is None:
            return placed
        z, changed = self.space.pack(values), replace(objective, likelihood=self.builder.likelihood(other))
        there, here = self.run.journaled(changed)(z), self.run.journaled(objective)(z)
        if there.value < here.value:
            return _Placed(changed, other, KnownAnswer(z, there))
        return _Placed(objective, layout, KnownAnswer(z, here))


def has_ard(space: ParameterSpace, values: Values) -> bool:
    """Whether a parameter has a value for each input."""
    return any(values[name].ndim > 0 for name in space.per_input)
