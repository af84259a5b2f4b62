"""The held-out scores in plain words: how good, what the intervals held, and what so few rows cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import stats

from widegp.held_out import HeldOut
from widegp.inference.result import Direction, FitResult
from widegp.kernels.parameters import FRACTION, NOISE, Parameter
from widegp.report import notices
from widegp.report.calibration import FEW_ROWS, Finding, IntervalCalibration, passes
from widegp.report.formatting import listed, number, percent, short
from widegp.report.notices import ReportNotice, decimals, held, part_words
from widegp.yardstick import NAME, Yardstick

LOADING = 0.3
# Rounding alone asks for some 1e-10 of the mean variance; the page records any amount.
LARGE_JITTER = 1e-7
# Below this share of the variation, the mean of the target does as well; a smaller gain is told otherwise.
EXPLAINED = 0.05
# Fewer negative ends of intervals than this share are no news where the target is never negative.
NEGATIVE = 0.05
# A shortfall of coverage that a reader would want to hear of, and how often it may pass unseen.
SHORTFALL, OFTEN = 0.1, 0.05


class Judgement(StrEnum):
    """What held-out rows say of the intervals. None of these is a proof that they hold what they promise."""

    UNKNOWN = "unknown"
    WITHIN_CHANCE = "within chance"
    NEARLY_NARROW = "nearly narrow"
    NEARLY_WIDE = "nearly wide"
    UNEVEN = "uneven"
    NARROW = "narrow"
    WIDE = "wide"


@dataclass(frozen=True)
class Verdict:
    """The judgement of the intervals with what it rests on; ``misshapen``: the PIT is far from uniform."""

    target: str
    scores: Mapping[str, float]
    calibration: IntervalCalibration
    misshapen: bool
    yardstick: Yardstick | None = None

    @classmethod
    def of(
        cls, held_out: HeldOut, scores: Mapping[str, float], target: str, yardstick: Yardstick | None = None
    ) -> Verdict:
        shape = misshapen(len(held_out), scores["pit_distance"])
        return cls(short(target), scores, IntervalCalibration.of(held_out), shape, yardstick)

    @property
    def worst(self) -> Finding | None:
        return next(iter(self.calibration.findings()), None)

    @property
    def judgement(self) -> Judgement:
        own = self.calibration.own
        if own.rows < FEW_ROWS:
            return Judgement.UNKNOWN
        if self.calibration.own_is_beyond_chance and not own.is_negligible:
            return Judgement.NARROW if own.is_narrow else Judgement.WIDE
        if self.worst is not None or self.misshapen:
            return Judgement.UNEVEN
        if self.calibration.own_is_beyond_chance:
            return Judgement.NEARLY_NARROW if own.is_narrow else Judgement.NEARLY_WIDE
        return Judgement.WITHIN_CHANCE

    def to_dict(self) -> dict[str, str]:
        """``headline``, the sentences below it, the judgement in a word, its colour, and its reason."""
        judgement = self.judgement
        return {
            "headline": f"{self._accuracy()}, {self._intervals()}.", "lede": self._lede(),
            "intervals": judgement.value, "tone": self._tone(), "why": self._why(),
        }  # fmt: skip

    def _tone(self) -> str:
        """The colour of the card; plain, "", where so few rows would not show a shortfall."""
        if self.judgement is Judgement.UNKNOWN:
            return ""
        if self.judgement is Judgement.WITHIN_CHANCE:
            return "good" if self._unseen() < OFTEN else ""
        return "bad" if self.judgement is Judgement.NARROW else "fair"

    def _unseen(self) -> float:
        """How often intervals that hold ten points too little would stay within the range of chance."""
        own = self.calibration.own
        return passes(own.level - SHORTFALL, own.level, own.rows) if own.level > SHORTFALL else 0.0

    @property
    def _is_useful(self) -> bool:
        r2 = self.scores.get("r2")
        return r2 is not None and r2 >= EXPLAINED

    def _accuracy(self) -> str:
        useful = self._is_useful
        said = (
            f"The model explains {percent(self.scores['r2'])} of the variation in {self.target}"
            if useful
            else f"The model predicts {self.target} {self._beside_the_mean()}"
        )
        y = self.yardstick
        if y is None or not y.is_much_better:
            return said
        if useful and y.r2 is not None and y.r2 - self.scores["r2"] >= EXPLAINED:
            return f"{said} ({NAME}: {percent(y.r2)})"
        return f"{said} ({NAME} errs {percent(1 - y.rmse / y.rmse_model)} less)"

    def _beside_the_mean(self) -> str:
        r2 = self.scores.get("r2")
        return "no better than its mean" if r2 is None or r2 > -EXPLAINED else "worse than its mean"

    def _intervals(self) -> str:
        own, judgement = self.calibration.own, self.judgement
        level = percent(own.level)
        fine = judgement in (Judgement.UNKNOWN, Judgement.WITHIN_CHANCE)
        join = "and" if fine == self._is_useful or judgement is Judgement.UNKNOWN else "but"
        if not fine:
            return f"{join} its {self._why()}"
        few = ", too few to judge them" if judgement is Judgement.UNKNOWN else ""
        return f"{join} its {level} intervals held {held(own)} held-out values{few}"

    def _why(self) -> str:
        """What is wrong with the intervals, "" where nothing was seen: the reason for a card's colour."""
        own, judgement, worst = self.calibration.own, self.judgement, self.worst
        level, seen = percent(own.level), f"they held {held(own)}"
        side = "narrow" if own.is_narrow else "wide"
        if judgement in (Judgement.UNKNOWN, Judgement.WITHIN_CHANCE):
            return ""
        if judgement in (Judgement.NEARLY_NARROW, Judgement.NEARLY_WIDE):
            return f"{level} intervals are a touch too {side}: {seen}"
        if judgement is not Judgement.UNEVEN:
            return f"{level} intervals are too {side}: {seen}{self._worst_part()}"
        if worst is None:
            return f"{level} intervals held {held(own)}, but observed values do not fall evenly in them"
        c = worst.coverage
        side = "narrow" if c.is_narrow else "wide"
        where = "" if worst.part is None else f" for {part_words(worst.part)}"
        return f"{percent(c.level)} intervals are too {side}{where}: they held {held(c)} values"

    def _worst_part(self) -> str:
        """Where intervals that are wrong overall are worst, if they are much worse there."""
        worst = self.worst
        if worst is None or worst.part is None:
            return ""
        return f", and {held(worst.coverage)} for {part_words(worst.part)}"

    def _lede(self) -> str:
        own = self.calibration.own
        low, high = (percent(p, decimals(own)) for p in own.chance)
        level = percent(own.level)
        return (
            f"On {own.rows:,} rows kept out of the fit, a prediction is typically off by"
            f" {number(self.scores['rmse'])} ({percent(self.scores['rmse_z'])} of the spread of"
            f" {self.target}).{self._beside()} A {level} interval is {number(self.scores['width'])} wide on"
            f" average and held {held(own)} observed values; if such intervals hold {level} in truth, chance"
            f" gives {low} to {high}. {self._cannot_tell()}"
        )

    def _beside(self) -> str:
        y = self.yardstick
        if y is None:
            return ""
        return f" {NAME.capitalize()}, fitted on the same rows, is off by {number(y.rmse)}."

    def _cannot_tell(self) -> str:
        """The true coverages that the rows leave possible, and how often a shortfall would pass unseen."""
        own = self.calibration.own
        low, high = (percent(p, decimals(own)) for p in own.plausible)
        said = f"True coverages from {low} to {high} are compatible with that."
        if self._unseen() < OFTEN:
            return said
        return (
            f"{said} So few rows cannot tell much: intervals that in truth hold only"
            f" {percent(own.level - SHORTFALL)} would stay within the range of chance in"
            f" {percent(self._unseen())} of cases."
        )


