"""What a reader should know before trusting a model: typed notices, put into words by ``text`` and ``cure``.

A notice holds numbers and names. It becomes English where a page, a terminal or JSON is written, and nothing
reads that English again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from widegp.inference.result import Reason
from widegp.report.calibration import Coverage, Part
from widegp.report.formatting import clean, number, percent
from widegp.yardstick import NAME, Yardstick

UNHURRIED = "Fit again without --budget: with it nothing is tried on held-out rows."


@dataclass(frozen=True)
class Tried:
    """What a model was already fitted with: a cure among these is not suggested.

    hurried : a budget left no time for what a fit tries by itself, a warp among them.
    """

    warp: bool = False
    ard: bool = False
    conformal: bool = False
    hurried: bool = False

    def better_intervals(self) -> str:
        """The next thing to try against intervals that hold too little or too much."""
        if not self.warp:
            return self.better_shape()
        return "" if self.conformal else "Calibrate them with --conformal (in Python, conformal=True)."

    def better_shape(self) -> str:
        """The next thing to try against distributions of a wrong shape."""
        if self.warp:
            return ""
        return UNHURRIED if self.hurried else "Try --transform auto (in Python, target_transform='auto')."

    def better_means(self) -> str:
        """What may lower the error of the mean."""
        if self.hurried:
            return UNHURRIED
        options = (("--ard", self.ard), ("--transform auto", self.warp))
        untried = [option for option, tried in options if not tried]
        return f"Try {' or '.join(untried)}." if untried else ""


@dataclass(frozen=True)
class ReportNotice:
    """Base of all notices: what was seen, and what to do about it ("" where nothing helps)."""

    def text(self) -> str:
        raise NotImplementedError

    def cure(self, tried: Tried) -> str:
        return ""


@dataclass(frozen=True)
class Told(ReportNotice):
    """A sentence of the fit or of the table, as it was given."""

    sentence: str

    def text(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class NotConverged(ReportNotice):
    reason: Reason
    problem: str | None

    def text(self) -> str:
        cause = f" ({self.problem})" if self.problem else ""
        return f"The fit has not converged: {self.reason}{cause}."

    def cure(self, tried: Tried) -> str:
        warp = "" if tried.warp else ", or try --transform auto"
        return {
            Reason.BUDGET: "Fit again with a longer --budget.",
            Reason.MAX_ITER: "Fit again from Python with a larger max_iter.",
            Reason.FAILED: f"Look for extreme values in the table{warp}.",
        }.get(self.reason, "")


@dataclass(frozen=True)
class FewRows(ReportNotice):
    rows: int

    def text(self) -> str:
        return f"Only {self.rows} rows were held out: the scores are rough."

    def cure(self, tried: Tried) -> str:
        return "Hold out more with --test-fraction 0.3."


@dataclass(frozen=True)
class WrongIntervals(ReportNotice):
    """Intervals that hold too little or too much, of all held-out rows or of one ``part``.

    worst : a tenth of the predictions within the part that is worse still.
    """

    coverage: Coverage
    part: Part | None = None
    worst: Part | None = None

    def text(self) -> str:
        c = self.coverage
        where = "held-out values" if self.part is None else f"values among {part_words(self.part)}"
        means = "uncertainty is understated" if c.is_narrow else "they are wider than they need be"
        low, high = (percent(p, decimals(c)) for p in c.chance)
        return (
            f"The {percent(c.level)} intervals hold {held(c)} {where}, where chance gives"
            f" {low} to {high}: {means}.{self._worst()}"
        )

    def _worst(self) -> str:
        if self.worst is None:
            return ""
        return f" Where the prediction is {ends(self.worst)} they hold {held(self.worst.coverages[0])}."

    def cure(self, tried: Tried) -> str:
        return tried.better_intervals()


@dataclass(frozen=True)
class WrongShape(ReportNotice):
    """Kolmogorov's distance of the PIT from uniform is large."""

    distance: float

    def text(self) -> str:
        return (
            "Observed values do not fall evenly in their predictive distributions (the report has a"
            " histogram): quantiles and intervals of other levels may not hold what they promise."
        )

    def cure(self, tried: Tried) -> str:
        return tried.better_shape()


