"""The figures of a report, each drawn from its part of the summary."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from widegp.report.formatting import exact, percent, short
from widegp.report.svg import BLUE, GREY, INK, MUTED, ORANGE, label, legend, log_scale, new_figure, new_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beyond these, bars hide each other and points make the file heavy: points then become an image.
BARS = 160
VECTOR_POINTS = 400
# Levels, and letters of them, that have room side by side; longer names of levels are cut.
MOST_LEVELS, MOST_LETTERS, LONGEST_LEVEL = 6, 34, 20


def predictions(held_out: dict[str, Any], target: str) -> Figure:
    """Observed against predicted; a bar is the interval, which on average sits on the diagonal."""
    figure, axes = new_figure()
    p = _points(held_out)
    bars = slice(None, None, max(1, -(-len(p["y"]) // BARS)))
    axes.vlines(p["mean"][bars], p["lower"][bars], p["upper"][bars], color=GREY, lw=1.2, alpha=0.45, zorder=2)
    ends = (min(p["mean"].min(), p["y"].min()), max(p["mean"].max(), p["y"].max()))
    axes.plot(ends, ends, color=MUTED, lw=1, ls="--", zorder=1)
    _scatter(axes, p["mean"], p["y"], p["inside"], held_out["inside"])
    label(axes, f"predicted {short(target)}", f"observed {short(target)}")
    legend(axes, 2)
    return figure


def residuals(held_out: dict[str, Any], target: str) -> Figure:
    """Observed minus predicted against predicted, with the mean in bins and twice its standard error."""
    figure, axes = new_figure()
    p, trend = _points(held_out), held_out["trend"]
    axes.axhline(0, color=MUTED, lw=1, ls="--", zorder=1)
    _scatter(axes, p["mean"], p["y"] - p["mean"], p["inside"], held_out["inside"])
    axes.errorbar(
        trend["x"], trend["mean"], trend["error"], color=INK, lw=1.4, marker="s", ms=3.5, capsize=2, zorder=4,
        label="mean residual",
    )  # fmt: skip
    label(axes, f"predicted {short(target)}", "observed − predicted")
    legend(axes, 2)
    return figure


def calibration(held_out: dict[str, Any]) -> Figure:
    """Share of rows held by intervals of every level, against the level."""
    figure, axes = new_figure()
    levels = held_out["calibration"]
    x, held, low, high = (np.array([row[k] for row in levels]) for k in ("promised", "held", "low", "high"))
    axes.fill_between(x, low, high, color=GREY, alpha=0.3, lw=0, label="range of chance")
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--", label="as promised")
    axes.plot(x, held, color=BLUE, lw=2, label="this model")
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    label(axes, "interval promises", "interval holds")
    legend(axes)
    return figure


def by_prediction(held_out: dict[str, Any], target: str) -> Figure:
    """Coverage of equally many rows against their prediction, with its range of chance, above mean width."""
    figure, (top, bottom) = new_panels(2)
    groups = held_out["by_prediction"]
    ends = np.array([[part["start"], part["end"]] for part in groups])
    held, low, high = (np.array([part["coverage"][0][k] for part in groups]) for k in ("held", "low", "high"))
    middle, half = ends.mean(1), np.diff(ends, axis=1)[:, 0] / 2
    top.bar(ends[:, 0], high - low, 2 * half, low, align="edge", color=GREY, alpha=0.3, lw=0,
            label="range of chance")  # fmt: skip
    top.axhline(held_out["level"], color=MUTED, lw=1, ls="--", label="as promised")
    missed = (held < low) | (held > high)
    for rows, colour, marker in ((~missed, BLUE, "o"), (missed, ORANGE, "D")):
        style: dict[str, Any] = {"color": colour, "marker": marker, "lw": 0, "elinewidth": 1.6, "ms": 5}
        top.errorbar(middle[rows], held[rows], xerr=half[rows], **style)
    top.set_ylim(max(0.0, min(held.min(), low.min()) - 0.05), 1.02)
    top.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    widths = np.array([np.nan if part["width"] is None else part["width"] for part in groups])
    bottom.plot(middle, widths, color=INK, lw=1.4, marker="s", ms=3.5)
    if np.isfinite(widths).any():
        bottom.set_ylim(0, 1.1 * np.nanmax(widths))
    label(top, "", "share held")
    label(bottom, f"predicted {short(target)}", "mean width")
    legend(top)
    return figure


def pit(held_out: dict[str, Any]) -> Figure:
    """Histogram of the predictive probabilities of what was observed; flat is as promised."""
    figure, axes = new_figure()
    part = held_out["pit"]
    counts = np.array(part["counts"])
    edges = np.linspace(0, 1, len(counts) + 1)
    axes.axhspan(part["low"], part["high"], color=GREY, alpha=0.3, lw=0, label="range of chance")
    axes.axhline(part["expected"], color=MUTED, lw=1, ls="--", label="as promised")
    axes.stairs(counts, edges, baseline=None, color=BLUE, lw=2.2, label="this model")
    axes.set(xlim=(0, 1), ylim=(0, 1.15 * max(counts.max(), part["high"])))
    label(axes, "predictive probability of a smaller value", "held-out rows")
    legend(axes)
    return figure


def rootogram(held_out: dict[str, Any], target: str) -> Figure:
    """Square roots of how many rows have each count, hung from those expected: bars should end at zero."""
    figure, axes = new_figure()
    found = {name: np.array(values, float) for name, values in held_out["rootogram"].items()}
    place, expected = np.arange(len(found["first"])), np.sqrt(np.maximum(found["expected"], 0.0))
    observed = np.sqrt(found["observed"])
    axes.bar(place, observed, bottom=expected - observed, color=BLUE, alpha=0.55, label="held-out rows")
    axes.plot(place, expected, color=ORANGE, lw=1.6, marker="o", ms=3, label="expected")
    axes.axhline(0, color=MUTED, lw=1)
    some = place[:: max(1, -(-len(place) // 6))]
    axes.set_xticks(some, [f"{found['last'][k]:.0f}" for k in some])
    label(axes, f"{short(target)}, up to", "square root of rows")
    legend(axes)
    return figure


def quantiles(held_out: dict[str, Any]) -> Figure:
    """Standardised residuals against normal quantiles, in order."""
    figure, axes = new_figure()
    q = {name: np.array(values, float) for name, values in held_out["quantiles"].items()}
    axes.fill_between(q["theory"], q["low"], q["high"], color=GREY, alpha=0.3, lw=0, label="range of chance")
    axes.plot(q["theory"], q["theory"], color=MUTED, lw=1, ls="--", label="as promised")
    axes.plot(q["theory"], q["observed"], color=BLUE, lw=0, marker="o", ms=3, mew=0, label="held-out rows")
    label(axes, "normal quantile", "standardised residual")
    legend(axes)
    return figure


def learning_path(fit: dict[str, Any]) -> Figure:
    """The objective above its best value, per iteration, on a log axis."""
    figure, axes = new_figure()
    path = np.array(fit["path"], float)
    gap = path - np.min(path[np.isfinite(path)], initial=np.inf)
    left = gap > 0
    axes.plot(np.flatnonzero(left), gap[left], color=BLUE, lw=2)
    best = np.flatnonzero(~left)
    if left.any():
        log_scale(axes, "y")
        axes.plot(best, np.full(len(best), gap[left].min()), color=INK, lw=0, marker="o", ms=5, label="best")
        legend(axes)
    label(axes, "iteration", "objective above its best value")
    return figure


def parameter(entry: dict[str, Any]) -> Figure:
    """Prior in grey, what the data made of it in blue, the estimate as a line."""
    figure, axes = new_figure((2.7, 1.1))
    curves = entry["curves"]
    x = np.array(curves["x"])
    if curves["prior"]:
        axes.fill_between(x, curves["prior"], color=GREY, alpha=0.35, lw=0)
    if curves["posterior"]:
        axes.fill_between(x, curves["posterior"], color=BLUE, alpha=0.25, lw=0)
        axes.plot(x, curves["posterior"], color=BLUE, lw=1.5)
    axes.locator_params(axis="x", nbins=4)
    values = np.atleast_1d(entry["value"])
    axes.vlines(values, 0, 1 if len(values) == 1 else 0.5, color=INK, lw=1.4)
    if curves["scale"] == "log":
        log_scale(axes, "x")
    axes.set(xlim=(x[0], x[-1]) if curves["scale"] != "unit" else (0, 1), ylim=(0, 1.08), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.tick_params(labelsize=8.5)
    axes.grid(False)
    return figure


def common_limits(curves: list[dict[str, Any]]) -> tuple[float, float]:
    """One range of y for all curves: on axes of their own, a flat one would look as steep as any."""
    low = min(min(curve[key]) for curve in curves for key in ("lower", "rows_lower"))
    high = max(max(curve[key]) for curve in curves for key in ("upper", "rows_upper"))
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def kernel_shape(shape: dict[str, Any]) -> Figure:
    """K over the correlation or the distance of two rows: its parts, and their sum."""
    figure, axes = new_figure()
    x = np.array(shape["x"])
    parts = {name: np.array(values) for name, values in shape["parts"].items()}
    styles = {"level": (MUTED, ":"), "smooth": (BLUE, "-"), "angular": (ORANGE, "--"), "network": (BLUE, "-")}
    axes.axhline(0, color=GREY, lw=0.8)
    others = cycle([(BLUE, "-"), (ORANGE, "--"), (GREY, "-."), (MUTED, ":")])
    for name, values in parts.items():
        colour, line = styles[name] if name in styles else next(others)
        axes.plot(x, values, color=colour, ls=line, lw=2, label=f"{name} part")
    if len(parts) > 1:
        axes.plot(x, sum(parts.values()), color=INK, lw=2.4, label="whole kernel")
    if shape["axis"] == "correlation":
        axes.set(xlim=(-1, 1), xticks=np.linspace(-1, 1, 5))
        label(axes, "likeness of two rows (correlation ρ)", "covariance of f")
    else:
        axes.set(xlim=(x[0], x[-1]))
        label(axes, "distance of two rows (standardised inputs)", "covariance of f")
    legend(axes, 2)
    return figure


def partial_dependence(curve: dict[str, Any], target: str, limits: tuple[float, float]) -> Figure:
    """Mean of f along one input, its band, and the spread of the rows' own curves; y within ``limits``."""
    figure, axes = new_figure((3.5, 2.5))
    x, band = curve["x"], (curve["lower"], curve["upper"])
    if curve["discrete"]:
        x = np.arange(len(x))
        low, high = np.array(curve["mean"]) - band[0], band[1] - np.array(curve["mean"])
        axes.vlines(x, curve["rows_lower"], curve["rows_upper"], color=GREY, lw=9, alpha=0.3)
        axes.errorbar(x, curve["mean"], [low, high], color=BLUE, lw=0, elinewidth=2, marker="o", ms=6)
        axes.set(xlim=(-0.6, len(x) - 0.4))
        words = places(curve)
        axes.set_xticks(x, words)
        if len(words) > MOST_LEVELS or sum(map(len, words)) > MOST_LETTERS:
            axes.tick_params("x", rotation=90, labelsize="small")
            # Upright words leave the axis too low for the name of the target, which the other panels have.
            target = ""
    else:
        axes.fill_between(x, curve["rows_lower"], curve["rows_upper"], color=GREY, alpha=0.25, lw=0)
        axes.fill_between(x, *band, color=BLUE, alpha=0.3, lw=0)
        axes.plot(x, curve["mean"], color=BLUE, lw=2)
        axes.margins(x=0)
        if curve.get("kind") == "date":
            ends = [0, len(x) - 1]
            axes.set_xticks([x[g] for g in ends], [places(curve)[g] for g in ends])
    axes.set_ylim(*limits)
    label(axes, short(curve["name"]), short(target) if target else "")
    return figure


