"""The whole table under what was chosen on a part of it; then metric and noise again, from all its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from widegp.approximations.build import Builder
from widegp.choices.chosen import Chosen
from widegp.choices.gradients import mean_gradients
from widegp.choices.judged import LEAST_SHARE, Judged, averaged, best_shares, together
from widegp.choices.left_out import NEIGHBORS, left_out
from widegp.choices.metric import gradient_moment, learned_map
from widegp.choices.search import CERTAIN, POWERS, STRENGTHS, ChangeVerdict, deciding_rows
from widegp.choices.trials import Form, Trial
from widegp.conditioning import TrainingRows
from widegp.inference.objective import Problem
from widegp.inference.parameters import Values
from widegp.inference.result import Reason
from widegp.inference.rounds import Fitted
from widegp.noise_model import LeftOut, NoiseModel, fit_noise, likeliest_factor
from widegp.tails import NORMAL
from widegp.trees import TreesInput

# Rows whose gradients make the metric, and rows left out to learn the noise from.
GRADIENT_ROWS, LEFT_OUT_ROWS = 4000, 2000
# A table so many times as large as the part that chose is worth learning from again.
WORTHWHILE = 1.5

# Iterations of fits that are compared; the one that is kept then goes on until it has converged.
TRIED = 12
# It goes back to where it was compared if left-out rows have lost more nats a row by going on.
MOST_LOST = 0.01
# A metric that gained fewer nats a row than this on a part of the rows is compared with none on all of them.
LITTLE = 0.1
# Iterations with one variance per input on all rows, where their folds did not choose it.
BY_INPUT = 60
# Tails are widened if `Chosen.optimism` is at least this.
WIDER = 1.01
# If the judging rows are a smaller share of all, trees are not grown again with them.
FEW_UNSEEN = 0.05
STOPPED = "Further iterations would predict left-out rows worse; the fit is left where it was."


class Begin(NamedTuple):
    """Where a fit begins: ``values`` and the ``curvature`` there, None if unknown. ``parts`` : whether parts
    of the table are fitted first. ``limit`` : iterations at most; None leaves them to the settings.
    """

    values: Values
    curvature: np.ndarray | None = None
    parts: bool = False
    limit: int | None = None

    @classmethod
    def at(cls, stage: WholeFit, limit: int | None = None) -> Self:
        """The optimum of another fit."""
        return cls(stage.fitted.values, stage.fitted.optimum.curvature, False, limit)


Fit = Callable[[Builder, Problem, Begin], Fitted]


@dataclass(frozen=True)
class WholeFit:
    """A fit of the ``whole`` table under a form."""

    whole: Whole
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

    def ended_by(self, reason: Reason) -> Self:
        """The same fit, said to have ended for another reason."""
        optimum = replace(self.fitted.optimum, reason=reason)
        return replace(self, fitted=replace(self.fitted, optimum=optimum))

    def moment(self, chosen: np.ndarray) -> np.ndarray:
        """M (I, I) of the gradients at the rows ``chosen``, by the inputs as scaled."""
        posterior, rows = self._given
        return gradient_moment(mean_gradients(posterior, self.X[chosen], rows), self.form.linear)

    def left_out(self, chosen: np.ndarray) -> LeftOut:
        """The rows ``chosen``, predicted from the others."""
        posterior, rows = self._given
        observed = self.fitted.objective.problem.observed(self.fitted.values)
        return left_out(posterior, rows, self.X, observed, chosen)


@dataclass(frozen=True)
class Whole:
    """All rows of a table, and how they are fitted.

    X : (n, I) as scaled, trees included.    chosen : on a part of these rows.
    judged : the rows, sorted, by which fits are judged.
    problem, scale : kernel, targets, priors and warp; of the targets, as `make_warp` takes it.
    build, fit : make a builder of rows, and fit it.
    varying : whether the noise may vary though the part did not show it.
    part_of : the table that these rows are a part of, if any.
    """

    X: np.ndarray
    chosen: Chosen
    judged: np.ndarray
    problem: Problem
    scale: dict[str, float]
    build: Callable[[np.ndarray], Builder]
    fit: Fit
    seed: int
    varying: bool = False
    part_of: Whole | None = None

    @property
    def large(self) -> bool:
        """Whether there is more to learn from all rows than from those that chose."""
        return len(self.X) >= WORTHWHILE * len(self.chosen.trial.X)

    def part(self) -> Whole:
        """Rows at random that decide for the whole table; all of them where they are not many."""
        rows = deciding_rows(len(self.X), self.seed)
        if len(rows) == len(self.X):
            return self
        judged, problem = np.searchsorted(rows, self.judged), self.problem.restricted(rows)
        return replace(self, X=self.X[rows], judged=judged, problem=problem, part_of=self)

    def with_trees(self, trees: TreesInput) -> Whole:
        """The same rows with what other trees say beside their inputs."""
        X = trees.training(trees.inverse(self.X))
        return replace(self, X=X, chosen=replace(self.chosen, trees=trees))

    @property
    def begin(self) -> Begin:
        """Where the first fit begins."""
        trial = self.chosen.trial
        return Begin(trial.values, None, True, TRIED) if self.large else Begin(trial.values, trial.curvature)

    @property
    def words(self) -> str:
        return "the first fit" if self.chosen.trees is None else "trees beside the inputs"

    def fitted(self, form: Form, begin: Begin) -> WholeFit:
        """The table under a form."""
        X = self.X if form.linear is None else self.X @ form.linear
        problem = replace(self.problem, spread=None if form.noise is None else form.noise.spread(X))
        builder = self.build(X)
        return WholeFit(self, form, builder, self.fit(builder, problem, begin))

    def with_metric(self, stage: WholeFit, power: float) -> Form:
        """The metric of the gradients at rows of the whole table, in place of that of a part."""
        some = np.random.default_rng(self.seed).permutation(len(self.X))[:GRADIENT_ROWS]
        return stage.form.under(learned_map(stage.moment(some), self.X[some], power))

    def by_input(self) -> Trial | None:
        """One sigma_u2 per input from all rows, where these are few enough for exact fits and folds of them
        showed no metric: the likeliest metric of fewer rows may be another one, with more of the target put
        down to noise.
        """
        chosen, bench, form = self.chosen, self.chosen.search.benches[0], self.chosen.trial.form
        open_to_it = len(chosen.search.by_metric) > 1 and chosen.trees is None and form.linear is None
        if not open_to_it or len(self.X) > bench.most_rows:
            return None
        bench = replace(bench, fitted=np.arange(len(self.X)), held=np.zeros(0, int))
        form = replace(form, noise=None)
        return bench.by_inputs(form, replace(chosen.trial, form=form), BY_INPUT)

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows to learn the noise from, and rows to judge by."""
        others = np.setdiff1d(np.arange(len(self.X)), self.judged)
        return np.random.default_rng(self.seed).permutation(others)[:LEFT_OUT_ROWS], self.judged

    def with_noise(self, made: Judged) -> Form:
        """The noise that left-out rows of the whole table tell of; the form itself where it is constant."""
        form = made.stage.form
        if form.noise is None and not self.varying:
            return form
        noise = self._noise(made)
        return form if noise is form.noise else replace(form, noise=noise)

    def _noise(self, made: Judged) -> NoiseModel | None:
        """The noise learned from some left-out rows. If a part of the table had none, it is taken only where
        the residuals of the judging rows are likelier under it for certain.
        """
        stage, form, (some, others) = made.stage, made.stage.form, self.rows
        left_out = stage.left_out(some)
        found = fit_noise(stage.X[some], left_out)
        if form.noise is not None or found is None:
            return found and found.with_strength(form.noise.strength if form.noise else 1.0)
        judged, most, best = made.left_out, 0.0, None
        for model in map(found.with_strength, STRENGTHS):
            factor = likeliest_factor(left_out, model.spread(stage.X[some]))
            gain = judged.scaled(factor * model.spread(stage.X[others])).log_density() - judged.log_density()
            certain = float(gain.mean() - CERTAIN * gain.std() / np.sqrt(len(gain)))
            if certain > most:
                most, best = certain, model
        return best


