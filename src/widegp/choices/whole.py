"""The whole table under what was chosen on a part of it; then metric and noise again, from all its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

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
from widegp.tails import MOST_PARTS, Tails, judged_tails

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


@dataclass(frozen=True, eq=False)
class Judged:
    """A fit of the whole table, and how rows that were left out of their prediction do under it.

    words : how it differs from the first.
    residual, log_density : (q,) each, of the warped targets; the latter under the ``tails`` of these rows,
        each fifth of them under those of the others.
    """

    stage: Stage
    words: str
    residual: np.ndarray
    log_density: np.ndarray
    tails: Tails | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, stage: Stage, words: str, rows: np.ndarray, tailed: bool) -> Self:
        left_out = stage.left_out(rows)
        law = judged_tails(left_out.scores(), MOST_PARTS if tailed else 0)
        # From the density of scores to that of targets.
        log_slope = stage.fitted.objective.problem.warped(stage.fitted.values).log_jacobian[rows]
        log_slope = log_slope - 0.5 * np.log(left_out.latent + left_out.noise)
        return cls(stage, words, left_out.residual, law.log_density + log_slope, law.tails)

    def with_other(self, other: Judged) -> Self:
        """Both, averaged: the mean of the densities, and of the means."""
        both = np.logaddexp(self.log_density, other.log_density) - np.log(2)
        residual = (self.residual + other.residual) / 2
        return replace(self, log_density=both, residual=residual)

    @property
    def score(self) -> float:
        """Mean log density less the logarithm of the RMSE, both of which users look at: nats either way."""
        return float(np.mean(self.log_density) - 0.5 * np.log(np.mean(self.residual**2)))

    def beside(self, other: Judged) -> Verdict:
        """This fit against ``other``."""
        gain = self.log_density - other.log_density
        rmse = float(np.sqrt(np.mean(self.residual**2) / np.mean(other.residual**2))) - 1
        kept = self.score > other.score and rmse <= LARGEST_LOSS
        error = float(gain.std() / np.sqrt(len(gain)))
        return Verdict(self.words, -float(gain.mean()), error, rmse, kept)


def fit_whole(whole: Whole, chosen: Chosen) -> list[Judged]:
    """What was chosen, fitted to all rows; metric, then noise, learned again from them.

    First the fit that predicts left-out rows best, with notes on all that was tried; then, where the average
    with it is better still, another.
    """
    trial, n_rows = chosen.trial, len(whole.X)
    parts = n_rows >= WORTHWHILE * len(trial.X)
    stage = whole.fitted(trial.form, trial.values, None if parts else trial.curvature, parts)
    rows = np.random.default_rng(whole.seed + 1).permutation(n_rows)[:LEFT_OUT_ROWS]
    best = Judged.of(stage, "the first fit", rows, whole.varying)
    made, verdicts = [best], []

    def tried(form: Form, words: str) -> None:
        nonlocal best
        fitted = best.stage.fitted
        other = whole.fitted(form, fitted.values, fitted.optimum.curvature, False)
        made.append(Judged.of(other, words, rows, whole.varying))
        verdicts.append(made[-1].beside(best))
        best = made[-1] if verdicts[-1].kept else best

    if parts:
        for power in POWERS if chosen.power is not None or chosen.by_input else ():
            tried(whole.with_metric(made[0].stage, power), f"metric of gradients^{2 * power:g} at all rows")
        form = whole.with_noise(best.stage)
        if form is not best.stage.form:
            tried(form, "noise of all rows")
    return _averaged(best, made, verdicts)


def _averaged(best: Judged, made: list[Judged], verdicts: list[Verdict]) -> list[Judged]:
    """The best fit, and the one that it is best averaged with, if that gains for certain."""
    notes = [f"Then on the whole table: {'; '.join(map(str, verdicts))}."] if verdicts else []
    pairs = [(best.with_other(other), other) for other in made if other is not best]
    pair, other = max(pairs, key=lambda found: found[0].score, default=(best, best))
    verdict = replace(pair.beside(best), words=f"averaged with {other.words}")
    certain = verdict.kept and verdict.difference < -CERTAIN * verdict.error
    if certain:
        notes.append(f"Predictions are {verdict}.")
    if best.tails is not None:
        notes.append(best.tails.words)
    return [replace(best, notes=tuple(notes)), *([other] if certain else [])]