def misshapen(rows: int, distance: float) -> bool:
    """Whether Kolmogorov's ``distance`` of the PIT from uniform is large, and more than chance allows."""
    return rows >= FEW_ROWS and distance > 0.05 and bool(stats.kstwo.sf(distance, rows) < 0.01)


def notices_of(held_out: HeldOut, verdict: Verdict, result: FitResult) -> list[ReportNotice]:
    """What a reader should know before trusting the numbers, the gravest first."""
    out: list[ReportNotice] = []
    if not result.converged:
        out.append(notices.NotConverged(result.reason, result.problem))
    if verdict.yardstick is not None and verdict.yardstick.is_much_better:
        out.append(notices.BoostingIsBetter(verdict.yardstick))
    if len(held_out) < FEW_ROWS:
        out.append(notices.FewRows(len(held_out)))
    out += _of_intervals(verdict)
    outside = int((held_out.log_density == -math.inf).sum())
    if outside:
        out.append(notices.ExcludedValues(outside))
    endless = int((np.isinf(held_out.lower) | np.isinf(held_out.upper)).sum())
    if endless:
        out.append(notices.EndlessIntervals(endless, len(held_out)))
    below = int((held_out.lower < 0).sum()) - endless
    if held_out.y.min() >= 0 and below > NEGATIVE * len(held_out):
        out.append(notices.NegativeEnds(below, len(held_out)))
    tail = stats.norm.sf(5.0)
    far = int(((held_out.pit < tail) | (held_out.pit > 1 - tail)).sum())
    if far:
        out.append(notices.FarValues(far))
    if result.jitter > LARGE_JITTER:
        out.append(notices.Jitter(result.jitter))
    return out


