"""A model of two classes summed up: how probable the classes were that came, and how well told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from widegp import metrics
from widegp.held_out import HeldOut
from widegp.report.formatting import clean, moment, number, percent, plain, seconds, short
from widegp.report.page import render
from widegp.report.svg import BLUE, GREY, MUTED, inline_svg, label, legend, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

Summary = dict[str, Any]
BINS = 10
CURVE_POINTS = 200


def summarise_classes(held_out: HeldOut, provenance: Mapping[str, Any], result: Any) -> Summary:
    """Scores, reliability, ROC, precision and recall, confusion; P(second class) is the held-out ``mean``."""
    y, p = (held_out.y == 1).astype(int), np.clip(held_out.mean, 1e-15, 1 - 1e-15)
    both, given = 0 < y.mean() < 1, dict(provenance)
    low, high = metrics.ece_by_chance(p)
    scores = {
        "log_loss": metrics.log_loss(y, p), "brier": metrics.brier(y, p), "ece": metrics.ece(y, p),
        "ece_low": low, "ece_high": high, "auc": metrics.auc(y, p) if both else None,
        "accuracy": float(np.mean((p > 0.5) == y)), "share": float(y.mean()),
    }  # fmt: skip
    return plain({
        "target": clean(given.get("target", "the target")), "classes": list(given["classes"]),
        "rows": len(y), "scores": scores, "beside": given.get("beside"), "reliability": reliability(y, p),
        "roc": roc(y, p) if both else None, "confusion": confusion(y, p),
        "fit": {"reason": str(result.reason), "iterations": result.n_iter, "seconds": given.get("seconds")},
        "warnings": list(given.get("warnings", ())), "notes": list(result.notes), "provenance": given,
    })  # fmt: skip


def reliability(y: np.ndarray, p: np.ndarray) -> list[dict[str, float]]:
    """Mean probability and share that came, within bins of equally many rows, with the share's 95% range of
    chance if the probabilities were right.
    """
    out = []
    for rows in np.array_split(np.argsort(p, kind="stable"), min(BINS, len(p))):
        low, high = stats.binom.interval(0.95, len(rows), float(p[rows].mean()))
        out.append({"p": float(p[rows].mean()), "came": float(y[rows].mean()), "rows": len(rows),
                    "low": low / len(rows), "high": high / len(rows)})  # fmt: skip
    return out


def roc(y: np.ndarray, p: np.ndarray) -> dict[str, np.ndarray]:
    """False and true positive rates, precision and recall, over all thresholds; thinned."""
    order = np.argsort(-p, kind="stable")
    hits, misses = np.cumsum(y[order]), np.cumsum(1 - y[order])
    kept = np.unique(np.linspace(0, len(y) - 1, min(CURVE_POINTS, len(y))).astype(int))
    recall = hits[kept] / hits[-1]
    return {"false": misses[kept] / misses[-1], "true": recall, "precision": hits[kept] / (kept + 1)}


def confusion(y: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    """Rows by class that came and class predicted, [[tn, fp], [fn, tp]], at 1/2 and at the threshold with the
    largest sum of both classes' shares that are recognised.
    """
    thresholds = np.unique(np.quantile(p, np.linspace(0.01, 0.99, 99)))
    balanced = [_recognised(y, p > t) for t in thresholds]
    best = float(thresholds[int(np.argmax(balanced))])
    return {"half": _table(y, p > 0.5), "best": _table(y, p > best), "threshold": best}


def _recognised(y: np.ndarray, said: np.ndarray) -> float:
    parts = [said[y == 1], ~said[y == 0]]
    return sum(float(part.mean()) for part in parts if part.size)


def _table(y: np.ndarray, said: np.ndarray) -> list[list[int]]:
    return [[int(np.sum((y == c) & (said == bool(k)))) for k in (0, 1)] for c in (0, 1)]


def headline(summary: Summary) -> str:
    s, second = summary["scores"], summary["classes"][1]
    right = f"{percent(s['accuracy'], 1)} of {summary['rows']:,} held-out rows are of the likelier class"
    return f"{short(summary['target'])}: {right}; {percent(s['share'], 1)} are {second}."


def lede(summary: Summary) -> str:
    """Whether the probabilities are what they say."""
    s = summary["scores"]
    found = f"Probabilities are off by {percent(s['ece'], 1)} on average (ECE); by chance alone"
    found += f" {percent(s['ece_low'], 1)} to {percent(s['ece_high'], 1)}."
    return found + (" They hold what they say." if s["ece"] <= s["ece_high"] else " They do not hold it.")


def score_rows(summary: Summary) -> list[list[str]]:
    """Name, value and meaning of each score, and that of gradient boosting where it was fitted."""
    s, beside = summary["scores"], summary["beside"] or {}
    words = {
        "log_loss": ("Log loss", "mean −log probability of the class that came; smaller is better"),
        "auc": ("AUC", "how often a row of the second class gets the higher probability"),
        "brier": ("Brier score", "mean square of probability − outcome; smaller is better"),
        "accuracy": ("Accuracy", "share of rows whose likelier class came"),
    }
    return [
        [title, number(s[key]), number(beside[key]) if key in beside else "", meaning]
        for key, (title, meaning) in words.items()
        if s[key] is not None
    ]


def render_terminal_classes(summary: Summary, console: Console) -> None:
    """The answer, scores beside gradient boosting, the confusion, warnings."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console.print(Text(headline(summary), style="bold"))
    console.print(Text(lede(summary)))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("score", "widegp", "boosting", ""):
        table.add_column(name, justify="right" if name in ("widegp", "boosting") else "left")
    for row in score_rows(summary):
        table.add_row(*row)
    console.print(table)
    first, second = summary["classes"]
    (tn, fp), (fn, tp) = summary["confusion"]["half"]
    console.print(Text(f"Of {tn + fp:,} {first}, {tn:,} are recognised; of {fn + tp:,} {second}, {tp:,}."))
    fit = summary["fit"]
    console.print(Text(f"Fit: {fit['reason']}, {fit['iterations']} iterations, {seconds(fit['seconds'])}."))
    for text in summary["warnings"]:
        console.print(Text(text))


