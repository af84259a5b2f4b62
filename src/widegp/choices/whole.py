"""The whole table under what was chosen on a part of it; then metric and noise again, from all its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.dense import DensePosterior
from widegp.choices.chosen import Chosen
from widegp.choices.gradients import mean_gradients
from widegp.choices.left_out import (
    NEIGHBORS,
    left_out_exactly,
    left_out_rows,
    left_out_with_anchors,
)
from widegp.choices.metric import gradient_moment, learned_map
from widegp.choices.trials import Form
from widegp.conditioning import TrainingRows
from widegp.inference.fit import Fitted
from widegp.inference.objective import Problem
from widegp.inference.parameters import Values
from widegp.noise_model import LeftOut, fit_noise

# Rows whose gradients make the metric, and rows left out to learn the noise from and to judge by.
GRADIENT_ROWS, LEFT_OUT_ROWS = 4000, 2000
# A table so many times as large as the part that chose is worth learning from again.
WORTHWHILE = 1.5

Fit = Callable[[Builder, Problem, Values, np.ndarray | None, bool], Fitted]


@dataclass(frozen=True)
class Stage:
    """A fit of the whole table under a form."""

    form: Form
    builder: Builder
    fitted: Fitted

    @property
    def X(self) -> np.ndarray:
        """All rows, as the kernel sees them."""
        return self.builder.X

    @cached_property
    def _given(self) -> tuple[Any, TrainingRows | None]:
        """The posterior, and the rows it conditions on in the order of the table."""
        fitted = self.fitted
        problem, values = fitted.objective.problem, fitted.values
        kernel, observed = problem.kernel_at(values), problem.observed(values)
        with self.builder.backend.scope():
            posterior = fitted.objective.likelihood.posterior(kernel, observed)
        if fitted.layout.order is None:
            return posterior, None
        return posterior, TrainingRows(self.X, observed.y, kernel, NEIGHBORS, observed.spread)

    def moment(self, chosen: np.ndarray) -> np.ndarray:
        """M (I, I) of the gradients at the rows ``chosen``, by the inputs as scaled."""
        posterior, rows = self._given
        return gradient_moment(mean_gradients(posterior, self.X[chosen], rows), self.form.linear)

    def left_out(self, chosen: np.ndarray) -> LeftOut:
        """The rows ``chosen``, predicted from the others."""
        posterior, rows = self._given
        observed = self.fitted.objective.problem.observed(self.fitted.values)
        if isinstance(posterior, DensePosterior):
            return left_out_exactly(posterior, observed.variances()).of(chosen)
        if rows is not None:
            return left_out_rows(posterior, rows, chosen)
        own = observed.of(chosen)
        return left_out_with_anchors(posterior, self.X[chosen], own.y, own.variances())

    def log_score(self, chosen: np.ndarray) -> np.ndarray:
        """Log density of the targets ``chosen``, predicted from others, Jacobian of the warp included."""
        jacobian = self.fitted.objective.problem.warped(self.fitted.values).log_jacobian
        return self.left_out(chosen).log_density() + jacobian[chosen]


@dataclass(frozen=True)
class Whole:
    """X (n, I) as scaled; the problem with its warp; ``build`` makes a builder of rows, ``fit`` fits it."""

    X: np.ndarray
    problem: Problem
    build: Callable[[np.ndarray], Builder]
    fit: Fit
    seed: int

    def fitted(self, form: Form, values: Values, curvature: np.ndarray | None, parts: bool) -> Stage:
        """The table under a form, from the optimum of a like one; through ``parts`` of it, if of few rows."""
        X = self.X if form.linear is None else self.X @ form.linear
        problem = replace(self.problem, spread=None if form.noise is None else form.noise.spread(X))
        builder = self.build(X)
        return Stage(form, builder, self.fit(builder, problem, values, curvature, parts))

    def learned_again(self, stage: Stage, power: float | None) -> Form:
        """Metric and noise from the whole table, in place of those of a part."""
        order = np.random.default_rng(self.seed).permutation(len(self.X))
        linear = stage.form.linear
        if power is not None:
            some = order[:GRADIENT_ROWS]
            linear = learned_map(stage.moment(some), self.X[some], power)
        noise = stage.form.noise
        if noise is not None:
            some = order[:LEFT_OUT_ROWS]
            X = self.X[some] if linear is None else self.X[some] @ linear
            again = fit_noise(X, stage.left_out(some))
            noise = None if again is None else again.with_strength(noise.strength)
        return replace(stage.form, linear=linear, noise=noise)


def fit_whole(whole: Whole, chosen: Chosen) -> Stage:
    """What was chosen, fitted to all rows; learned again from them where that predicts others better."""
    trial, n_rows = chosen.trial, len(whole.X)
    parts = n_rows >= WORTHWHILE * len(trial.X)
    values, curvature = trial.values, None if parts else trial.curvature
    if chosen.by_input and parts:
        # Beside the variances that a part has found stand their corrections by all rows, which begin at 1.
        values = {**values, "sigma_u2": np.full(whole.X.shape[1], float(values["sigma_u2"]))}
    first = whole.fitted(trial.form, values, curvature, parts)
    if not parts or (chosen.power is None and trial.form.noise is None):
        return first
    form = whole.learned_again(first, chosen.power)
    second = whole.fitted(form, first.fitted.values, first.fitted.optimum.curvature, False)
    judged = np.random.default_rng(whole.seed + 1).permutation(n_rows)[:LEFT_OUT_ROWS]
    return second if np.mean(second.log_score(judged) - first.log_score(judged)) > 0 else first
