"""From what is asked to what is chosen: benches cut from a table, the search, and the model it ends with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.choices.moves import LearnMetric, WarpTarget, WeighInputs
from widegp.choices.search import (
    Asked,
    Candidate,
    ChangeVerdict,
    Search,
    choose,
    judged_rows,
    replayed,
    splits,
)
from widegp.choices.trials import Bench, Form, Trial
from widegp.data.input_maps import LinearMap, QuantileScaler
from widegp.inference.choose import choose_warp
from widegp.inference.parameters import Values
from widegp.tails import NORMAL, judged_tails
from widegp.trees import TreesInput

# Fewer rows cannot tell models apart.
LEAST_ROWS = 40
# Nats that a step of a trial on a part of a large table must gain: the models it compares differ by tens.
TRIAL_GAIN = 0.1


@dataclass(frozen=True, eq=False)
class GrownTrees:
    """Trees for the rows X (n, I) of a whole table, each grown once; ``target`` (n, J): what each of them
    predicts.
    """

    X: np.ndarray
    target: np.ndarray
    seed: int

    def on(self, rows: np.ndarray, counts: list[int] | None = None) -> TreesInput:
        """Trees that the ``rows`` have grown."""
        weight = np.zeros(len(self.X))
        weight[rows] = 1.0
        return TreesInput.fit(self.X, self.target, self.seed, weight=weight, counts=counts)

    @cached_property
    def of_all(self) -> TreesInput:
        """Trees of all rows, as many as ``without_judged_rows`` has if those were grown before."""
        before = vars(self).get("without_judged_rows")
        return self.on(np.arange(len(self.X)), None if before is None else before.counts)

    @cached_property
    def without_judged_rows(self) -> TreesInput:
        """Trees of all rows but those that fits are judged by."""
        return self.on(np.setdiff1d(np.arange(len(self.X)), judged_rows(len(self.X), self.seed)))


@dataclass(frozen=True)
class Chosen:
    """The model that predicted held-out rows best.

    trial : it, fitted to a part of the rows, or to all of a small table.
    candidate : the moves that led to it.    verdicts : on all that was tried, in order.
    scaler : of inputs by rank, where these were chosen.    trees : the inputs that boosted trees add, if any.
    grown_trees : grows them again on more rows.
    search : in which it was found.
    """

    trial: Trial
    candidate: Candidate
    verdicts: tuple[ChangeVerdict, ...]
    scaler: QuantileScaler | None
    search: Search
    trees: TreesInput | None = None
    grown_trees: GrownTrees | None = None

    @property
    def power(self) -> float | None:
        """Of the learned metric's last round; None where there is none."""
        powers = [move.power for move in self.candidate.moves if isinstance(move, LearnMetric)]
        return powers[-1] if powers else None

    @property
    def by_input(self) -> bool:
        """Whether there is one sigma_u2 per input, and no metric learned from that."""
        return self.power is None and any(isinstance(move, WeighInputs) for move in self.candidate.moves)

    def optimism(self, n_rows: int) -> float:
        """c >= 1: errors of new rows are c times as wide as those of the ``n_rows`` rows of a fit, each
        predicted from the others, for these have told its parameters and its metric.

        The trials tell it, by rows held out and their own rows. c - 1 falls with 1 / rows.
        """
        trials = self.candidate.trials
        own = np.concatenate([trial.left_out.scores() for trial in trials])
        held = np.concatenate([trial.scores for trial in trials])
        wider = (judged_tails(own).tails or NORMAL).widening(held[np.isfinite(held)])
        return 1 + (wider - 1) * min(1.0, len(trials[0].X) / n_rows)

    def maps(self, form: Form) -> tuple[Any, ...]:
        """What follows the scaling of the table: scores of ranks, trees, the linear map of ``form``."""
        linear = None if form.linear is None else LinearMap(form.linear)
        return tuple(part for part in (self.scaler, self.trees, linear) if part is not None)

    @property
    def words(self) -> str:
        """One line: what was chosen, and by how much it was better."""
        kept = [str(verdict) for verdict in self.verdicts if verdict.kept]
        if not kept:
            return "The plain model was kept: nothing that was tried predicted held-out training rows better."
        return f"Chosen on held-out training rows: {'; '.join(kept)}."


def choose_on(
    bench: Bench, start: Values, asked: Asked, form: Form | None = None, again: bool = True
) -> Chosen:  # fmt: skip
    """Choices for the rows of ``bench``, one table of inputs, by fits of a part that are scored on others.

    They begin with ``form``, by default the plain one. With ``again``, what was chosen on folds of a small
    table is fitted to all its rows.
    """
    ((inputs, X),) = bench.tables.items()
    scaler = None
    if asked.inputs == "auto":
        scaler = QuantileScaler.fit(X)
        bench = replace(bench, tables={**bench.tables, "quantile": scaler.transform(X)})
    pairs = splits(len(X), bench.seed)
    if len(pairs) == 1:
        settings = replace(bench.run.settings, gain=TRIAL_GAIN, exact=False)
        bench = replace(bench, run=replace(bench.run, settings=settings))
    benches = tuple(replace(bench, fitted=fitted, held=held) for fitted, held in pairs)
    search = Search(benches, asked.noise == "auto")
    first = search.benches[0]

    def likeliest(trial: Trial) -> WarpTarget | None:
        rows = first.rows(trial.form, first.fitted)
        builder = Builder(rows, Dials("exact", 1, 0, "kmeans", "random", None), bench.backend, bench.seed)
        problem = first.problem.restricted(first.fitted)
        name, psi = choose_warp(asked.warp, problem, builder, trial.values, bench.scale, bench.run)
        return None if name == "none" else WarpTarget(name, tuple(map(float, psi)))

    best = choose(search, search.begin(form or Form(inputs), start), asked, likeliest)
    trial = best.trials[0]
    if len(pairs) > 1 and again:
        some = np.random.default_rng(bench.seed).permutation(len(X))[: bench.most_rows]
        trial = replayed(replace(bench, fitted=some, held=some[:0]), best)
    by_rank = trial.form.inputs == "quantile" and inputs != "quantile"
    scaler = scaler if by_rank else None
    return Chosen(trial, best, tuple(search.verdicts), scaler, search)