def render_html_classes(summary: Summary) -> str:
    """The page, whole and self-contained."""
    drawn = {
        "reliability": (_reliability_figure(summary), "Share that came against predicted probability."),
        "roc": (_roc_figure(summary), "True positive rate against false positive rate."),
        "precision": (_precision_figure(summary), "Precision against recall."),
    }
    svg = {name: inline_svg(figure, name, words) for name, (figure, words) in drawn.items() if figure}
    when = summary["provenance"].get("date")
    kicker = ["widegp report", f"{summary['rows']:,} held-out rows", "" if when is None else moment(when)]
    return render(
        "classes.html", s=summary, svg=svg, kicker=[part for part in kicker if part],
        headline=headline(summary), lede=lede(summary), scores=score_rows(summary),
    )  # fmt: skip


def _reliability_figure(summary: Summary) -> Figure:
    figure, axes = new_figure()
    p, came, low, high = (
        np.array([b[k] for b in summary["reliability"]]) for k in ("p", "came", "low", "high")
    )
    axes.fill_between(p, low, high, color=GREY, alpha=0.3, lw=0, label="range of chance")
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--", label="as said")
    axes.plot(p, came, color=BLUE, lw=1.6, marker="o", ms=4, label="this model")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label(axes, f"predicted probability of {short(summary['classes'][1])}", "share that came")
    legend(axes)
    return figure


def _roc_figure(summary: Summary) -> Figure | None:
    if summary["roc"] is None:
        return None
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--", label="by chance")
    axes.plot(summary["roc"]["false"], summary["roc"]["true"], color=BLUE, lw=2, label="this model")
    label(axes, "false positive rate", "true positive rate")
    legend(axes)
    return figure


def _precision_figure(summary: Summary) -> Figure | None:
    if summary["roc"] is None:
        return None
    figure, axes = new_figure()
    axes.axhline(summary["scores"]["share"], color=MUTED, lw=1, ls="--", label="by chance")
    axes.plot(summary["roc"]["true"], summary["roc"]["precision"], color=BLUE, lw=2, label="this model")
    axes.set(ylim=(0, 1.02))
    label(axes, "recall", "precision")
    legend(axes)
    return figure
