"""One table fitted as asked: plainly, or with what is left open chosen on held-out rows first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from widegp.approximations.build import Builder
from widegp.choices.chosen import LEAST_ROWS, Chosen, choose_on
from widegp.choices.judged import Judged, shares
from widegp.choices.left_out import left_out_exactly
from widegp.choices.plan import chosen_plan
from widegp.choices.search import Asked, judged_rows
from widegp.choices.trials import Bench
from widegp.choices.whole import Begin, Whole, fit_whole
from widegp.choices.with_trees import with_trees
from widegp.cost import Calibration, Size
from widegp.data.arrays import is_mapped
from widegp.data.input_maps import of_training_rows
from widegp.inference.choose import choose_warp
from widegp.inference.fit import Fitted, Run, fit_map
from widegp.inference.objective import Problem
from widegp.inference.parameters import Values
from widegp.inference.priors import Prior
from widegp.inference.starts import apart
from widegp.inference.theta import FEW_PARAMETERS, FEW_ROWS
from widegp.inference.watch import InStage
from widegp.noise_model import NoiseModel
from widegp.tails import Tails, judged_tails
from widegp.warps import make_warp


class Estimate(NamedTuple):
    """A fit, the builder of its rows, what maps scaled inputs to these, the noise, its tails, what was
    chosen, its ``share`` in an average, and other fits to average predictions with: by their shares or, of
    the same rows (``alike``), over the posterior of each, to the ``share_beside`` that held-out rows give to
    the one beside, None where the evidence tells.
    """

    fitted: Fitted
    builder: Builder
    maps: tuple[Any, ...] = ()
    noise: NoiseModel | None = None
    tails: Tails | None = None
    notes: tuple[str, ...] = ()
    share: float = 1.0
    beside: tuple[Estimate, ...] = ()
    alike: bool = False
    share_beside: float | None = None


@dataclass(frozen=True)
class TableFit:
    """What a fit is made of.

    builder : of the scaled rows.    problem : kernel, targets, priors; its warp is still to come.
    by_input : the priors with one sigma_u2 per input.    start : where parameters begin.
    scale : of the targets, as `make_warp` takes it.    run : settings, journal and who is told.
    """

    builder: Builder
    problem: Problem
    by_input: dict[str, Prior]
    start: Values
    scale: dict[str, float]
    run: Run

    def estimate(self, asked: Asked, averaged: bool = False) -> Estimate:
        """The fit of the whole table, as asked; what is open stays plain where it cannot be tried.

        With ``averaged``, where rows are few, one variance per input comes beside one for all: whether
        inputs matter alike is then as uncertain as the parameters. Held-out rows weigh both; of rows too
        few to hold any out, the evidence.
        """
        settings, target = self.run.settings, self.problem.y
        fixed = settings.name != "lbfgs" or not settings.explore or settings.seconds is not None
        known = self.problem.weight is not None or self.problem.spread is not None
        few = len(target) < LEAST_ROWS or np.unique(target).size < 3
        averaged = averaged and asked.metric == "auto" and not fixed and self._can_average()
        # One variance per input that was asked for is estimated from all rows, and the rest stays plain.
        # Sums and products of kernels have several geometries; there the first fit is kept.
        if not asked.open or asked.metric == "ard" or is_mapped(self.builder.X):
            return self._plain(asked.warp)
        if fixed or known or few or "sigma_u2" not in self.start:
            # What cannot be tried on held-out rows is not tried: few rows tell little about a warp either.
            plain = self._plain("none" if asked.warp == "auto" else asked.warp)
            return self._with_each(plain) if averaged else plain
        start = {**self.start, "sigma_u2": np.asarray(self.start["sigma_u2"].mean())}
        size = Size.of(self.builder.dials, self.builder.X.shape)
        self.run.watch.expect(chosen_plan(size, Calibration(), settings.max_iter))
        run, none = self._choosing(start), np.zeros(0, int)
        bench = Bench(
            {"standard" if asked.inputs == "auto" else asked.inputs: self.builder.X},
            self.problem, replace(self.problem, priors=self.by_input), self.scale,
            none, none, run, self.builder.backend, self.builder.seed,
        )  # fmt: skip
        chosen = choose_on(bench, start, asked)
        if averaged and chosen.power is None and chosen.trial.form.noise is None:
            return self._few(chosen, asked.noise == "auto")
        beside = with_trees(bench, chosen, asked) if asked.trees == "auto" else None
        return self._whole([chosen] if beside is None else [chosen, beside], asked.noise == "auto")

    def _choosing(self, start: Values) -> Run:
        """The run of trial fits: all of them are one stage."""
        self.run.watch.begin("choices", start)
        return replace(self.run, watch=InStage(whole=self.run.watch))

    def _plain(self, warp: str) -> Estimate:
        run = self._choosing(self.start) if warp == "auto" else self.run
        name, psi = choose_warp(warp, self.problem, self.builder, self.start, self.scale, run)
        start = self.start | ({"psi": psi} if psi.size else {})
        fitted = self._fit(self.builder, self._warped(name), Begin(start), self.run.settings.explore)
        return Estimate(fitted, self.builder)

    def _whole(self, rivals: list[Chosen], varying: bool) -> Estimate:
        judged = judged_rows(len(self.builder.X), self.builder.seed)

        def whole(chosen: Chosen) -> Whole:
            X = self.builder.X
            for part in (chosen.scaler, chosen.trees):
                X = X if part is None else of_training_rows(part, X)
            problem, seed = self._warped(chosen.trial.form.warp), self.builder.seed
            build, fit = lambda X: replace(self.builder, X=X), self._fit
            return Whole(X, chosen, judged, problem, self.scale, build, fit, seed, varying)

        def estimate(made: Judged, share: float) -> Estimate:
            stage, form = made.stage, made.stage.form
            maps = stage.whole.chosen.maps(form)
            return Estimate(stage.fitted, stage.builder, maps, form.noise, made.tails, share=share)

        several = fit_whole([whole(chosen) for chosen in rivals])
        best, *others = map(estimate, several, shares(several))
        return best._replace(notes=(rivals[0].words, *several[0].notes), beside=tuple(others))

    def _can_average(self) -> bool:
        """Whether the fit is exact, of few rows, and these are as many as the parameters that it would have
        with one sigma_u2 per input: fewer say next to nothing about each of them.
        """
        n_inputs, known = self.builder.X.shape[1], self.builder.dials.name == "exact"
        parameters = len(self.start) - 1 + n_inputs
        enough = parameters <= self.problem.count <= FEW_ROWS and parameters <= FEW_PARAMETERS
        return known and n_inputs > 1 and enough and "sigma_u2" in self.start

    def _few(self, chosen: Chosen, tailed: bool) -> Estimate:
        """Few rows with the inputs and the warp that were chosen, one variance for all and one per input."""
        X = self.builder.X if chosen.scaler is None else chosen.scaler.transform(self.builder.X)
        builder, form = replace(self.builder, X=X), replace(chosen.trial.form, linear=None)
        psi = {name: value for name, value in chosen.trial.values.items() if name == "psi"}
        fitted = self._fit(builder, self._warped(form.warp), Begin(self.start | psi), explore=True)
        one = Estimate(fitted, builder, chosen.maps(form), notes=(chosen.words,))
        both = self._with_each(one)._replace(share_beside=chosen.share_by_input)
        if not tailed:
            return both
        beside = tuple(one._replace(tails=_tails(one.fitted)) for one in both.beside)
        return both._replace(tails=_tails(fitted), beside=beside)

    def _with_each(self, one: Estimate) -> Estimate:
        """A fit with one sigma_u2 for all inputs, and beside it that with one for each."""
        builder, values = one.builder, one.fitted.values
        problem = replace(one.fitted.objective.problem, priors=self.by_input)
        equal = {**values, "sigma_u2": np.full(builder.X.shape[1], float(values["sigma_u2"]))}
        each = self._fit(builder, problem, Begin(equal))
        start = apart(each.objective, equal, builder.X, builder.backend)
        if start is not None:
            other = self._fit(builder, problem, Begin(start))
            each = min(each, other, key=lambda fitted: fitted.optimum.value)
        return one._replace(beside=(one._replace(fitted=each),), alike=True)

    def _warped(self, name: str) -> Problem:
        return replace(self.problem, warp=make_warp(name, **self.scale))

    def _fit(self, builder: Builder, problem: Problem, begin: Begin, explore: bool = False) -> Fitted:
        most = self.run.settings.max_iter
        limit = most if begin.limit is None else min(begin.limit, most)
        settings = replace(self.run.settings, explore=explore, parts=begin.parts, max_iter=limit)
        return fit_map(builder, problem, begin.values, replace(self.run, settings=settings), begin.curvature)


def _tails(fitted: Fitted) -> Tails | None:
    """Of an exact fit, by the scores of its rows, each predicted from the others."""
    problem, values = fitted.objective.problem, fitted.values
    observed = problem.observed(values)
    posterior = fitted.objective.likelihood.posterior(problem.kernel_at(values), observed)
    return judged_tails(left_out_exactly(posterior, observed.variances()).scores()).tails
