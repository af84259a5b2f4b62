"""The scores in plain words: how good, how honest, and what to be wary of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from widegp.held_out import HeldOut
from widegp.inference.result import Direction, FitResult, Reason
from widegp.kernels.parameters import FRACTION, NOISE, Parameter
from widegp.report.formatting import listed, number, percent, short

FEW_ROWS = 30
# A difference of coverage that matters to nobody, as a share of 1 - level, however many rows confirm it.
NEGLIGIBLE = 0.2
# Levels that the headline speaks of where the forecast's own is not the whole story.
OTHER_LEVELS = (0.5, 0.8, 0.9)
LOADING = 0.3
IN_PYTHON = " (in Python, target_transform='auto')"
CURES = {
    Reason.BUDGET: " Fit again with a longer --budget.",
    Reason.MAX_ITER: " Fit again from Python with a larger max_iter.",
    Reason.FAILED: " Look for extreme values in the table, or try --transform auto.",
}
# Rounding alone asks for some 1e-10 of the mean variance; the page records any amount.
LARGE_JITTER = 1e-7


def chance(level: float, rows: int) -> tuple[float, float]:
    """Shares of ``rows`` that intervals of ``level`` hold, in 95 of 100 cases if they are honest."""
    low, high = stats.binom.interval(0.95, rows, level)
    return float(low) / rows, float(high) / rows


def misshapen(held_out: HeldOut, distance: float) -> bool:
    """Whether Kolmogorov's ``distance`` of the PIT from uniform is large, and more than chance allows."""
    rows = len(held_out)
    return rows >= FEW_ROWS and distance > 0.05 and bool(stats.kstwo.sf(distance, rows) < 0.01)


def honesty(held_out: HeldOut, coverage: float, distance: float = 0.0) -> str:
    """ "honest", "honest at one level", "narrow", "wide", "nearly narrow", "nearly wide", or "unknown".

    ``coverage`` is that of intervals of the forecast's level, ``distance`` that of the PIT from uniform:
    where it is large, intervals of other levels do not keep their promise though those of this one do.
    """
    if len(held_out) < FEW_ROWS:
        return "unknown"
    low, high = chance(held_out.level, len(held_out))
    if low <= coverage <= high:
        return "honest at one level" if misshapen(held_out, distance) else "honest"
    side = "narrow" if coverage < low else "wide"
    small = abs(coverage - held_out.level) <= NEGLIGIBLE * (1 - held_out.level)
    return f"nearly {side}" if small else side


def verdict(held_out: HeldOut, scores: dict[str, float], target: str) -> dict[str, str]:
    """A headline, the sentences below it, and the judgement of the intervals in one word."""
    judged = honesty(held_out, scores["coverage"], scores["pit_distance"])
    level, rows = percent(held_out.level), len(held_out)
    r2 = scores.get("r2")
    good = r2 is not None and r2 >= 0.05
    accuracy = (
        f"The model explains {percent(r2)} of the variation in {short(target)}"
        if good
        else f"The model predicts {short(target)} no better than its mean"
    )
    join = "and" if good == judged.startswith(("honest", "nearly")) else "but"
    intervals = {
        "honest": f"{join} its {level} intervals are honest",
        "honest at one level": f"{join} its {level} intervals are honest, but {_other_levels(held_out)}",
        "nearly narrow": f"{join} its {level} intervals are a touch too narrow",
        "nearly wide": f"{join} its {level} intervals are a touch too wide",
        "narrow": f"{join} its {level} intervals are too narrow",
        "wide": f"{join} its {level} intervals are too wide",
        "unknown": f"and {rows} held-out rows are too few to judge its intervals",
    }[judged]
    low, high = chance(held_out.level, rows)
    lede = (
        f"On {rows:,} rows kept out of the fit, a prediction is typically off by {number(scores['rmse'])}"
        f" ({percent(scores['rmse_z'])} of the spread of {short(target)}). Of the observed values,"
        f" {percent(scores['coverage'], 1)} fell inside their {level} interval; an honest model of this many"
        f" rows gets {percent(low, 1)} to {percent(high, 1)}. An interval is {number(scores['width'])} wide"
        " on average."
    )
    return {"headline": f"{accuracy}, {intervals}.", "lede": lede, "intervals": judged}


def _other_levels(held_out: HeldOut) -> str:
    """Which intervals break their promise most, where those of the forecast's own level keep it."""
    depth = held_out.depth
    worst, missed = None, 0.0
    for level in OTHER_LEVELS:
        held = float((depth <= level).mean())
        low, high = chance(level, len(depth))
        if not low <= held <= high and abs(held - level) > abs(missed):
            worst, missed = level, held - level
    if worst is None:
        return "observed values do not fall evenly in them"
    side = "narrow" if missed < 0 else "wide"
    return f"its {percent(worst)} intervals are too {side} (they hold {percent(worst + missed)})"


def warnings_of(held_out: HeldOut, scores: dict[str, float], judged: str, result: FitResult) -> list[str]:
    """What a reader should know before trusting the numbers, the gravest first."""
    out = []
    if not result.converged:
        cause = f" ({result.problem})" if result.problem else ""
        out.append(f"The fit has not converged: {result.reason}{cause}.{CURES.get(result.reason, '')}")
    rows = len(held_out)
    if rows < FEW_ROWS:
        out.append(
            f"Only {rows} rows were held out: the scores are rough. Hold out more with --test-fraction 0.3."
        )
    if judged == "narrow":
        out.append(
            f"The intervals promise {percent(held_out.level)} and hold {percent(scores['coverage'], 1)}:"
            f" uncertainty is understated. Try --transform auto{IN_PYTHON} or more --neighbors."
        )
    if judged == "wide":
        out.append(
            f"The intervals promise {percent(held_out.level)} and hold {percent(scores['coverage'], 1)}:"
            f" they are safe but wider than they need be. Try --transform auto{IN_PYTHON}."
        )
    out += _shape_warnings(held_out, scores)
    if result.jitter > LARGE_JITTER:
        out.append(
            f"Nearly coincident anchors: {number(result.jitter, 2)} of the mean variance was added to their"
            " matrix to factorise it. Fewer anchors would not need it."
        )
    return out + [str(note) for note in result.notes]


def _shape_warnings(held_out: HeldOut, scores: dict[str, float]) -> list[str]:
    out = []
    if misshapen(held_out, scores["pit_distance"]):
        out.append(
            "The predictive distributions do not have the shape of the data (the report shows a histogram of"
            f" predictive probabilities): intervals of levels other than {percent(held_out.level)} may not"
            f" hold what they promise. Try --transform auto{IN_PYTHON}."
        )
    outside = int((held_out.log_density == -math.inf).sum())
    if outside:
        out.append(
            f"{outside} held-out values lie where the warp of the target allows none, so the log score is"
            " infinite. Use --transform yeo-johnson (in Python, target_transform='yeo-johnson')."
        )
    tail = stats.norm.sf(5.0)
    far = int(((held_out.pit < tail) | (held_out.pit > 1 - tail)).sum())
    if far:
        out.append(
            f"{far} held-out {'value lies' if far == 1 else 'values lie'} more than five standard deviations"
            " from the prediction: look for outliers, or for errors in the table."
        )
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