@dataclass(frozen=True)
class ExcludedValues(ReportNotice):
    count: int

    def text(self) -> str:
        return (
            f"{counted(self.count, 'held-out value lies', 'held-out values lie')} where the warp of the"
            " target allows none, so the log score is infinite."
        )

    def cure(self, tried: Tried) -> str:
        return "Use --transform yeo-johnson (in Python, target_transform='yeo-johnson')."


@dataclass(frozen=True)
class EndlessIntervals(ReportNotice):
    """Intervals without an end: too few rows were kept apart to calibrate so high a level."""

    count: int
    rows: int

    def text(self) -> str:
        share = percent(self.count / self.rows)
        return f"{share} of the intervals have no end: too few rows were kept apart to calibrate them."

    def cure(self, tried: Tried) -> str:
        return "Fit more rows, or without --conformal (in Python, conformal=False)."


@dataclass(frozen=True)
class NegativeEnds(ReportNotice):
    """Intervals that begin below zero though no observed value does."""

    count: int
    rows: int

    def text(self) -> str:
        share = percent(self.count / self.rows)
        return f"{share} of the intervals begin below zero, though no held-out value is negative."

    def cure(self, tried: Tried) -> str:
        positive = "try --transform log (in Python, target_transform='log')"
        return tried.better_shape() or f"If the target is always positive, {positive}."


@dataclass(frozen=True)
class FarValues(ReportNotice):
    count: int

    def text(self) -> str:
        return (
            f"{counted(self.count, 'held-out value lies', 'held-out values lie')} more than five standard"
            " deviations from the prediction."
        )

    def cure(self, tried: Tried) -> str:
        return "Look for outliers, or for errors in the table."


@dataclass(frozen=True)
class Jitter(ReportNotice):
    share: float

    def text(self) -> str:
        return (
            f"Nearly coincident anchors: {number(self.share, 2)} of the mean variance was added to their"
            " matrix to factorise it."
        )

    def cure(self, tried: Tried) -> str:
        return "Fewer anchors (--rank) would not need it."


@dataclass(frozen=True)
class BoostingIsBetter(ReportNotice):
    yardstick: Yardstick

    def text(self) -> str:
        y = self.yardstick
        return (
            f"{NAME.capitalize()} does better on the same held-out rows: RMSE {number(y.rmse)} against"
            f" {number(y.rmse_model)}, {percent(1 - y.rmse / y.rmse_model)} lower and beyond chance."
        )

    def cure(self, tried: Tried) -> str:
        own = tried.better_means()
        return f"{own} Where only the mean counts, use {NAME}.".strip()


def part_words(part: Part) -> str:
    """ "the largest third of the predictions (above 4,300)"."""
    size = {0: "smallest", part.of - 1: "largest"}.get(part.k, "middle")
    return f"the {size} third of the predictions ({ends(part)})"


def ends(part: Part) -> str:
    """ "below 1,200", "1,200 to 4,300" or "above 4,300"."""
    known = {0: f"below {number(part.end)}", part.of - 1: f"above {number(part.start)}"}
    return known.get(part.k, f"{number(part.start)} to {number(part.end)}")


def held(c: Coverage) -> str:
    """A share as a person would give it: "28 of 30", "94% of 300", "94.8% of 5,000"."""
    return f"{c.inside if c.rows < 100 else percent(c.share, decimals(c))} of {c.rows:,}"


def decimals(c: Coverage) -> int:
    """Of a coverage and its range of chance in per cent: enough to see on which side of an end it lies."""
    least, (low, high) = 0 if c.rows < 2000 else 1, c.chance
    if low <= c.share <= high:
        return least
    end = low if c.share < low else high
    return next((n for n in range(least, 4) if round(100 * c.share, n) != round(100 * end, n)), 4)


def counted(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def in_words(notices: Iterable[ReportNotice], tried: Tried) -> list[dict[str, Any]]:
    """Each notice as JSON has it: its kind, its text and cure, and its fields; a cure is said once."""
    out: list[dict[str, Any]] = []
    for notice in notices:
        cure = notice.cure(tried)
        told = cure in [entry["cure"] for entry in out]
        words = {"text": clean(notice.text()), "cure": "" if told else cure}
        out.append({"kind": type(notice).__name__, **words, "fields": asdict(notice)})
    return out


def sentences(notices: Iterable[dict[str, Any]]) -> list[str]:
    """Text and cure of each notice of a summary, in one line."""
    return [f"{n['text']} {n['cure']}".strip() for n in notices]
