"""One table fitted as asked: plainly, or with what is left open chosen on held-out rows first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from widegp.approximations.build import Builder
from widegp.choices.chosen import LEAST_ROWS, Chosen, choose_on
from widegp.choices.judged import Judged, shares
from widegp.choices.left_out import left_out_exactly
from widegp.choices.moves import WeighInputs
from widegp.choices.plan import chosen_plan
from widegp.choices.search import Asked, Search, deciding_rows, judged_rows
from widegp.choices.stacking import stacked_share
from widegp.choices.trials import Bench
from widegp.choices.whole import Begin, Whole, fit_whole
from widegp.choices.with_trees import with_trees
from widegp.cost import Calibration, Size
from widegp.data.arrays import is_mapped
from widegp.inference.choose import choose_warp
from widegp.inference.fit import fit_map
from widegp.inference.objective import Problem
from widegp.inference.parameters import Values
from widegp.inference.priors import Prior
from widegp.inference.rounds import Fitted
from widegp.inference.run import Run
from widegp.inference.starts import one_per_input
from widegp.inference.theta import FEW_PARAMETERS, FEW_ROWS
from widegp.inference.watch import InStage
from widegp.noise_model import NoiseModel
from widegp.tails import Tails, judged_tails
from widegp.warps import make_warp

# A rival kernel is fitted to all rows if its share beside the first is at least this, both with one variance
# for all inputs. Even a worthless one gets 1 / (rows held out + 2).
LEAST_SHARE = 0.05


class Estimate(NamedTuple):
    """A fit of a table, maybe with others to average predictions with.

    Fields
    ------
    builder : of the rows of the fit.    maps : from scaled inputs to these rows.
    noise, tails : of noise that varies, and of errors that are not normal; None where there is none.
    notes : what was chosen.
    share : in the average with ``beside``, the other fits.
    alike : whether they are fits of the same rows, which are averaged over the posterior of each, with shares
        by evidence or by losses.
    loss : minus the log densities (h,) of held-out rows, for such shares.
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
    loss: np.ndarray | None = None

    @property
    def kernel_name(self) -> str:
        return self.fitted.objective.problem.kernel.word

    @property
    def words(self) -> str:
        """Kernel and metric, for a reader."""
        each = np.ndim(self.fitted.values["sigma_u2"]) > 0
        return f"{self.kernel_name} with one variance for {'each input' if each else 'all inputs'}"


