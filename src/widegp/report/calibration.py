"""What held-out rows tell about intervals, by level and by size of the prediction, and what they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from widegp.held_out import HeldOut

# Ranges of chance hold this share of the cases; a finding is beyond them.
SURE = 0.95
# Levels that are judged beside the forecast's own.
LEVELS = (0.5, 0.8)
THIRDS = 3
# Groups of the figure of coverage against prediction, and how few rows one may hold.
TENTHS, LEAST_IN_TENTH = 10, 10
FEW_ROWS = 30
# A difference of coverage that matters to nobody, as a share of the smaller of level and 1 - level.
NEGLIGIBLE = 0.2
# A PIT of 0 or 1 in double precision is some eight standard deviations out.
FARTHEST = 8.2


def normal_scores(pit: np.ndarray) -> np.ndarray:
    """Phi^-1 of PIT values in [0, 1], finite at the ends; of the same shape."""
    return np.clip(special.ndtri(pit), -FARTHEST, FARTHEST)


def chance(level: float, rows: int) -> tuple[float, float]:
    """Shares k / rows in 95 of 100 cases if k ~ Binomial(rows, level): the range of chance."""
    low, high = stats.binom.interval(SURE, rows, level)
    return float(low) / rows, float(high) / rows


def passes(true: float, level: float, rows: int) -> float:
    """P(low <= k / rows <= high), k ~ Binomial(rows, true): how often such intervals stay within `chance`."""
    low, high = stats.binom.interval(SURE, rows, level)
    return float(stats.binom.cdf(high, rows, true) - stats.binom.cdf(low - 1, rows, true))


@dataclass(frozen=True)
class Coverage:
    """``inside`` of ``rows`` observed values lie in their central interval of probability ``level``."""

    level: float
    rows: int
    inside: int

    @property
    def share(self) -> float:
        return self.inside / self.rows

    @property
    def chance(self) -> tuple[float, float]:
        """Where the share lies in 95 of 100 cases if the intervals hold with probability ``level``."""
        return chance(self.level, self.rows)

    @property
    def plausible(self) -> tuple[float, float]:
        """True coverages that the rows do not exclude: Clopper and Pearson's interval of 95%."""
        low, high = stats.binomtest(self.inside, self.rows).proportion_ci(SURE, method="exact")
        return float(low), float(high)

    @property
    def p_value(self) -> float:
        """Of the exact binomial test that the intervals hold with probability ``level``."""
        return float(stats.binomtest(self.inside, self.rows, self.level).pvalue)

    @property
    def is_narrow(self) -> bool:
        return self.share < self.level

    @property
    def is_negligible(self) -> bool:
        return abs(self.share - self.level) <= NEGLIGIBLE * min(self.level, 1 - self.level)

    def to_dict(self) -> dict[str, Any]:
        return {
            "promised": self.level, "rows": self.rows, "inside": self.inside, "held": self.share,
            "low": self.chance[0], "high": self.chance[1],
        }  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Held-out rows whose predicted mean is among the k-th of ``of`` equal parts, counted from 0.

    start, end : the largest predicted mean of the part before, of the first part the smallest, and of this.
    width : mean length of an interval of the forecast's own level.
    """

    k: int
    of: int
    start: float
    end: float
    width: float
    coverages: tuple[Coverage, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON holds no infinite width: it becomes null there."""
        return {
            "k": self.k, "of": self.of, "start": self.start, "end": self.end, "width": self.width,
            "coverage": [coverage.to_dict() for coverage in self.coverages],
        }  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A coverage beyond chance by more than is negligible: of all held-out rows, or of one ``part``."""

    coverage: Coverage
    part: Part | None = None


def inside(held_out: HeldOut, level: float) -> np.ndarray:
    """depth_i <= level: whether each row lies in its central interval of that probability, (q,)."""
    return held_out.inside if level == held_out.level else held_out.depth <= level


def coverage(held_out: HeldOut, level: float, rows: np.ndarray | slice = slice(None)) -> Coverage:
    """Of the ``rows`` given by their places, else of all."""
    within = inside(held_out, level)[rows]
    return Coverage(level, len(within), int(within.sum()))


def parts(held_out: HeldOut, of: int, levels: Sequence[float]) -> list[Part]:
    """The rows in ``of`` groups of nearly equal size, by predicted mean; none where all means are equal."""
    if np.ptp(held_out.mean) == 0:
        return []
    groups = np.array_split(np.argsort(held_out.mean, kind="stable"), min(of, len(held_out)))
    ends = [float(held_out.mean[g[-1]]) for g in groups]
    starts = [float(held_out.mean[groups[0][0]]), *ends]
    return [
        Part(
            k, len(groups), starts[k], ends[k],
            float(np.mean(held_out.upper[g] - held_out.lower[g])),
            tuple(coverage(held_out, level, g) for level in levels),
        )
        for k, g in enumerate(groups)
    ]  # fmt: skip


@dataclass(frozen=True)
class IntervalCalibration:
    """Coverage of the forecast's own level, of 50% and 80%, and of all three by thirds of the prediction.

    own : the forecast's own level, all rows.
    others : the other levels, all rows.
    thirds : all levels, the own one last; none where rows are too few to be parted.
    tenths : the own level alone; fewer groups where a tenth would hold fewer than ten rows.
    """

    own: Coverage
    others: tuple[Coverage, ...]
    thirds: tuple[Part, ...]
    tenths: tuple[Part, ...]

    @classmethod
    def of(cls, held_out: HeldOut) -> IntervalCalibration:
        other = [level for level in LEVELS if level < held_out.level]
        enough = len(held_out) >= FEW_ROWS
        return cls(
            coverage(held_out, held_out.level),
            tuple(coverage(held_out, level) for level in other),
            tuple(parts(held_out, THIRDS, [*other, held_out.level])) if enough else (),
            tuple(parts(held_out, max(1, min(TENTHS, len(held_out) // LEAST_IN_TENTH)), [held_out.level])),
        )

    @property
    def own_is_beyond_chance(self) -> bool:
        low, high = self.own.chance
        return not low <= self.own.share <= high

    def _stands_out(self, part: Coverage, limit: float) -> bool:
        """Whether a part's coverage of the forecast's own level differs from that of all rows."""
        if part.level != self.own.level:
            return False
        return float(stats.binomtest(part.inside, part.rows, self.own.share).pvalue) < limit

    def worst_tenth(self, third: Part) -> Part | None:
        """The tenth within a third that holds least, if that is less than the third by more than chance."""
        within = [t for t in self.tenths if t.start < third.end and t.end > third.start]
        worst = min(within, key=lambda t: t.coverages[0].share, default=None)
        if worst is None or worst.of != TENTHS:
            return None
        c, usual = worst.coverages[0], third.coverages[-1].share
        p = stats.binomtest(c.inside, c.rows, usual, alternative="less").pvalue
        return worst if p < (1 - SURE) / TENTHS else None

    def findings(self) -> list[Finding]:
        """What is beyond chance in the other levels and in the thirds, the gravest first.

        Among m such shares one in twenty would leave its own range of chance by accident, so each is tested
        at (1 - 0.95) / m: all of them together are then silent in 95 of 100 calibrated forecasts. Intervals
        that hold too little are graver than those that hold too much; the forecast's own level comes first.
        """
        tested = [Finding(c) for c in self.others]
        tested += [Finding(c, part) for part in self.thirds for c in part.coverages]
        limit = (1 - SURE) / max(1, len(tested))
        found = [f for f in tested if f.coverage.p_value < limit and not f.coverage.is_negligible]

        # Where the intervals are wrong for all rows, a part is news only if it differs from the others.
        wrong = self.own_is_beyond_chance and not self.own.is_negligible
        if wrong:
            found = [f for f in found if f.part is not None and self._stands_out(f.coverage, limit)]

        def gravity(f: Finding) -> tuple[bool, bool, float]:
            c = f.coverage
            return not c.is_narrow, c.level != self.own.level, -abs(c.share - c.level)

        return sorted(found, key=gravity)