def fit_whole(rivals: Sequence[Whole]) -> list[Judged]:
    """What was chosen, fitted to all rows; metric, then noise, learned again from them.

    ``rivals`` differ in their inputs. The first fit returned is the one that predicts left-out rows best,
    with notes on all that was tried; others follow where their average with it, by `shares`, is better still.
    """
    made = [_of_all_rows(one) for one in _decided([rival.part() for rival in rivals])]
    best, *others = together(made) if len(made) > 1 else [_by_more_rows(made[0])]
    noted = best if best.tails is None or others else best.with_note(best.tails.words)
    return [_with_strays(_grown_on_all(one)) for one in (noted, *others)]


def _with_strays(judged: Judged) -> Judged:
    """The same with room for rows unlike any of those that judged it, where tails are open."""
    if not judged.stage.whole.varying:
        return judged
    return replace(judged, tails=(judged.tails or NORMAL).with_strays(len(judged.residual)))


def _of_all_rows(judged: Judged) -> Judged:
    """The same fitted to the whole table and judged again, where a part of its rows decided.

    Trees are grown on all rows but those that judge.
    """
    stage, whole = judged.stage, judged.stage.whole.part_of
    if whole is None:
        return judged
    if whole.chosen.grown_trees is not None:
        whole = whole.with_trees(whole.chosen.grown_trees.without_judged_rows)
    # A fit that got worse by going on keeps its parameters; one judged early gets TRIED more iterations.
    limit = {Reason.JUDGED: 0, Reason.MAX_ITER: TRIED}.get(stage.fitted.optimum.reason)
    stage = whole.fitted(stage.form, Begin.at(stage, limit))
    stage = stage.ended_by(Reason.JUDGED) if limit == 0 else stage
    ended = Judged.of(stage, judged.words, whole.judged, whole.varying)
    return replace(ended, notes=judged.notes)


