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
from widegp.choices.search import CERTAIN, LARGEST_LOSS, POWERS, STRENGTHS, Verdict
from widegp.choices.trials import Form
from widegp.conditioning import TrainingRows
from widegp.inference.fit import Fitted
from widegp.inference.objective import Problem
from widegp.inference.parameters import Values
from widegp.noise_model import LeftOut, NoiseModel, fit_noise, likeliest_factor
from widegp.tails import Tails, fit_tails

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
    """X (n, I) as scaled; the problem with its warp; ``build`` makes a builder of rows, ``fit`` fits it;
    whether the noise may be ``varying`` though a part of the rows did not show it.
    """

    X: np.ndarray
    problem: Problem
    build: Callable[[np.ndarray], Builder]
    fit: Fit
    seed: int
    varying: bool = False

    def fitted(self, form: Form, values: Values, curvature: np.ndarray | None, parts: bool) -> Stage:
        """The table under a form, from the optimum of a like one; through ``parts`` of it, if of few rows."""
        X = self.X if form.linear is None else self.X @ form.linear
        problem = replace(self.problem, spread=None if form.noise is None else form.noise.spread(X))
        builder = self.build(X)
        return Stage(form, builder, self.fit(builder, problem, values, curvature, parts))

    def with_metric(self, stage: Stage, power: float) -> Form:
        """The metric of the gradients at rows of the whole table, in place of that of a part."""
        some = np.random.default_rng(self.seed).permutation(len(self.X))[:GRADIENT_ROWS]
        return replace(stage.form, linear=learned_map(stage.moment(some), self.X[some], power))

    def with_noise(self, stage: Stage) -> Form:
        """The noise that left-out rows of the whole table tell of; the form itself where it is constant."""
        if stage.form.noise is None and not self.varying:
            return stage.form
        order = np.random.default_rng(self.seed).permutation(len(self.X))
        noise = self._noise(stage, stage.form, order[:LEFT_OUT_ROWS], order[-LEFT_OUT_ROWS:])
        return stage.form if noise is stage.form.noise else replace(stage.form, noise=noise)

    def tails(self, stage: Stage) -> Tails | None:
        """The law of the scores of left-out rows, other than those that the noise was learned from."""
        order = np.random.default_rng(self.seed).permutation(len(self.X))
        return fit_tails(stage.left_out(order[-LEFT_OUT_ROWS:]).scores())

    def _noise(self, stage: Stage, form: Form, some: np.ndarray, others: np.ndarray) -> NoiseModel | None:
        """The noise that ``some`` left-out rows tell; where a part of the rows told of none, only if the
        residuals of ``others`` are likelier under it for certain.
        """
        X, left_out = self.X if form.linear is None else self.X @ form.linear, stage.left_out(some)
        found = fit_noise(X[some], left_out)
        if form.noise is not None or found is None:
            return found and found.with_strength(form.noise.strength if form.noise else 1.0)
        judged, most, best = stage.left_out(others), 0.0, None
        for model in map(found.with_strength, STRENGTHS):
            factor = likeliest_factor(left_out, model.spread(X[some]))
            gain = judged.scaled(factor * model.spread(X[others])).log_density() - judged.log_density()
            certain = float(gain.mean() - CERTAIN * gain.std() / np.sqrt(len(gain)))
            if certain > most:
                most, best = certain, model
        return best


def fit_whole(whole: Whole, chosen: Chosen) -> tuple[Stage, tuple[Verdict, ...]]:
    """What was chosen, fitted to all rows; metric, then noise, learned again from them where that predicts
    left-out rows better.
    """
    trial, n_rows = chosen.trial, len(whole.X)
    parts = n_rows >= WORTHWHILE * len(trial.X)
    stage = whole.fitted(trial.form, trial.values, None if parts else trial.curvature, parts)
    if not parts:
        return stage, ()
    refined = Refined(whole, stage)
    # Variances by input, which few rows tell badly, are refined by the gradients of all.
    powers = POWERS[::-1] if chosen.by_input else () if chosen.power is None else (chosen.power,)
    for power in powers:
        words = f"metric of gradients^{2 * power:g} at all rows"
        if refined.tried(whole.with_metric(refined.stage, power), words):
            break
    refined.tried(whole.with_noise(refined.stage), "noise of all rows")
    return refined.stage, tuple(refined.verdicts)


class Refined:
    """The best fit so far of the whole table, by rows that are left out, and a verdict on each tried."""

    def __init__(self, whole: Whole, stage: Stage) -> None:
        self.whole, self.stage = whole, stage
        self.verdicts: list[Verdict] = []
        self.judged = np.random.default_rng(whole.seed + 1).permutation(len(whole.X))[:LEFT_OUT_ROWS]
        self.scores = self._scores(stage)

    def tried(self, form: Form, words: str) -> bool:
        """Whether the table is likelier under another form, at no loss of squares, which is then kept."""
        if form is self.stage.form:
            return False
        fitted = self.stage.fitted
        other = self.whole.fitted(form, fitted.values, fitted.optimum.curvature, False)
        scores = self._scores(other)
        gain = scores[0] - self.scores[0]
        rmse = float(np.sqrt(np.mean(scores[1]) / np.mean(self.scores[1]))) - 1
        kept = gain.mean() > 0 and rmse <= LARGEST_LOSS
        error = float(gain.std() / np.sqrt(len(gain)))
        self.verdicts.append(Verdict(words, -float(gain.mean()), error, rmse, kept))
        if kept:
            self.stage, self.scores = other, scores
        return kept

    def _scores(self, stage: Stage) -> tuple[np.ndarray, np.ndarray]:
        """Log density and squared error of each row that is judged by."""
        return stage.log_score(self.judged), stage.left_out(self.judged).residual ** 2
