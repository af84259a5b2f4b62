"""The figures of a report of classes."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from widegp.report.figures import places
from widegp.report.formatting import number, percent, short
from widegp.report.svg import BLUE, GREY, INK, MUTED, ORANGE, inline_svg, label, legend, new_figure

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

Summary = dict[str, Any]
# More lines than these cannot be told apart; the classes with the most rows are drawn.
LINES = 6
STYLES = ((BLUE, "-"), (ORANGE, "-"), (INK, "--"), (GREY, "-"), (BLUE, ":"), (ORANGE, "--"))
# More classes than these make a table too wide for a page.
TABLE_CLASSES = 12


def drawn(summary: Summary) -> dict[str, Markup]:
    """The figures by name; no curves where the held-out rows are all of one class."""
    found = {"reliability": (_reliability(summary), "Share that came against predicted probability.")}
    if summary["curves"]["roc"]:
        found |= {
            "roc": (_roc(summary), "True positive rate against false positive rate."),
            "precision": (_precision(summary), "Precision against recall."),
        }
    if len(summary["classes"]) > 2:
        found["confusion"] = (_confusion(summary), "Shares of the rows of each class by class predicted.")
    return {name: inline_svg(figure, name, words) for name, (figure, words) in found.items()}


def confusions(summary: Summary) -> list[dict[str, Any]]:
    """Tables of rows by class that came and class predicted, with what each is of."""
    found, names = summary["confusion"], summary["classes"]
    if len(names) > TABLE_CLASSES:
        return []
    heads = [("came", ""), *((short(name), "n") for name in names)]
    words = {"likeliest": "The likeliest class is predicted."}
    if "best" in found:
        words["best"] = (
            f"{short(names[1])} is predicted from a probability of {percent(found['threshold'])} on, which"
            " makes the sum of both recalls largest on these rows; on others it will be smaller."
        )

    def rows(key: str) -> list[list[str]]:
        return [[short(name), *map("{:,}".format, row)] for name, row in zip(names, found[key], strict=True)]

    return [{"caption": told, "heads": heads, "rows": rows(key)} for key, told in words.items()]


def effects(summary: Summary) -> list[Markup]:
    """Probabilities along each of the strongest inputs, all on one scale."""
    curves = summary["explanation"]["partial_dependence"]
    return [
        inline_svg(
            _effect(curve, summary),
            f"effect-{i}",
            f"Mean probability of {short(curve['output'])} along {short(curve['name'])}, from"
            f" {number(curve['mean'][0])} at {places(curve)[0]} to {number(curve['mean'][-1])} at"
            f" {places(curve)[-1]}.",
        )
        for i, curve in enumerate(curves)
    ]


def _shown(summary: Summary) -> list[str]:
    """The classes that are drawn, in their order."""
    most = sorted(summary["by_class"], key=lambda one: -one["rows"])[:LINES]
    kept = {one["name"] for one in most}
    return [name for name in summary["classes"] if name in kept]


def _styles(summary: Summary) -> dict[str, tuple[str, str]]:
    if len(summary["classes"]) == 2:
        return {summary["classes"][1]: STYLES[0]}
    return dict(zip(_shown(summary), cycle(STYLES), strict=False))


def _reliability(summary: Summary) -> Figure:
    figure, axes = new_figure()
    bins = summary["curves"]["reliability"]
    p, came, low, high = (np.array([b[k] for b in bins]) for k in ("p", "came", "low", "high"))
    axes.fill_between(p, low, high, color=GREY, alpha=0.3, lw=0, label="range of chance")
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--", label="as said")
    axes.plot(p, came, color=BLUE, lw=1.6, marker="o", ms=4, label="this model")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    of = short(summary["classes"][1]) if len(summary["classes"]) == 2 else "the likeliest class"
    label(axes, f"predicted probability of {of}", "share that came")
    legend(axes)
    return figure


def _roc(summary: Summary) -> Figure:
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--", label="by chance")
    for name, (colour, line) in _styles(summary).items():
        if name in summary["curves"]["roc"]:
            one = summary["curves"]["roc"][name]
            axes.plot(one["false"], one["true"], color=colour, ls=line, lw=2, label=short(name))
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    label(axes, "false positive rate", "true positive rate")
    legend(axes)
    return figure


def _precision(summary: Summary) -> Figure:
    figure, axes = new_figure()
    for name, (colour, line) in _styles(summary).items():
        if name in summary["curves"]["roc"]:
            one = summary["curves"]["roc"][name]
            axes.axhline(one["share"], color=colour, lw=1, alpha=0.5, ls=":")
            axes.plot(one["recall"], one["precision"], color=colour, ls=line, lw=2, label=short(name))
    axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.04))
    label(axes, "recall", "precision")
    legend(axes)
    return figure


def _confusion(summary: Summary) -> Figure:
    """A square for each class that came and class predicted, its area the share of the rows that came."""
    names = summary["classes"]
    counts = np.array(summary["confusion"]["likeliest"], float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(7.0, 2.4 + 0.42 * len(names))
    figure, axes = new_figure((side + 0.6, side))
    said, came = np.meshgrid(np.arange(len(names)), np.arange(len(names)))
    # A square of the whole cell is about 0.8 of the axes' length over the number of classes.
    whole = (0.78 * 72 * (side - 1.1) / len(names)) ** 2
    right = said == came
    for where, colour in ((right, BLUE), (~right, ORANGE)):
        areas = whole * shares[where]
        axes.scatter(said[where], came[where], s=areas, marker="s", color=colour, linewidths=0, alpha=0.85)
    axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5))
    axes.set_xticks(range(len(names)), [short(name) for name in names], rotation=90, fontsize=8)
    axes.set_yticks(range(len(names)), [short(name) for name in names], fontsize=8)
    label(axes, "predicted", "came")
    return figure


def _effect(curve: dict[str, Any], summary: Summary) -> Figure:
    """Probabilities of the classes along one input, with the spread of the rows' own curves."""
    figure, axes = new_figure((3.5, 2.5))
    styles = _styles(summary)
    places_x = np.arange(len(curve["x"])) if curve["discrete"] else curve["x"]
    for one in curve["outputs"]:
        if one["output"] not in styles:
            continue
        colour, line = styles[one["output"]]
        if curve["discrete"]:
            axes.vlines(places_x, one["rows_lower"], one["rows_upper"], color=colour, lw=7, alpha=0.15)
            axes.plot(places_x, one["mean"], color=colour, lw=0, marker="o", ms=6, label=short(one["output"]))
        else:
            axes.fill_between(places_x, one["rows_lower"], one["rows_upper"], color=colour, alpha=0.13, lw=0)
            axes.plot(places_x, one["mean"], color=colour, ls=line, lw=2, label=short(one["output"]))
            axes.margins(x=0)
    if curve["discrete"]:
        axes.set(xlim=(-0.6, len(places_x) - 0.4))
        axes.set_xticks(places_x, places(curve))
        if len(places_x) > 4 and curve.get("labels"):
            axes.tick_params("x", rotation=90, labelsize="small")
    elif curve.get("kind") == "date":
        ends = [0, len(places_x) - 1]
        axes.set_xticks([places_x[g] for g in ends], [places(curve)[g] for g in ends])
    axes.set_ylim(-0.03, 1.03)
    label(axes, short(curve["name"]), "probability")
    legend(axes)
    return figure
