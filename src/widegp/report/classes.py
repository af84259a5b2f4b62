"""A model of classes summed up: how probable the classes were that came, how well told apart, how many a set
needs. First a dict, then a terminal or a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from widegp import metrics
from widegp.conformal import ClassCalibration, rank
from widegp.held_out import HeldOutClasses
from widegp.report import class_figures, sections
from widegp.report.formatting import clean, number, percent, plain, short
from widegp.report.page import render
from widegp.report.targets import (
    boosted,
    drivers,
    fit_facts,
    fit_of,
    kicker,
    links,
    print_fit,
    text_table,
)

if TYPE_CHECKING:
    from rich.console import Console

Summary = dict[str, Any]
BINS = 10
CURVE_POINTS = 200
SET_LEVELS = (0.8, 0.9, 0.95, 0.99)
# Draws of scores from which the range of chance of a share of sets is told.
CHANCE_DRAWS = 1000


def summarise_classes(
    held_out: HeldOutClasses, provenance: Mapping[str, Any], results: Sequence[Any],
    columns: Sequence[Mapping[str, Any]] = (), explanation: Mapping[str, Any] | None = None,
) -> Summary:  # fmt: skip
    """Scores, reliability, curves of every class against the rest, confusion, sets, inputs, provenance.

    results : how the fits ended, of one process or of one for each class.
    explanation : of `widegp.explain.explain`, None where rows are not to be shuffled.
    """
    given = dict(provenance)
    y, p, names = held_out.y, held_out.p, list(given["classes"])
    two = len(names) == 2
    confidence, came = (p[:, 1], y == 1) if two else (p.max(axis=1), p.argmax(axis=1) == y)
    return plain({
        "kind": "classes", "target": clean(given.get("target", "the target")), "classes": names,
        "rows": len(y), "scores": held_out.scores(), "beside": given.pop("beside", None),
        "by_class": by_class(y, p, names), "confusion": confusion(y, p), "sets": sets(held_out),
        "curves": {"reliability": reliability(came, confidence),
                   "roc": {names[c]: roc(y == c, p[:, c]) for c in range(two, len(names))
                           if 0 < np.mean(y == c) < 1}},
        "explanation": explanation, "columns": list(columns), "fit": fit_of(results, given),
        "notes": list(dict.fromkeys(note for one in results for note in one.notes)),
        "warnings": given.pop("warnings", []), "provenance": given,
    })  # fmt: skip


def reliability(came: np.ndarray, p: np.ndarray) -> list[dict[str, float]]:
    """Mean probability and share that came, within bins of equally many rows, with the share's 95% range of
    chance if the probabilities were right.
    """
    out = []
    for rows in np.array_split(np.argsort(p, kind="stable"), min(BINS, len(p))):
        low, high = stats.binom.interval(0.95, len(rows), float(p[rows].mean()))
        out.append({"p": float(p[rows].mean()), "came": float(came[rows].mean()), "rows": len(rows),
                    "low": low / len(rows), "high": high / len(rows)})  # fmt: skip
    return out


def roc(came: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    """False and true positive rates, precision and recall, over all thresholds, thinned; rows that share a
    probability are called together. With the share of rows that came.
    """
    order = np.argsort(-p, kind="stable")
    hits = np.cumsum(came[order])
    ends = np.flatnonzero(np.append(np.diff(p[order]) != 0, True))
    kept = ends[np.unique(np.linspace(0, len(ends) - 1, min(CURVE_POINTS, len(ends))).astype(int))]
    misses = kept + 1 - hits[kept]
    recall = hits[kept] / hits[-1]
    false = misses / (len(p) - hits[-1])
    return {
        "false": np.append(0.0, false), "true": np.append(0.0, recall),
        "recall": recall, "precision": hits[kept] / (kept + 1), "share": float(came.mean()),
    }  # fmt: skip


def confusion(y: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    """Rows by class that came and class predicted, (C, C), where the likeliest is predicted.

    Of two classes also at the threshold with the largest sum of both classes' shares that are recognised.
    """
    C = p.shape[1]
    found = {"likeliest": _table(y, p.argmax(axis=1), C)}
    if C > 2:
        return found
    thresholds = np.unique(np.quantile(p[:, 1], np.linspace(0.01, 0.99, 99)))
    said = [(p[:, 1] > t).astype(int) for t in thresholds]
    recognised = [sum(_recall(y, one, c) or 0.0 for c in (0, 1)) for one in said]
    best = int(np.argmax(recognised))
    return found | {"best": _table(y, said[best], C), "threshold": float(thresholds[best])}


def by_class(y: np.ndarray, p: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """Of each class its rows, mean probability, shares recognised and rightly called, and AUC against the
    rest; None where there is nothing to tell it from.
    """
    said, out = p.argmax(axis=1), []
    for c, name in enumerate(names):
        called = said == c
        there = 0 < np.mean(y == c) < 1
        out.append({
            "name": name, "rows": int(np.sum(y == c)), "share": float(np.mean(y == c)),
            "mean": float(p[:, c].mean()), "recall": _recall(y, said, c),
            "precision": float(np.mean(y[called] == c)) if called.any() else None,
            "auc": metrics.auc((y == c).astype(int), p[:, c]) if there else None,
        })  # fmt: skip
    return out


def sets(held_out: HeldOutClasses, seed: int = 0) -> list[dict[str, Any]]:
    """What sets of classes hold and how many classes they need, level by level; none where rows are few.

    Each half of the rows is judged by the other, so that no row sizes its own set. "low" and "high" are the
    95% range of chance of the share that such sets hold: scores of any model rank as uniform numbers.
    """
    rng, q = np.random.default_rng(seed), len(held_out)
    halves = np.array_split(rng.permutation(q), 2)
    drawn = rng.random((CHANCE_DRAWS, q))
    out = []
    for level in SET_LEVELS:
        if any(rank(len(half), level) > len(half) for half in halves):
            continue
        held, size = np.zeros(q, bool), np.zeros(q, int)
        chance = np.zeros(CHANCE_DRAWS)
        for own, other in (halves, halves[::-1]):
            calibration = ClassCalibration.fit(held_out.p[other], held_out.y[other])
            found = calibration.sets(held_out.p[own], level)
            held[own], size[own] = found[np.arange(len(own)), held_out.y[own]], found.sum(axis=1)
            k = rank(len(other), level)
            chance += np.sum(drawn[:, own] <= np.sort(drawn[:, other], axis=1)[:, [k - 1]], axis=1) / q
        low, high = np.quantile(chance, [0.025, 0.975])
        out.append({"promised": level, "held": float(held.mean()), "low": low, "high": high,
                    "size": float(size.mean()), "single": float(np.mean(size == 1))})  # fmt: skip
    return out


def _recall(y: np.ndarray, said: np.ndarray, c: int) -> float | None:
    """The share of the rows of class c that are called so."""
    rows = y == c
    return float(np.mean(said[rows] == c)) if rows.any() else None


def _table(y: np.ndarray, said: np.ndarray, n_classes: int) -> list[list[int]]:
    counts = np.bincount(y * n_classes + said, minlength=n_classes**2)
    return counts.reshape(n_classes, n_classes).tolist()


def headline(summary: Summary) -> str:
    s, most = summary["scores"], max(summary["by_class"], key=lambda one: one["rows"])
    right = f"the likeliest class came in {percent(s['accuracy'], 1)} of {summary['rows']:,} held-out rows"
    return f"{short(summary['target'])}: {right}; {percent(most['share'], 1)} are {short(most['name'])}."


def lede(summary: Summary) -> str:
    """Whether the probabilities are what they say, and how many classes sets need."""
    s = summary["scores"]
    found = f"Probabilities are off by {percent(s['ece'], 1)} on average (ECE); by chance alone"
    found += f" {percent(s['ece_low'], 1)} to {percent(s['ece_high'], 1)}."
    found += " That is within chance." if s["ece"] <= s["ece_high"] else " They do not hold what they say."
    usual = [one for one in summary["sets"] if one["promised"] == 0.95]
    if usual:
        one = usual[0]
        found += (
            f" Sets that hold the class that comes in 95% of rows have {number(one['size'], 2)} classes on"
        )
        found += f" average; {percent(one['single'])} of them have one."
    return found


def tiles(summary: Summary) -> list[dict[str, str]]:
    """The scores at a glance."""
    s, beside = summary["scores"], summary["beside"] or {}
    fine = s["ece"] <= s["ece_high"]
    why = "" if fine else f"Why: right probabilities are off by at most {percent(s['ece_high'], 1)}"
    entries = [
        ("", "Likeliest class came", percent(s["accuracy"], 1), f"of the rows{boosted(beside, 'accuracy')}",
         ""),
        ("", "Log loss", number(s["log_loss"]), f"smaller is better{boosted(beside, 'log_loss')}", ""),
        ("good" if fine else "fair", "Calibration error", percent(s["ece"], 1), "ECE: mean gap of probability"
         " and share", why),
        ("", "AUC", number(s["auc"]), f"1 tells classes apart, 0.5 does not{boosted(beside, 'auc')}", ""),
        ("", "Brier score", number(s["brier"]), f"smaller is better{boosted(beside, 'brier')}", ""),
    ]  # fmt: skip
    return [dict(zip(("tone", "name", "value", "note", "why"), entry, strict=True)) for entry in entries]


def score_rows(summary: Summary) -> list[list[str]]:
    """Name, value, that of gradient boosting where it was fitted, and meaning of each score."""
    s, beside = summary["scores"], summary["beside"] or {}
    words = {
        "log_loss": ("Log loss", "mean −log probability of the class that came; smaller is better"),
        "auc": ("AUC", "how often a row of a class gets a higher probability of it than one of another"),
        "brier": ("Brier score", "mean square of probability − outcome; smaller is better"),
        "accuracy": ("Accuracy", "share of rows whose likeliest class came"),
    }
    return [
        [title, number(s[key]), number(beside[key]) if beside.get(key) is not None else "", meaning]
        for key, (title, meaning) in words.items()
        if s[key] is not None
    ]


def class_rows(summary: Summary) -> list[list[str]]:
    return [
        [short(c["name"]), f"{c['rows']:,}", percent(c["share"], 1), percent(c["mean"], 1),
         percent(c["recall"], 1), percent(c["precision"], 1), number(c["auc"])]
        for c in summary["by_class"]
    ]  # fmt: skip


def set_rows(summary: Summary) -> list[list[str]]:
    return [
        [percent(one["promised"]), percent(one["held"], 1),
         " to ".join(percent(one[end], 1) for end in ("low", "high")), number(one["size"]),
         percent(one["single"])]
        for one in summary["sets"]
    ]  # fmt: skip


def render_terminal_classes(summary: Summary, console: Console, verbose: bool = False) -> None:
    """The answer, scores beside gradient boosting, classes, sets, warnings."""
    from rich.text import Text

    console.print(Text(headline(summary), style="bold"))
    console.print(Text(lede(summary)))
    if told := drivers(summary.get("ranking", ()), "share of what there is to know of the classes lost"):
        console.print(Text(told))
    console.print(text_table("", ("score", "widegp", "boosting", ""), score_rows(summary), numbers=(1, 2)))
    heads = ("class", "rows", "share", "predicted", "recognised", "rightly called", "AUC")
    console.print(text_table("", heads, class_rows(summary), numbers=range(1, 7)))
    if summary["sets"]:
        held = ("sets promise", "hold", "range of chance", "classes", "one class")
        console.print(text_table("", held, set_rows(summary), numbers=range(5)))
    print_fit(summary, console, verbose)


def render_html_classes(summary: Summary) -> str:
    """The page, whole and self-contained."""
    e = summary["explanation"]
    values: dict[str, Any] = {
        "svg": class_figures.drawn(summary), "tiles": tiles(summary), "scores": score_rows(summary),
        "by_class": class_rows(summary), "sets": set_rows(summary),
        "confusions": class_figures.confusions(summary),
        "ranking": sections.ranking(summary) if e else None,
        "effects": class_figures.effects(summary) if e else [], "band": e["words"]["band"] if e else "",
        "columns": sections.columns(summary), "facts": fit_facts(summary),
        "provenance": sections.provenance(summary),
    }  # fmt: skip
    keys = ("scores", "probabilities", "confusion", "sets", "inputs", "data", "fit", "provenance")
    there = {"sets": values["sets"], "inputs": values["ranking"], "data": values["columns"]}
    return render(
        "classes.html", s=summary, kicker=kicker(summary), headline=headline(summary), lede=lede(summary),
        links=links(keys, there), **values,
    )  # fmt: skip