def places(curve: dict[str, Any]) -> list[str]:
    """What stands at the points of a curve: levels, dates or numbers."""
    labels = curve.get("labels")
    if labels is None:
        return [exact(x) for x in curve["x"]]
    return [short(text, LONGEST_LEVEL) for text in labels]


def _points(held_out: dict[str, Any]) -> dict[str, np.ndarray]:
    points = {name: np.array(values) for name, values in held_out["points"].items()}
    # An interval may be unbounded, which JSON writes as null: it then ends at the edge of the observed.
    ends = {"lower": points["y"].min(), "upper": points["y"].max()}
    for name, end in ends.items():
        column = points[name].astype(float)
        points[name] = np.where(np.isnan(column), end, column)
    return points


def _scatter(axes: Any, x: np.ndarray, y: np.ndarray, inside: np.ndarray, share: float) -> None:
    """Rows inside their interval and outside, told apart by colour and marker; ``share`` are inside."""
    many = len(x) > VECTOR_POINTS
    size = 9 if many else 15
    faint = float(np.clip(1500 / len(x), 0.35, 0.85))
    kinds = ((inside, BLUE, "o", "inside", share), (~inside, ORANGE, "D", "outside", 1 - share))
    for rows, colour, marker, word, part in kinds:
        opacity = faint if word == "inside" else 0.85
        style = {"color": colour, "marker": marker, "linewidths": 0}
        axes.scatter(x[rows], y[rows], s=size, alpha=opacity, rasterized=many, zorder=3, **style)
        # Faint points add up in the panel; the one in the legend stands alone.
        axes.scatter([], [], s=16, label=f"{word} its interval ({percent(part, 1)})", **style)
