"""Choices left to the program, made on held-out training rows.

Beginning with the plain model (standardised inputs, one variance for all directions, one noise), each choice
in turn is tried on a part of the rows and kept if it predicts the others better: by the mean log density of
their targets, by more than twice the standard error of the paired difference, and at no loss of squared
error. The evidence would not do: it rises where a learned metric overfits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from widegp.choices.moves import LearnMetric, Move, Scale, VaryNoise, WarpTarget, WeighInputs
from widegp.choices.trials import Bench, Form, Trial
from widegp.cost import START_ROWS
from widegp.inference.parameters import Values
from widegp.tails import judged_tails

# Standard errors by which a change must be better.
CERTAIN = 2.0
# The share that any change may add to the root mean square error.
LARGEST_LOSS = 0.01
# A change that gains more may add so much of its gain in log score.
LOSS_PER_GAIN = 0.15
# No gain pays for more than this share: where targets repeat, a warp that gathers density there gains many
# nats and predicts no better.
MOST_LOSS = 0.05
# Upper quartile of the normal distribution.
QUARTILE = 0.6744897501960817
# How far from 1/2 the coverage of intervals of level 1/2 may be.
NEAR_HALF = 0.06
# Powers of a learned metric that are tried.
POWERS = (0.25, 0.5)
# Rounds of a learned metric after the first.
ROUNDS = 3
# Strengths of varying noise that are tried.
STRENGTHS = (0.5, 1.0)
# Rows fitted and rows held out of a large table.
FIT_ROWS, HELD_ROWS = 1000, 2500
# Tables of fewer rows are cut into folds, each held out once and predicted from at most FOLD_FIT_ROWS others,
# since there the plain fit takes seconds.
IN_FOLDS, FOLD_FIT_ROWS = 3000, 600
# Rows that judge fits of the whole table.
JUDGED_ROWS = 2000
# Of a table with more rows than the first number the second number of rows decide.
DECIDING = (12_000, 8_000)


class Asked(NamedTuple):
    """What the user leaves open: ``"auto"``, or which one.

    briefly : of metrics only one variance per input is tried.
    """

    inputs: str = "auto"
    warp: str = "auto"
    metric: str = "auto"
    noise: str = "auto"
    trees: str = "none"
    briefly: bool = False

    @property
    def open(self) -> bool:
        """Whether anything needs held-out rows; a warp alone is chosen by evidence."""
        learned = self.metric in ("learned", "auto") or self.noise in ("varying", "auto")
        return learned or "auto" in (self.inputs, self.trees)


@dataclass(frozen=True)
class ChangeVerdict:
    """How a change did: the loss per row, its standard error, and the RMSE as a share, after minus before."""

    words: str
    difference: float
    error: float
    rmse: float
    kept: bool

    def __str__(self) -> str:
        kept = "" if self.kept else ", not taken"
        return f"{self.words} ({-self.difference:+.3f} ± {self.error:.3f} in log score{kept})"


@dataclass(frozen=True)
class Candidate:
    """A sequence of moves and what it made on every bench; ``history`` is what each made on the first.

    tailed : whether predictions will have the tails that the scores of left-out rows show. Then the loss is
    judged with them.
    """

    moves: tuple[Move, ...]
    trials: tuple[Trial, ...]
    history: tuple[Trial, ...] = ()
    tailed: bool = False

    @cached_property
    def loss(self) -> np.ndarray:
        """Minus the log density of every held-out target."""
        loss = np.concatenate([trial.loss for trial in self.trials])
        if not self.tailed:
            return loss
        scores = np.concatenate([trial.scores for trial in self.trials])
        normal = -0.5 * (scores**2 + np.log(2 * np.pi))
        known = np.isfinite(scores)
        loss[known] += normal[known] - judged_tails(scores[known]).log_density
        return loss

    @property
    def squares(self) -> np.ndarray:
        return np.concatenate([trial.squares for trial in self.trials])

    @property
    def half(self) -> float:
        """Share of the held-out targets inside their central interval of level 1/2, were tails normal."""
        scores = np.concatenate([trial.scores for trial in self.trials])
        return float(np.mean(np.abs(scores) < QUARTILE))

    def calibrated_as(self, other: Candidate) -> bool:
        """Whether that share is near 1/2, or as near as that of ``other``."""
        return abs(self.half - 0.5) <= max(NEAR_HALF, abs(other.half - 0.5))

    def against(self, other: Candidate, words: str) -> ChangeVerdict:
        """This one beside a simpler one, on the same held-out rows."""
        difference = self.loss - other.loss
        error = float(np.std(difference) / np.sqrt(max(1, difference.size - 1)))
        before, after = (float(np.sqrt(np.mean(c.squares))) for c in (other, self))
        rmse = after / max(before, 1e-300) - 1
        mean = float(np.mean(difference))
        allowed = np.clip(-LOSS_PER_GAIN * mean, LARGEST_LOSS, MOST_LOSS)
        kept = bool(mean < -CERTAIN * error and rmse <= allowed)
        return ChangeVerdict(words, mean, error, rmse, kept)


@dataclass
class Search:
    """Moves tried one after the other on the same benches; ``verdicts`` says how each change did.

    by_metric : with one variance for all inputs and, where that was tried beside it, with one for each.
    metric_gain : nats per row that the metric which was taken gained.
    """

    benches: tuple[Bench, ...]
    tailed: bool = False
    verdicts: list[ChangeVerdict] = field(default_factory=list)
    by_metric: tuple[Candidate, ...] = ()
    metric_gain: float = 0.0

    def begin(self, form: Form, start: Values) -> Candidate:
        """The model of ``form``, the plain one to begin with, on every bench."""
        first = self.benches[0]
        trial = first.explored(form, start).with_curvature()
        others = (bench.warm(form, trial) for bench in self.benches[1:])
        return Candidate((), (trial, *others), (trial,), self.tailed)

    def moved(self, base: Candidate, *moves: Move) -> Candidate | None:
        """``base`` with further moves, each fitted on the first bench and from there on the others."""
        for move in moves:
            made: list[Trial] = []
            for bench, trial in zip(self.benches, base.trials, strict=True):
                after = move.apply(bench, trial, made[0] if made else None)
                if after is None:
                    return None
                made.append(after)
            base = Candidate((*base.moves, move), tuple(made), (*base.history, made[0]), self.tailed)
        return base

    def better(self, base: Candidate, changed: Iterable[Candidate | None], told: bool = True) -> Candidate:
        """The best of the changed ones if it is better than ``base`` for certain, else ``base``."""
        made = [candidate for candidate in changed if candidate is not None]
        if not made:
            return base
        best = min(made, key=_mean_loss)
        verdict = best.against(base, ", then ".join(move.words for move in best.moves[len(base.moves) :]))
        if told:
            self.verdicts.append(verdict)
        return best if verdict.kept else base


def choose(
    search: Search, base: Candidate, asked: Asked, warp: Callable[[Trial], WarpTarget | None]
) -> Candidate:
    """Inputs, then the metric, then the target, then the noise; what is not ``"auto"`` is taken as asked.

    ``warp`` finds the likeliest warp of the target beside the kernel of a trial, or None. A warp comes after
    the metric: beside a poor one it may seem to help the mean, which it harms beside a good one.
    """
    if asked.inputs == "auto":
        base = search.better(base, [search.moved(base, Scale("quantile"))])
    plain, base = base, _metric(search, base, asked.metric, asked.briefly)
    search.metric_gain = _mean_loss(plain) - _mean_loss(base)
    if asked.warp != "none":
        found = warp(base.trials[0])
        if found is not None:
            warped = search.moved(base, found)
            # Where targets repeat, as rounded ones do, a warp gains density by crowding around the repeated
            # values: its intervals are then wrong, and the density says nothing of that.
            crowds = warped is not None and not warped.calibrated_as(base)
            if asked.warp == "auto":
                base = base if crowds else search.better(base, [warped])
            else:
                base = warped or base
    if asked.noise == "auto":
        return search.better(base, (search.moved(base, VaryNoise(s)) for s in STRENGTHS))
    return (search.moved(base, VaryNoise(1.0)) if asked.noise == "varying" else base) or base


def _metric(search: Search, base: Candidate, asked: str, briefly: bool = False) -> Candidate:
    """The best of ARD and learned metrics, then further rounds of the latter while they gain."""
    search.by_metric = (base,)
    if asked == "iso":
        return base
    moves: list[Move] = [WeighInputs()] if asked in ("ard", "auto") else []
    if asked == "learned" or (asked == "auto" and not briefly):
        moves += [*map(LearnMetric, POWERS), LearnMetric(POWERS[-1], by_forest=True)]
    made = [c for c in (search.moved(base, move) for move in moves) if c is not None]
    search.by_metric += tuple(c for c in made if isinstance(c.moves[-1], WeighInputs))
    learned = [c for c in made if isinstance(c.moves[-1], LearnMetric)]
    paths = [c for c in made if not isinstance(c.moves[-1], LearnMetric)]
    if learned:
        paths.append(min(learned, key=_mean_loss))
    if asked != "ard" and not briefly:
        # Each path is taken to its last round before paths are compared: a second round of gradients is often
        # far ahead of the first.
        paths = [_rounds(search, path) for path in paths if _mean_loss(path) < _mean_loss(base)]
    if asked == "auto":
        return search.better(base, paths)
    return min(paths, key=_mean_loss, default=base)


def _rounds(search: Search, path: Candidate) -> Candidate:
    """Further rounds of gradients while they gain."""
    for _ in range(ROUNDS):
        further = (search.moved(path, LearnMetric(power)) for power in POWERS)
        after = search.better(path, further, told=False)
        if after is path:
            break
        path = after
    return path


def _mean_loss(candidate: Candidate) -> float:
    return float(np.mean(candidate.loss))


def replayed(bench: Bench, chosen: Candidate) -> Trial:
    """The model that was chosen, made on the rows of another bench, each step from that of the first.

    All rows may show what a fold of them does not: where they are few, the plain model has starts of its own.
    """
    plain, *others = chosen.history
    trial = bench.warm(plain.form, plain)
    if len(bench.fitted) <= START_ROWS:
        again = bench.explored(plain.form, plain.values)
        trial = min(trial, again, key=lambda made: made.objective_value)
    for move, sibling in zip(chosen.moves, others, strict=True):
        trial = move.apply(bench, trial, sibling) or trial
    return trial


def folds(n_rows: int) -> tuple[int, int]:
    """How many parts of the rows are fitted, and the rows of each.

    Programs are compiled for a number of rows: all folds are fitted to the same.
    """
    if n_rows >= IN_FOLDS:
        return 1, FIT_ROWS
    count = 5 if n_rows < 400 else 3
    return count, min(FOLD_FIT_ROWS, n_rows - -(-n_rows // count))


def deciding_rows(n_rows: int, seed: int) -> np.ndarray:
    """The rows, sorted, whose fits decide what is fitted to all rows; all of them where they are not many."""
    most, size = DECIDING
    rows = np.random.default_rng(seed).permutation(n_rows)
    return np.sort(rows if n_rows <= most else rows[:size])


def judged_rows(n_rows: int, seed: int) -> np.ndarray:
    """Rows by which fits of the whole table are judged, sorted: at most a third, and `JUDGED_ROWS`.

    Of a large table they are among those that `splits` holds out, and among those that decide. Trees beside
    the inputs must not have seen them: the inputs that such trees give to other rows would reveal the target
    of a row that is left out of the prediction alone.
    """
    order = np.random.default_rng(seed).permutation(n_rows)
    count, size = folds(n_rows)
    first = size if count == 1 else 0
    return np.sort(order[first : first + min(JUDGED_ROWS, n_rows // 3)])


def splits(n_rows: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit and rows held out, at random: once for large tables, every row once for small ones."""
    order = np.random.default_rng(seed).permutation(n_rows)
    count, size = folds(n_rows)
    if count == 1:
        return [(order[:size], order[size : size + HELD_ROWS])]
    held = np.array_split(order, count)
    return [(order[np.isin(order, out, invert=True)][:size], out) for out in held]
