"""Fits of a whole table, judged by rows that were left out of their prediction, and averages of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from widegp.choices.search import CERTAIN, LARGEST_LOSS, ChangeVerdict
from widegp.fitted_warp import FittedWarp
from widegp.noise_model import LeftOut
from widegp.tails import MOST_PARTS, NORMAL, Tails, judged_tails, tails_together

if TYPE_CHECKING:
    from widegp.choices.whole import WholeFit

# Standard errors by which an average with a further fit must be better: fewer than CERTAIN, since averages
# seldom lose.
LIKELY = 1.0
# Each fit in an average takes its time to predict.
MOST_AVERAGED = 3
# A fit of a smaller share is not worth its time.
LEAST_SHARE = 0.1
# Standard errors that shares nearer to equal ones may cost.
EVEN = 1.0
# Steps between the best shares and equal ones.
EVEN_STEPS = 20
# Penalty in nats on the squared log of RMSE over its bound.
STRICT = 1e4


@dataclass(frozen=True, eq=False)
class Judged:
    """A fit of the whole table, and how rows that were left out of their prediction do under it.

    words : how it differs from the first.    left_out : these rows.
    must_be_sure : taken only if better for certain, like a metric of a higher power: its gradients have seen
        the targets of left-out rows, which flatters a metric the more, the more is learned.
    residual, log_density : (q,) each, of the standardised targets; the latter under the tails of these rows,
        where tails that judge a row were learned from others.
    tails : those of all these rows, None where they are normal.
    log_scale : (q,), from the density of a score to that of its target.
    """

    stage: WholeFit
    words: str
    left_out: LeftOut
    residual: np.ndarray
    log_density: np.ndarray
    log_scale: np.ndarray
    tails: Tails | None
    notes: tuple[str, ...] = ()
    must_be_sure: bool = False

    @classmethod
    def of(cls, stage: WholeFit, words: str, rows: np.ndarray, tailed: bool) -> Self:
        left_out, problem, values = stage.left_out(rows), stage.fitted.objective.problem, stage.fitted.values
        law = judged_tails(left_out.scores(), MOST_PARTS if tailed else 0)
        warped, sd = problem.warped(values), np.sqrt(left_out.latent + left_out.noise)
        log_scale = warped.log_jacobian[rows] - np.log(sd)
        psi = values.get("psi", np.zeros(0))
        warp = FittedWarp.fit(problem.y, problem.warp.name, psi, **stage.whole.scale)
        mean, _ = warp.moments(warped.value[rows] - left_out.residual, sd)
        residual, log_density = problem.y[rows] - mean, law.log_density + log_scale
        return cls(stage, words, left_out, residual, log_density, log_scale, law.tails)

    @property
    def trees_beside(self) -> bool:
        """Whether trees are among the inputs."""
        return self.stage.whole.chosen.trees is not None

    def with_note(self, words: str) -> Self:
        return replace(self, notes=(*self.notes, words))

    def averaged_with(self, *others: Judged) -> Self:
        """All of them, averaged: the mean of the densities, and of the means."""
        several: tuple[Judged, ...] = (self, *others)
        share = best_shares(several)
        density = logsumexp([one.log_density for one in several], axis=0, b=share[:, None])
        residual = np.tensordot(share, [one.residual for one in several], axes=1)
        return replace(self, log_density=density, residual=residual, must_be_sure=False)

    @property
    def score(self) -> float:
        """Mean log density less the logarithm of the RMSE, both of which users look at: nats either way."""
        return float(np.mean(self.log_density) - 0.5 * np.log(np.mean(self.residual**2)))

    def beside(self, other: Judged) -> ChangeVerdict:
        """This fit against ``other``."""
        gain = self.log_density - other.log_density
        rmse = float(np.sqrt(np.mean(self.residual**2) / np.mean(other.residual**2))) - 1
        error = float(gain.std() / np.sqrt(len(gain)))
        certain = gain.mean() > CERTAIN * error
        kept = self.score > other.score and rmse <= LARGEST_LOSS and (certain or not self.must_be_sure)
        return ChangeVerdict(self.words, -float(gain.mean()), error, rmse, kept)


def best_shares(several: Sequence[Judged]) -> np.ndarray:
    """Of each fit in their average, (J,): w under which left-out rows i = 1..q do best,

        mean_i log sum_j w_j p_j(y_i) - log RMSE of sum_j w_j mean_j(x_i) + sum_j log w_j / q

    which is the `score` of the average, at an RMSE that is hardly above that of the first; the last term is a
    Dirichlet(2, ..., 2) prior on w. The bound on the RMSE matters where targets repeat: a density gathered at
    repeated values gains nats and predicts no better.
    """
    density, residual = _stacked(several)
    most = _largest_rmse(residual)

    def loss(logits: np.ndarray) -> float:
        w = softmax(logits)
        rmse = max(float(np.sqrt(np.mean((w @ residual) ** 2))), 1e-150)
        likely = np.mean(logsumexp(density, axis=0, b=w[:, None])) - np.log(rmse)
        beyond = max(0.0, np.log(rmse / max(most, 1e-150)))
        return -float(likely + np.sum(log_softmax(logits)) / density.shape[1] - STRICT * beyond**2)

    return np.asarray(softmax(minimize(loss, np.zeros(len(several)), method="BFGS").x))


def shares(several: Sequence[Judged]) -> np.ndarray:
    """Shares as equal as left-out rows allow, (J,): (1 - t) w + t / J for the largest t in [0, 1] at which

        mean_i d_i <= EVEN sd(d) / sqrt(q)
        d_i = log p_w(y_i) - log p_t(y_i) + (r_t^2 - r_w^2)_i / (2 MSE_w)

    where w are the `best_shares`, p and r the density and the residual of the averages, and d_i what row i
    adds to the difference of their `score`. Best shares of 2,000 rows differ between one draw of these rows
    and another, and between a fit of a part of the rows and that of all; equal ones err less. The bound on
    the RMSE is kept.
    """
    density, residual = _stacked(several)
    w, even = best_shares(several), np.full(len(several), 1 / len(several))

    def of(share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return logsumexp(density, axis=0, b=share[:, None]), (share @ residual) ** 2

    likely, squares = of(w)
    most = max(_largest_rmse(residual) ** 2, squares.mean())
    for t in np.linspace(1, 0, EVEN_STEPS, endpoint=False):
        found, own = of((1 - t) * w + t * even)
        lost = likely - found + (own - squares) / (2 * max(squares.mean(), 1e-300))
        if own.mean() <= most and lost.mean() <= EVEN * lost.std() / np.sqrt(len(lost)):
            return (1 - t) * w + t * even
    return w


def _stacked(several: Sequence[Judged]) -> tuple[np.ndarray, np.ndarray]:
    """Log densities and residuals of left-out rows, (J, q) each."""
    return np.stack([one.log_density for one in several]), np.stack([one.residual for one in several])


def _largest_rmse(residual: np.ndarray) -> float:
    """The most that an average of fits with residuals (J, q) may have: hardly more than the first."""
    return float((1 + LARGEST_LOSS / 2) * np.sqrt(np.mean(residual[0] ** 2)))


def together(made: list[Judged]) -> list[Judged]:
    """Several fits with the tails that suit their average, where they are to have any."""
    if not made[0].stage.whole.varying:
        return made
    scores, share = [one.left_out.scores() for one in made], shares(made)
    scales = [one.log_scale + np.log(own) for one, own in zip(made, share, strict=True)]
    laws = tails_together(scores, scales, [one.tails or NORMAL for one in made])
    return [replace(one, tails=law) for one, law in zip(made, laws, strict=True)]


def averaged(best: Judged, made: list[Judged], verdicts: list[ChangeVerdict]) -> list[Judged]:
    """The best fit, and those of ``made`` that it is best averaged with.

    Where a part of the rows decides, a fit with trees is averaged with one without, unless that is likely to
    lose: which of them is ahead may change with the number of rows. All others must gain, since the tails of
    an average are learned from the judging rows alone.
    """
    several, notes = [best], [*best.notes]
    if verdicts:
        notes.append(f"Then on the whole table: {'; '.join(map(str, verdicts))}.")
    while len(several) < MOST_AVERAGED:
        others = [other for other in made if all(other is not one for one in several)]
        unlike = [other for other in others if other.trees_beside != best.trees_beside]
        hedged = best.stage.whole.part_of is not None and len(several) == 1
        hedge = _addition(several, unlike, -LIKELY) if hedged else None
        found = hedge or _addition(several, others, LIKELY)
        if found is None:
            break
        verdict, other = found
        several.append(other)
        notes.append(f"Predictions are {verdict}.")
    return [replace(best, notes=tuple(notes)), *several[1:]]


def _addition(
    several: list[Judged], others: list[Judged], least: float
) -> tuple[ChangeVerdict, Judged] | None:
    """The one of ``others`` with which the average of ``several`` is best, if it gains at least so many
    standard errors of log density, at no loss of squares, and its share is worth its time.
    """
    if not others:
        return None
    before = several[0].averaged_with(*several[1:])
    pairs = [(several[0].averaged_with(*several[1:], other), other) for other in others]
    after, other = max(pairs, key=lambda pair: pair[0].score)
    verdict = after.beside(before)
    lost = verdict.rmse > LARGEST_LOSS or -verdict.difference <= least * verdict.error
    if lost or best_shares([*several, other])[-1] < LEAST_SHARE:
        return None
    return replace(verdict, words=f"averaged with {other.words}", kept=True), other
