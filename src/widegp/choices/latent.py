"""Inputs and metric under a likelihood that is not Gaussian, chosen on held-out training rows.

Trying forms by Laplace's approximation would take ten times as long as by regression. So the first choice
is made as for a real target, by Gaussian regression of the pseudo-targets z = f + d1 / W with which Newton's
method begins: of a class they are two numbers, of a count about its logarithm. The process is then fitted to
a part of the rows. On a larger one, at the same parameters, the other scaling of the inputs and the metric
of the gradients of E[f | y] are kept if rows that were held out are likelier under them, by their own
likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from widegp.approximations.build import Builder
from widegp.choices.chosen import choose_on
from widegp.choices.judged import LEAST_SHARE
from widegp.choices.metric import beside_trees, learned_map
from widegp.choices.search import POWERS, Asked
from widegp.choices.settled import Sampled, Settled, moments_at
from widegp.choices.shuffled import Part, ShuffledRows
from widegp.choices.trials import Bench, Form
from widegp.choices.whole import GRADIENT_ROWS
from widegp.data.input_maps import LinearMap, QuantileScaler
from widegp.inference.fit import fit_map
from widegp.inference.latent import LatentProblem
from widegp.inference.objective import Problem
from widegp.inference.optimizers import curvature_at
from widegp.inference.parameters import Values
from widegp.inference.priors import Prior
from widegp.inference.rounds import Fitted
from widegp.inference.run import Run
from widegp.inference.watch import InStage
from widegp.prediction import Moments, pooled
from widegp.trees import TreesInput, too_few_kinds
from widegp.warps import make_warp

# Fewer rows of classes or counts cannot tell metrics apart.
LEAST_ROWS = 500
# Rows, at most, that parameters are first estimated from: all rows then take a few steps.
PART_ROWS = 4000
# Rows on which metrics are compared, and held-out rows that are predicted from them.
SAMPLE_ROWS, HELD_ROWS = 8000, 6000
# Rows outside the sample, at most, that weigh two functions.
WEIGHING_ROWS = 20_000
# Rounds of learning the metric, parameters estimated between them.
ROUNDS = 2
# The same where trees come beside inputs whose metric was learned so.
FURTHER_ROUNDS = 1
# Tolerance of the mode of f where forms are compared: the mode is then off by about a hundredth of its sd.
NEARLY = 1e-2
# Nats per row, and in all at least, that a step must gain: an evaluation costs a dozen Gaussian ones.
GAIN_PER_ROW, LEAST_GAIN = 5e-4, 1e-2
# Prior sd of the logarithm of the sum of the weights of two functions.
SUM_SD = 0.1
# Noise of the pseudo-targets where the regression of them begins, as a share of their variance.
NOISE = 0.3


class LatentEstimate(NamedTuple):
    """A fit under a likelihood that is not Gaussian.

    builder : of its rows.    maps : from scaled inputs to these rows.    notes : what was chosen.
    weight : of its function in a sum of several.    beside : the other fits in that sum.
    """

    fitted: Fitted
    builder: Builder
    maps: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    weight: float = 1.0
    beside: tuple[LatentEstimate, ...] = ()

    def after(self, first: Any) -> LatentEstimate:
        """The same, where ``first`` maps the scaled inputs before all else does."""
        beside = tuple(one.after(first) for one in self.beside)
        return self._replace(maps=(first, *self.maps), beside=beside)


@dataclass(frozen=True)
class Path:
    """A form of all rows, its fit to a part of them, and what a larger one says of held-out rows.

    trees : beside its inputs, if any.    weight : of its function in a sum with another's.
    """

    tables: dict[str, np.ndarray]
    form: Form
    first: Fitted
    held: Sampled
    trees: TreesInput | None = None
    weight: float = 1.0

    @property
    def X(self) -> np.ndarray:
        """All rows as the kernel of the form sees them."""
        return _mapped(self.tables, self.form)

    def moments(self, rows: np.ndarray) -> Moments:
        """Of f at some rows, given the sample, (k, functions)."""
        return moments_at(self.held.builder, self.held.settled, self.X[rows])

    @property
    def words(self) -> str:
        names = {"quantile": "inputs by rank", "standard": "inputs standardised"}
        inputs = names.get(self.form.inputs, self.form.inputs)
        metric = "one variance for all directions" if self.form.linear is None else "a learned metric"
        return f"{inputs}, {metric}{'' if self.trees is None else ', trees beside the inputs'}"


@dataclass(frozen=True)
class LatentFit:
    """What a fit is made of.

    builder : of the scaled rows.    problem : kernel, responses, priors.    start : where parameters begin.
    by_input : the priors with one sigma_u2 per input.
    """

    builder: Builder
    problem: LatentProblem
    by_input: dict[str, Prior]
    start: Values
    run: Run

    def plain(self) -> LatentEstimate:
        """The kernel as it is, on inputs as they are scaled."""
        return LatentEstimate(self._fit(self.builder, self.problem), self.builder)

    def chosen(self, asked: Asked) -> LatentEstimate:
        """Inputs and metric as asked, ``"auto"`` by what predicts held-out rows better."""
        chosen = choose_on(self._bench(asked.inputs), self._regression_start(), asked, again=False)
        tables, scaler = {chosen.trial.form.inputs: self.builder.X}, None
        if asked.inputs == "auto":
            scaler = QuantileScaler.fit(self._written_out)
            tables = {"standard": self.builder.X, "quantile": scaler.transform(self.builder.X)}
        learned = chosen.power is not None or chosen.by_input
        first = self._path(tables, chosen.trial.form, learned)
        best, *others = self._with_trees(first) if asked.trees == "auto" else [first]
        words = f"Chosen on held-out training rows: {best.words}."
        if others:
            told = " + ".join(f"{one.weight:.2f} x ({one.words})" for one in (best, *others))
            words = f"Functions of two fits are added up, weighed by held-out training rows: {told}."
        beside = tuple(self._of_all_rows(one, scaler, conditioned=True) for one in others)
        return self._of_all_rows(best, scaler)._replace(notes=(words,), beside=beside)

    def _of_all_rows(
        self, path: Path, scaler: QuantileScaler | None, conditioned: bool = False
    ) -> LatentEstimate:
        """The fit of a path to all rows; with ``conditioned`` its parameters stay those of a part, and the
        rows are left to `latent_models`, which finds the mode of all of them.
        """
        builder = replace(self.builder, X=path.X)
        if conditioned:
            objective: Any = path.first.objective
            objective = replace(objective, problem=self.problem)
            fitted = replace(path.first, objective=objective)
        else:
            fitted = self._fit(builder, self.problem, path.first)
        linear = None if path.form.linear is None else LinearMap(path.form.linear)
        parts = scaler if path.form.inputs == "quantile" else None, path.trees, linear
        maps = tuple(part for part in parts if part is not None)
        return LatentEstimate(fitted, builder, maps, weight=path.weight)

    def _path(self, tables: Tables, form: Form, learned: bool, before: Path | None = None) -> Path:
        """Parameters from a part of the rows, inputs and metric again from a larger one, and so on; from
        where the path ``before`` ended, or from several starts.
        """
        last, near = (None, None) if before is None else (before.first, before.held.settled.mode.f)
        first = self._of_part(tables, form, last)
        for _ in range(ROUNDS if before is None else FURTHER_ROUNDS):
            found = self._refined(tables, form, first.values, learned, near)
            if found.form is form:
                break
            form, near = found.form, found.settled.mode.f
            first = self._of_part(tables, form, first)
        return Path(tables, form, first, found)

    @cached_property
    def _shuffled(self) -> ShuffledRows:
        """The first of the rows that it deals estimate parameters, the last are held out."""
        return ShuffledRows(self.problem.weight, self.builder.seed)

    @cached_property
    def _held(self) -> Part:
        return self._shuffled.part(slice(-_held_count(len(self._shuffled)), None))

    @cached_property
    def _sample(self) -> Part:
        return self._shuffled.part(slice(_sample_count(len(self._shuffled))))

    @cached_property
    def _weighing(self) -> Part:
        """Rows outside the sample, those held out among them or all."""
        first = max(_sample_count(len(self._shuffled)), len(self._shuffled) - WEIGHING_ROWS)
        return self._shuffled.part(slice(first, None))

    def _with_trees(self, path: Path) -> list[Path]:
        """A path and the one that begins where it ended, with trees beside its inputs, as far as each has a
        share in their sum; the larger first.

        Trees are judged after growing on the sample, which the other path has seen too; then others are grown
        on all rows. They are not tried where f is not one number, offsets differ, or different rows are few.
        """
        response, X = self.problem.response, path.tables[path.form.inputs]
        if self.problem.functions > 1 or np.ptp(response.offset) > 0 or too_few_kinds(X):
            return [path]
        trees = self._trees(X, self._sample)
        form = replace(path.form, linear=beside_trees(path.form.linear, X, trees.columns))
        beside = self._path({form.inputs: trees.training(X)}, form, True, path)
        own, other = self._weights(path, beside)
        share = other / (own + other)
        if share < LEAST_SHARE:
            return [path]
        trees = self._trees(X, self._shuffled.whole)
        beside = replace(beside, tables={form.inputs: trees.training(X)}, trees=trees)
        if share > 1 - LEAST_SHARE:
            return [beside]
        return sorted([replace(path, weight=own), replace(beside, weight=other)], key=lambda one: -one.weight)

    def _weights(self, one: Path, other: Path) -> tuple[float, float]:
        """a, b under which rows outside the sample are likeliest given f = a f_1 + b f_2, the functions of
        both there; parameters of the likelihood are those of the better.

        Their sum t need not be 1: the average of two functions that are each right about their errors has
        errors smaller than it says. Priors keep few rows near that average: log t ~ N(0, SUM_SD^2) and
        a / t ~ Beta(2, 2).
        """
        rows = self._weighing
        better = max((one, other), key=lambda path: self._held.mean(path.held.log_score))
        each = [path.moments(rows.rows) for path in (one, other)]

        def weights(x: np.ndarray) -> np.ndarray:
            return np.exp(x[0]) * np.array([expit(-x[1]), expit(x[1])])

        def loss(x: np.ndarray) -> float:
            both = pooled(each, weights(x))
            score = rows.weight @ self.problem.log_score(better.first.values, rows.rows, *both)
            prior = log_expit(x[1]) + log_expit(-x[1]) - 0.5 * (x[0] / SUM_SD) ** 2
            return -float(score + prior) / float(rows.weight.sum())

        own, beside = weights(minimize(loss, np.zeros(2), method="BFGS").x)
        return float(own), float(beside)

    def _trees(self, X: np.ndarray, part: Part) -> TreesInput:
        """Trees that some rows of X (n, I) have grown by their responses."""
        response, weight = self.problem.response, np.zeros(len(X))
        weight[part.rows] = part.weight
        return TreesInput.fit(X, response.y, self.builder.seed, response.likelihood.trees_loss, weight)

    def _of_part(self, tables: Tables, form: Form, near: Fitted | None) -> Fitted:
        """The fit of some rows, from that of a like form if there is one."""
        part = self._shuffled.part(slice(PART_ROWS))
        builder = replace(self.builder, X=_mapped(tables, form)[part.rows])
        return self._fit(builder, self.problem.restricted(*part), near)

    def _refined(
        self, tables: Tables, form: Form, values: Values, learned: bool, near: np.ndarray | None
    ) -> Sampled:
        """The form, the other scaling of inputs, and the metric of the better one learned again, on a sample
        of the rows: the one under which others are likeliest. ``near`` is f of the sample under a like form.
        """
        best = self._sampled(tables, form, values, near)
        for inputs in tables.keys() - {form.inputs}:
            other = replace(form, inputs=inputs)
            best = self._better(best, self._sampled(tables, other, values, best.settled.mode.f))
        if learned:
            X = tables[best.form.inputs][self._sample.rows[:GRADIENT_ROWS]]
            moment = best.moment(GRADIENT_ROWS)
            for power in POWERS:
                again = replace(best.form, linear=learned_map(moment, X, power))
                best = self._better(best, self._sampled(tables, again, values, best.settled.mode.f))
        return best

    def _better(self, one: Sampled, other: Sampled) -> Sampled:
        return other if self._held.mean(other.log_score - one.log_score) > 0 else one

    def _sampled(self, tables: Tables, form: Form, values: Values, near: np.ndarray | None) -> Sampled:
        X, sample, held = _mapped(tables, form), self._sample, self._held
        builder = replace(self.builder, X=np.ascontiguousarray(X[sample.rows]))
        settled = Settled.at(builder, self.problem.restricted(*sample), values, near, NEARLY)
        moments = moments_at(builder, settled, X[held.rows])
        return Sampled(form, builder, settled, self.problem.log_score(values, held.rows, *moments))

    def _fit(self, builder: Builder, problem: Any, near: Fitted | None = None) -> Fitted:
        """The fit of the builder's rows from one nearby, whose curvature and kind of anchors serve it too, or
        from several starts.
        """
        gain = max(LEAST_GAIN, GAIN_PER_ROW * len(builder.X))
        run = replace(self.run, settings=replace(self.run.settings, explore=near is None, gain=gain))
        with builder.backend.scope():
            if near is None:
                return fit_map(builder, problem, self.start, run)
            return fit_map(builder, problem, near.values, run, _curvature(near), near.layout.metric)

    @property
    def _written_out(self) -> np.ndarray:
        """The scaled rows, those that were seen more than once that often."""
        return np.ascontiguousarray(self.builder.X[self._shuffled.written_out])

    def _bench(self, inputs: str) -> Bench:
        """Of the regression of pseudo-targets, standardised."""
        self.run.watch.begin("choices", self.start)
        run = Run(self.run.settings, InStage(whole=self.run.watch))
        z = self.problem.response_at(self.start).pseudo_targets()[self._shuffled.written_out]
        scale = {"offset": float(z.mean()), "scale": float(z.std())}
        target = (z - scale["offset"]) / scale["scale"]
        problem = Problem(self.problem.kernel, target, make_warp("none", **scale), self.problem.priors)
        none = np.zeros(0, int)
        return Bench(
            {"standard" if inputs == "auto" else inputs: self._written_out}, problem,
            replace(problem, priors=self.by_input), scale, none, none, run, self.builder.backend,
            self.builder.seed,
        )  # fmt: skip

    def _regression_start(self) -> Values:
        own = {name: value for name, value in self.start.items() if name != "psi"}
        return {**own, "sigma_eps2": np.asarray(NOISE)}


Tables = dict[str, np.ndarray]


def _mapped(tables: Tables, form: Form) -> np.ndarray:
    """All rows as the kernel of a form sees them."""
    X = tables[form.inputs]
    return X if form.linear is None else X @ form.linear


def _held_count(n_rows: int) -> int:
    return min(HELD_ROWS, n_rows // 5)


def _sample_count(n_rows: int) -> int:
    return min(SAMPLE_ROWS, n_rows - _held_count(n_rows))


def _curvature(fitted: Fitted) -> np.ndarray | None:
    """The Hessian per row where a fit ended: with it few evaluations of more rows are needed."""
    objective, optimum = fitted.objective, fitted.optimum
    if optimum.curvature is not None or optimum.gradient is None:
        return optimum.curvature
    with objective.likelihood.backend.scope():
        return curvature_at(objective, optimum.z, optimum.gradient, objective.n_rows)