def _grown_on_all(judged: Judged) -> Judged:
    """The same parameters with trees that were grown also on the rows that judged, unless these are few.

    Rows cannot judge trees that have seen them: verdict, share and tails remain.
    """
    stage, whole = judged.stage, judged.stage.whole
    if whole.chosen.grown_trees is None or len(whole.judged) < FEW_UNSEEN * len(whole.X):
        return judged
    whole = whole.with_trees(whole.chosen.grown_trees.of_all)
    conditioned = whole.fitted(stage.form, Begin.at(stage, limit=0))
    return replace(judged, stage=conditioned.ended_by(stage.fitted.optimum.reason))


def _by_more_rows(judged: Judged) -> Judged:
    """A fit without trees judged by more rows, where few have judged it: any row may, and tails need many.

    Its parameters have seen these rows, so that errors of new ones are wider (`Chosen.optimism`): its tails
    are widened by as much.
    """
    whole = judged.stage.whole
    if whole.chosen.trees is not None or len(whole.judged) >= LEFT_OUT_ROWS:
        return judged
    rows = np.random.default_rng(whole.seed).permutation(len(whole.X))[:LEFT_OUT_ROWS]
    found = replace(Judged.of(judged.stage, judged.words, rows, whole.varying), notes=judged.notes)
    wider = whole.chosen.optimism(len(whole.X)) if whole.varying else 1.0
    return found if wider < WIDER else replace(found, tails=(found.tails or NORMAL).widened(wider))


def _decided(rivals: Sequence[Whole]) -> list[Judged]:
    """The same for the rows of ``rivals`` alone."""
    made: list[Judged] = []
    verdicts: list[ChangeVerdict] = []

    def tried(whole: Whole, form: Form, begin: Begin, words: str, must_be_sure: bool = False) -> None:
        stage = whole.fitted(form, begin)
        made.append(replace(Judged.of(stage, words, whole.judged, whole.varying), must_be_sure=must_be_sure))
        if len(made) > 1:
            verdicts.append(made[-1].beside(_best(made[:-1])))

    for whole in rivals:
        trees = whole.chosen.trees is not None
        tried(whole, whole.chosen.trial.form, whole.begin, whole.words, must_be_sure=trees)
        if (weighed := whole.by_input()) is not None:
            begin, words = Begin(weighed.values, weighed.curvature), "one variance per input at all rows"
            tried(whole, weighed.form, begin, words, must_be_sure=True)
    if not rivals[0].large:
        return averaged(_best(made), made, verdicts)
    best = _best(made)
    whole, chosen, form = best.stage.whole, best.stage.whole.chosen, best.stage.form
    if chosen.trees is None and form.linear is not None and chosen.search.metric_gain < LITTLE:
        tried(whole, form.under(None), Begin.at(best.stage, TRIED), "one variance for all at all rows")
        best = _best(made)
    for power in POWERS if chosen.power is not None or chosen.by_input else ():
        if power > POWERS[0] and _best(made).stage.form.linear is None:
            break  # Neither the metric of a part nor a mild one of all rows is better than none.
        words, begin = f"metric of gradients^{2 * power:g} at all rows", Begin.at(best.stage, TRIED)
        tried(whole, whole.with_metric(best.stage, power), begin, words, must_be_sure=power > POWERS[0])
    for one in _worth_noise(made):
        form = one.stage.whole.with_noise(one)
        if form is not one.stage.form:
            words = (
                "noise of all rows" if one.trees_beside == best.trees_beside else f"{one.words}, noise of all"
            )
            tried(one.stage.whole, form, Begin.at(one.stage, TRIED), words)
    best = _best(made)
    ended = _ended(best)
    return averaged(ended, [ended, *(other for other in made if other is not best)], verdicts)


def _worth_noise(made: list[Judged]) -> list[Judged]:
    """The fits whose noise is learned again from all rows: the best; and the best of the other kind, with
    trees or without, if its noise is constant so far and it is worth a share in their average.
    """
    best = _best(made)
    unlike = [one for one in made if one.trees_beside != best.trees_beside]
    if not unlike:
        return [best]
    other = _best(unlike)
    worth = other.stage.form.noise is None and best_shares([best, other])[1] >= LEAST_SHARE
    return [best, other] if worth else [best]


def _ended(best: Judged) -> Judged:
    """A fit that was cut short goes on to its end, and is judged again where it then is.

    It may end far from where it was judged, on diamonds at a bound.
    """
    if best.stage.fitted.optimum.reason is not Reason.MAX_ITER:
        return best
    whole = best.stage.whole
    stage = whole.fitted(best.stage.form, Begin.at(best.stage))
    ended = Judged.of(stage, best.words, whole.judged, whole.varying)
    if ended.score > best.score - MOST_LOST:
        return ended
    return replace(best, stage=best.stage.ended_by(Reason.JUDGED)).with_note(STOPPED)


def _best(made: list[Judged]) -> Judged:
    """The best fit; a later one must be better at no loss of squares."""
    best = made[0]
    for other in made[1:]:
        best = other if other.beside(best).kept else best
    return best