def _of_intervals(verdict: Verdict) -> list[ReportNotice]:
    """At most one notice on all rows and two on parts of them, and the shape if nothing else says it."""
    out: list[ReportNotice] = []
    if verdict.judgement in (Judgement.NARROW, Judgement.WIDE):
        out.append(notices.WrongIntervals(verdict.calibration.own))
    found = verdict.calibration.findings()
    for narrow in (True, False):
        first = next((f for f in found if f.coverage.is_narrow is narrow), None)
        if first is not None:
            own = first.part is not None and first.coverage.level == verdict.calibration.own.level
            worst = verdict.calibration.worst_tenth(first.part) if own and narrow and first.part else None
            out.append(notices.WrongIntervals(first.coverage, first.part, worst))
    if verdict.misshapen and not out:
        out.append(notices.WrongShape(verdict.scores["pit_distance"]))
    return out


def open_directions(
    directions: Sequence[Direction], sizes: Mapping[str, int], declared: Mapping[str, Parameter]
) -> list[dict[str, Any]]:
    """Each undetermined direction as a sentence, with its loadings and standard deviation.

    ``sizes`` counts the entries of vector parameters: a loading of 1 moves each of k entries by 1 / sqrt k.
    ``declared`` are the parameters of the model by name.
    """
    return [
        {"words": _direction_words(d, sizes, declared), "sd": d.sd, "loadings": dict(d.loadings)}
        for d in sorted(directions, key=lambda d: -d.sd)
    ]


def _direction_words(
    direction: Direction, sizes: Mapping[str, int], declared: Mapping[str, Parameter]
) -> str:
    largest = sorted(direction.loadings.items(), key=lambda item: -abs(item[1]))
    sign = 1 if largest[0][1] > 0 else -1
    parts = [(_title(name, declared), value * sign > 0) for name, value in largest if abs(value) > LOADING]
    up, down = [name for name, rises in parts if rises], [name for name, rises in parts if not rises]
    name, value = largest[0]
    kind = declared[name.split("[")[0]].kind
    # The noise moves as exp(2 z); a fraction's factor is one of its odds.
    steps = (2 if kind is NOISE else 1) / math.sqrt(sizes.get(name, 1))
    factor = math.exp(min(50.0, direction.sd * abs(value) * steps))
    size = f"about {number(factor, 2)}" if factor < 100 else "more than 100"
    odds = "the odds of " if kind is FRACTION else ""
    if len(parts) == 1:
        what = f"{up[0]} may change"
    elif not down:
        what = f"{listed(up)} may rise or fall together"
    else:
        what = f"{listed(up)} may rise while {listed(down)} {'falls' if len(down) == 1 else 'fall'}"
    return (
        f"The {what}, and the fit hardly changes: the data leave {odds}{name} open to a factor of"
        f" {size} either way, and the prior settles it."
    )


def _title(name: str, declared: Mapping[str, Parameter]) -> str:
    """The parameter in words and, for those who look it up, by its name."""
    return f"{declared[name.split('[')[0]].title} ({name})"
