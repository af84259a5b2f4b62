"""A model of several outputs summed up: scores and calibration of each, what their errors have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from widegp.held_out import HeldOut
from widegp.report import figures, sections
from widegp.report.calibration import chance, coverage, normal_scores
from widegp.report.class_figures import STYLES
from widegp.report.formatting import clean, listed, number, percent, plain, short
from widegp.report.page import render
from widegp.report.svg import GREY, MUTED, inline_svg, label, legend, new_figure
from widegp.report.targets import drivers, fit_facts, fit_of, kicker, links, print_fit, text_table

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure
    from rich.console import Console

Summary = dict[str, Any]
LEVELS = (0.5, 0.8, 0.95)
# Curves of calibration at these levels.
CURVE = np.linspace(0.02, 0.98, 49)
SHOWN_ROWS = 2000


def summarise_outputs(
    held_out: Sequence[HeldOut], provenance: Mapping[str, Any], results: Sequence[Any],
    columns: Sequence[Mapping[str, Any]] = (), explanation: Mapping[str, Any] | None = None,
) -> Summary:  # fmt: skip
    """Scores of each output beside gradient boosting, coverage, calibration, correlation of the errors.

    results : how the fit ended.    explanation : of `widegp.explain.explain`, or None.
    """
    given = dict(provenance)
    names, beside = [clean(name) for name in given["targets"]], given.pop("beside", None)
    outputs = [
        {
            "name": name, "scores": one.scores(), "beside": beside[t] if beside else None,
            "coverage": [coverage(one, level).to_dict() for level in LEVELS],
            "calibration": [float(np.mean(one.depth <= level)) for level in CURVE],
            "level": one.level, "points": _points(one), "inside": float(one.inside.mean()),
        }
        for t, (name, one) in enumerate(zip(names, held_out, strict=True))
    ]  # fmt: skip
    return plain({
        "kind": "outputs", "target": listed(names), "targets": names, "rows": len(held_out[0]),
        "outputs": outputs, "energy_score": given.pop("energy_score", None),
        "correlation": error_correlation(held_out), "explanation": explanation, "columns": list(columns),
        "fit": fit_of(results, given),
        "notes": list(dict.fromkeys(note for one in results for note in one.notes)),
        "warnings": given.pop("warnings", []), "provenance": given,
    })  # fmt: skip


def error_correlation(held_out: Sequence[HeldOut]) -> list[list[float]]:
    """Correlations (T, T) of the normal scores of what was observed; outputs are predicted as if independent
    given the inputs, so that those of a sum or a difference are right only where these are near 0.
    """
    z = np.stack([normal_scores(one.pit) for one in held_out])
    if z.shape[1] < 3:
        return np.eye(len(z)).tolist()
    return np.nan_to_num(np.corrcoef(z)).tolist()


def _points(one: HeldOut) -> dict[str, Any]:
    shown = one.thinned(SHOWN_ROWS)
    return {name: getattr(shown, name) for name in ("y", "mean", "lower", "upper", "inside")}


def headline(summary: Summary) -> str:
    each = [f"{percent(one['scores'].get('r2'))} of {short(one['name'])}" for one in summary["outputs"]]
    told = listed(each[:4]) if len(each) <= 4 else f"{', '.join(each[:4])} and {len(each) - 4} more"
    return f"The model explains {told}."


def lede(summary: Summary) -> str:
    """What the intervals held, output by output, and whether errors go together."""
    told = [(one["name"], c) for one in summary["outputs"] for c in one["coverage"]]
    # Each share is tested so that all together are silent in 95 of 100 forecasts that are right.
    beyond = [
        f"{percent(c['held'], 1)} of {short(name)} at {percent(c['promised'])}"
        for name, c in told
        if not _within(c["held"], c["promised"], summary["rows"], 0.05 / len(told))
    ]
    levels = listed([percent(level) for level in LEVELS])
    held = f"Their intervals of {levels} held what they promise, within chance"
    held += f", but for {listed(beyond)}." if beyond else "."
    C = np.array(summary["correlation"])
    np.fill_diagonal(C, 0)
    a, b = np.unravel_index(np.abs(C).argmax(), C.shape)
    if abs(C[a, b]) < stats.norm.isf(0.005) / np.sqrt(max(summary["rows"] - 3, 1)):
        return f"{held} Errors of different outputs do not go together."
    names = [short(summary["targets"][k]) for k in sorted((a, b))]
    return f"{held} Errors of {listed(names)} go together (correlation {number(float(C[a, b]), 2)})."


def _within(held: float, promised: float, rows: int, size: float) -> bool:
    """Whether a test of ``size`` leaves a share held of ``rows`` to chance."""
    low, high = stats.binom.interval(1 - size, rows, promised)
    return bool(low <= round(held * rows) <= high)


def score_rows(summary: Summary) -> list[list[str]]:
    """An output a row: typical error, that of boosting, R2, NLL in units of the spread, CRPS, width."""
    return [
        [short(one["name"]), number(s["rmse"]),
         number(one["beside"]["rmse"]) if one["beside"] else "", percent(s.get("r2"), 1), number(s["nll_z"]),
         number(s["crps"]), number(s["width"])]
        for one in summary["outputs"] for s in (one["scores"],)
    ]  # fmt: skip


def coverage_rows(summary: Summary) -> list[list[str]]:
    """An output a row: the shares that intervals of each level held; the range of chance is the last row."""
    rows = [[short(one["name"]), *(percent(c["held"], 1) for c in one["coverage"])]
            for one in summary["outputs"]]  # fmt: skip
    first = summary["outputs"][0]["coverage"]
    return [*rows, ["range of chance", *(f"{percent(c['low'])} to {percent(c['high'])}" for c in first)]]


SCORES = ("output", "RMSE", "boosting", "R²", "NLL (sd)", "CRPS", "width of 95%")


def render_terminal_outputs(summary: Summary, console: Console, verbose: bool = False) -> None:
    """The answer, a line of scores and one of coverages for each output, warnings."""
    from rich.text import Text

    console.print(Text(headline(summary), style="bold"))
    console.print(Text(lede(summary)))
    if told := drivers(summary.get("ranking", ())):
        console.print(Text(told))
    console.print(text_table("", SCORES, score_rows(summary), numbers=range(1, 7)))
    heads = ("intervals held", *map(percent, LEVELS))
    console.print(text_table("", heads, coverage_rows(summary), numbers=range(1, 4)))
    print_fit(summary, console, verbose)


def render_html_outputs(summary: Summary) -> str:
    """The page, whole and self-contained."""
    e, names = summary["explanation"], [short(name) for name in summary["targets"]]
    correlation = [[name, *(number(v, 2) for v in row)]
                   for name, row in zip(names, summary["correlation"], strict=True)]  # fmt: skip
    values: dict[str, Any] = {
        "scores": score_rows(summary),
        "score_heads": [(SCORES[0], ""), *((head, "n") for head in SCORES[1:])],
        "coverage": coverage_rows(summary),
        "coverage_heads": [("output", ""), *((percent(level), "n") for level in LEVELS)],
        "correlation": correlation, "correlation_heads": [("", ""), *((name, "n") for name in names)],
        "calibration": inline_svg(_calibration(summary), "calibration", "Share held against level promised."),
        "predictions": _predictions(summary), "ranking": sections.ranking(summary) if e else None,
        "effects": _effects(summary) if e else [], "band": e["words"]["band"] if e else "",
        "columns": sections.columns(summary), "facts": fit_facts(summary),
        "provenance": sections.provenance(summary),
    }  # fmt: skip
    keys = ("outputs", "intervals", "errors", "inputs", "data", "fit", "provenance")
    there = {"inputs": values["ranking"], "data": values["columns"]}
    return render(
        "outputs.html", s=summary, kicker=kicker(summary), headline=headline(summary), lede=lede(summary),
        links=links(keys, there), **values,
    )  # fmt: skip


def _calibration(summary: Summary) -> Figure:
    """Share of rows held by intervals of every level, a line for each output."""
    figure, axes = new_figure()
    low, high = np.array([chance(float(level), summary["rows"]) for level in CURVE]).T
    axes.fill_between(CURVE, low, high, color=GREY, alpha=0.3, lw=0, label="range of chance")
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--")
    for one, (colour, line) in zip(summary["outputs"], cycle(STYLES), strict=False):
        axes.plot(CURVE, one["calibration"], color=colour, ls=line, lw=1.8, label=short(one["name"]))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    label(axes, "interval promises", "interval held")
    legend(axes)
    return figure


def _predictions(summary: Summary) -> list[Markup]:
    return [
        inline_svg(
            figures.predictions({key: one[key] for key in ("points", "inside")}, one["name"]), f"output-{t}",
            f"Observed against predicted {short(one['name'])} for held-out rows.",
        )
        for t, one in enumerate(summary["outputs"])
    ]  # fmt: skip


def _effects(summary: Summary) -> list[Markup]:
    """A curve for each of the strongest inputs and each output; curves of one output share their scale."""
    drawn: list[Markup] = []
    curves = summary["explanation"]["partial_dependence"]
    for t, name in enumerate(summary["targets"]):
        own = [curve | curve["outputs"][t] for curve in curves]
        limits = figures.common_limits(own)
        drawn += [
            inline_svg(
                figures.partial_dependence(curve, name, limits), f"effect-{t}-{i}",
                f"Mean prediction of {short(name)} along {short(curve['name'])}, from"
                f" {number(curve['mean'][0])} to {number(curve['mean'][-1])}.",
            )
            for i, curve in enumerate(own)
        ]  # fmt: skip
    return drawn