@dataclass(frozen=True)
class TableFit:
    """What a fit is made of.

    builder : of the scaled rows.    problem : kernel, targets, priors; its warp is still to come.
    by_input : the priors with one sigma_u2 per input.    start : where parameters begin.
    scale : of the targets, as `make_warp` takes it.    run : settings, journal and who is told.
    rival : the same table under another kernel, to average few rows with, or None.
    """

    builder: Builder
    problem: Problem
    by_input: dict[str, Prior]
    start: Values
    scale: dict[str, float]
    run: Run
    rival: TableFit | None = None

    def estimate(self, asked: Asked, averaged: bool = False) -> Estimate:
        """The fit of the whole table, as asked; what is open stays plain where it cannot be tried.

        With ``averaged``, where rows are few, one variance per input comes beside one for all, and the rival
        beside both: whether inputs matter alike, and how smooth the function is, are then as uncertain as
        the parameters. Held-out rows weigh them; of rows too few to hold any out, the evidence.
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
            warp = "none" if asked.warp == "auto" else asked.warp
            return self._by_evidence(warp) if averaged else self._plain(warp)
        start = {**self.start, "sigma_u2": np.asarray(self.start["sigma_u2"].mean())}
        size = Size.of(self.builder.dials, self.builder.X.shape)
        self.run.watch.expect(chosen_plan(size, Calibration(), settings.max_iter))
        run, none = self._choosing(start), np.zeros(0, int)
        tables = {"standard" if asked.inputs == "auto" else asked.inputs: self.builder.X}
        bench = Bench(
            tables, self.problem, replace(self.problem, priors=self.by_input), self.scale,
            none, none, run, self.builder.backend, self.builder.seed,
        )  # fmt: skip
        if averaged and self.builder.X.shape[1] == 1:
            # A single input has no metric: any would be taken or left by rounding.
            asked = asked._replace(metric="iso")
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
            X = self.builder.X if chosen.scaler is None else chosen.scaler.transform(self.builder.X)
            if chosen.trees is not None:
                # All rows get theirs from trees that are grown on more of them.
                X = chosen.trees.training(X, deciding_rows(len(X), self.builder.seed))
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
        """Whether the fit is exact, of few rows, and there is something to average it with."""
        few = len(self.start) <= self.problem.count <= FEW_ROWS and "sigma_u2" in self.start
        return self.builder.approximation.exact and few and (self.rival is not None or self._can_weigh())

    def _can_weigh(self) -> bool:
        """Whether rows are as many as the parameters that the fit would have with one sigma_u2 per input:
        fewer say next to nothing about each of them.
        """
        n_inputs = self.builder.X.shape[1]
        parameters = len(self.start) - 1 + n_inputs
        return n_inputs > 1 and parameters <= min(self.problem.count, FEW_PARAMETERS)

    def _by_evidence(self, warp: str) -> Estimate:
        """Few rows of which none are held out, under all rivals."""
        several = self._by_metric(self._plain(warp))
        if self.rival is not None:
            several += self.rival._by_metric(self.rival._plain(warp))
        return _alike(several)

    def _few(self, chosen: Chosen, tailed: bool) -> Estimate:
        """Few rows with the inputs and the warp that were chosen, under all rivals that held-out rows tell
        anything good of.
        """
        losses = [one.loss for one in chosen.search.by_metric[: 1 + self._can_weigh()]]
        beside = [] if self.rival is None else self.rival._tried_beside(chosen, losses)
        several = self._under(chosen, losses)
        if self.rival is not None and beside:
            several += self.rival._under(chosen, beside)
        if tailed:
            several = [one._replace(tails=_tails(one.fitted)) for one in several]
        return _alike(several)

    def _tried_beside(self, chosen: Chosen, losses: list[np.ndarray]) -> list[np.ndarray]:
        """Losses on the held-out rows that ``chosen`` was found on, with one variance for all inputs and one
        for each; none where the first of them is worth nothing beside the first of ``losses``.
        """
        problem, backend = self.problem, self.builder.backend
        by_input = replace(problem, priors=self.by_input)
        benches = tuple(
            replace(bench, problem=problem, by_input=by_input, backend=backend)
            for bench in chosen.search.benches
        )
        search = Search(benches, chosen.search.tailed)
        form = chosen.search.by_metric[0].trials[0].form
        one = search.begin(form, self.start)
        if stacked_share(losses[0], one.loss) < LEAST_SHARE:
            return []
        each = search.moved(one, WeighInputs()) if len(losses) > 1 else None
        return [one.loss] if each is None else [one.loss, each.loss]

    def _under(self, chosen: Chosen, losses: list[np.ndarray]) -> list[Estimate]:
        """All rows under what was chosen: with one variance for all inputs and, where there are losses of
        both, with one for each.
        """
        X = self.builder.X if chosen.scaler is None else chosen.scaler.transform(self.builder.X)
        builder, form = replace(self.builder, X=X), replace(chosen.trial.form, linear=None)
        psi = {name: value for name, value in chosen.trial.values.items() if name == "psi"}
        fitted = self._fit(builder, self._warped(form.warp), Begin(self.start | psi), explore=True)
        one = Estimate(fitted, builder, chosen.maps(form), notes=(chosen.words,))
        several = self._by_metric(one) if len(losses) > 1 else [one]
        return [one._replace(loss=loss) for one, loss in zip(several, losses, strict=True)]

    def _by_metric(self, one: Estimate) -> list[Estimate]:
        """A fit with one sigma_u2 for all inputs and, where rows are enough, that with one for each."""
        if not self._can_weigh():
            return [one]
        builder, values = one.builder, one.fitted.values
        problem = replace(one.fitted.objective.problem, priors=self.by_input)
        equal = {**values, "sigma_u2": np.full(builder.X.shape[1], float(values["sigma_u2"]))}
        each = self._fit(builder, problem, Begin(equal))
        start = one_per_input(each.objective, equal, builder.X, builder.backend)
        if start is not None:
            other = self._fit(builder, problem, Begin(start))
            each = min(each, other, key=lambda fitted: fitted.optimum.value)
        return [one, one._replace(fitted=each)]

    def _warped(self, name: str) -> Problem:
        return replace(self.problem, warp=make_warp(name, **self.scale))

    def _fit(self, builder: Builder, problem: Problem, begin: Begin, explore: bool = False) -> Fitted:
        most = self.run.settings.max_iter
        limit = most if begin.limit is None else min(begin.limit, most)
        settings = replace(self.run.settings, explore=explore, parts=begin.parts, max_iter=limit)
        return fit_map(builder, problem, begin.values, replace(self.run, settings=settings), begin.curvature)


def _alike(several: list[Estimate]) -> Estimate:
    """The first of several fits of the same rows, with the others beside it."""
    first, *others = several
    return first._replace(beside=tuple(others), alike=True)


def _tails(fitted: Fitted) -> Tails | None:
    """Of an exact fit, by the scores of its rows, each predicted from the others."""
    problem, values = fitted.objective.problem, fitted.values
    observed = problem.observed(values)
    posterior = fitted.objective.likelihood.posterior(problem.kernel_at(values), observed)
    return judged_tails(left_out_exactly(posterior, observed.variances()).scores()).tails
