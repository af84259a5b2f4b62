"""The scores in plain words: how good, how honest, and what to be wary of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from widegp.held_out import HeldOut
from widegp.inference.result import Direction, FitResult
from widegp.report.formatting import listed, number, percent, short
from widegp.report.parameters import TITLES

FEW_ROWS = 30
# A difference of coverage that matters to nobody, as a share of 1 - level, however many rows confirm it.
NEGLIGIBLE = 0.2
LOADING = 0.3
# Rounding alone asks for some 1e-10 of the mean variance; the page records any amount.
LARGE_JITTER = 1e-7


def chance(level: float, rows: int) -> tuple[float, float]:
    """Shares of ``rows`` that intervals of ``level`` hold, in 95 of 100 cases if they are honest."""
    low, high = stats.binom.interval(0.95, rows, level)
    return float(low) / rows, float(high) / rows


def honesty(held_out: HeldOut, coverage: float) -> str:
    """ "honest", "narrow", "wide", each with "nearly" before it for a small difference, or "unknown"."""
    if len(held_out) < FEW_ROWS:
        return "unknown"
    low, high = chance(held_out.level, len(held_out))
    if low <= coverage <= high:
        return "honest"
    side = "narrow" if coverage < low else "wide"
    small = abs(coverage - held_out.level) <= NEGLIGIBLE * (1 - held_out.level)
    return f"nearly {side}" if small else side


def verdict(held_out: HeldOut, scores: dict[str, float], target: str) -> dict[str, str]:
    """A headline, the sentences below it, and the judgement of the intervals in one word."""
    judged = honesty(held_out, scores["coverage"])
    level, rows = percent(held_out.level), len(held_out)
    r2 = scores.get("r2")
    good = r2 is not None and r2 >= 0.05
    accuracy = (
        f"The model explains {percent(r2)} of the variation in {short(target)}"
        if good
        else f"The model predicts {short(target)} no better than its mean"
    )
    join = "and" if good == (judged == "honest" or judged.startswith("nearly")) else "but"
    intervals = {
        "honest": f"{join} its {level} intervals are honest",
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


def warnings_of(held_out: HeldOut, scores: dict[str, float], judged: str, result: FitResult) -> list[str]:
    """What a reader should know before trusting the numbers, the gravest first."""
    out = []
    if not result.converged:
        cause = f" ({result.problem})" if result.problem else ""
        out.append(
            f"The fit has not converged: {result.reason}{cause}. Give it more iterations or a larger budget."
        )
    rows = len(held_out)
    if rows < FEW_ROWS:
        out.append(f"Only {rows} rows were held out: the scores below are rough. Hold out more rows.")
    if judged == "narrow":
        out.append(
            f"The intervals promise {percent(held_out.level)} and hold {percent(scores['coverage'], 1)}:"
            " uncertainty is understated. Try target_transform='auto' or more neighbours."
        )
    if judged == "wide":
        out.append(
            f"The intervals promise {percent(held_out.level)} and hold {percent(scores['coverage'], 1)}:"
            " they are safe but wider than they need be. Try target_transform='auto'."
        )
    out += _shape_warnings(held_out, scores)
    if result.jitter > LARGE_JITTER:
        out.append(
            f"Nearly coincident anchors: {number(result.jitter, 2)} of the mean variance was added to their"
            " matrix to factorise it. Fewer anchors would not need it."
        )
    return out + [str(note) for note in result.notes]


def _shape_warnings(held_out: HeldOut, scores: dict[str, float]) -> list[str]:
    out, rows = [], len(held_out)
    distance = scores["pit_distance"]
    if rows >= FEW_ROWS and distance > 0.05 and stats.kstwo.sf(distance, rows) < 0.01:
        out.append(
            "The predictive distributions do not have the shape of the data (see the histogram of predictive"
            " probabilities): other levels than the one above may not hold what they promise."
        )
    outside = int((held_out.log_density == -math.inf).sum())
    if outside:
        out.append(
            f"{outside} held-out values lie where the warp of the target allows none, so the log score is"
            " infinite. Use target_transform='yeo-johnson'."
        )
    tail = stats.norm.sf(5.0)
    far = int(((held_out.pit < tail) | (held_out.pit > 1 - tail)).sum())
    if far:
        out.append(
            f"{far} held-out {'value lies' if far == 1 else 'values lie'} more than five standard deviations"
            " from the prediction: look for outliers, or for errors in the table."
        )
    return out


def open_directions(directions: Sequence[Direction], sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Each undetermined direction as a sentence, with its loadings and standard deviation.

    ``sizes`` counts the entries of vector parameters: a loading of 1 moves each of k entries by 1 / sqrt k.
    """
    return [
        {"words": _direction_words(d, sizes), "sd": d.sd, "loadings": dict(d.loadings)}
        for d in sorted(directions, key=lambda d: -d.sd)
    ]


def _direction_words(direction: Direction, sizes: Mapping[str, int]) -> str:
    largest = sorted(direction.loadings.items(), key=lambda item: -abs(item[1]))
    sign = 1 if largest[0][1] > 0 else -1
    parts = [(_title(name), value * sign > 0) for name, value in largest if abs(value) > LOADING]
    up, down = [name for name, rises in parts if rises], [name for name, rises in parts if not rises]
    name, value = largest[0]
    # The noise moves as exp(2 z); a fraction's factor is one of its odds.
    steps = (2 if name == "sigma_eps2" else 1) / math.sqrt(sizes.get(name, 1))
    factor = math.exp(min(50.0, direction.sd * abs(value) * steps))
    size = f"about {number(factor, 2)}" if factor < 100 else "more than 100"
    odds = "the odds of " if name in ("w", "alpha") else ""
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


def _title(name: str) -> str:
    """The parameter in words and, for those who look it up, by its name."""
    return f"{TITLES.get(name.split('[')[0], name)} ({name})"
