"""The figures of the report, each drawn from what `studies` or the fits gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from widegp.paper.protocol import LEVELS
from widegp.report.svg import BLUE, GREY, INK, MUTED, ORANGE, label, legend, log_scale, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ((BLUE, "-"), (ORANGE, "--"), (INK, "-"), (GREY, "--"), (MUTED, ":"), (BLUE, ":"))
MARKERS = ("o", "s", "D", "^", "v", "P")


def shapes(found: Mapping[str, Any]) -> Figure:
    """Limit kernels over rho, centred and scaled: what Table (corr-kernels) correlates."""
    figure, axes = new_figure()
    for (name, curve), (colour, line) in zip(found["curves"].items(), STYLES, strict=False):
        axes.plot(found["rho"], curve, color=colour, ls=line, lw=1.8, label=name)
    axes.set(xlim=(-1, 1), xticks=np.linspace(-1, 1, 5))
    label(axes, "correlation of the pre-activations ρ", "kernel, centred and scaled")
    legend(axes)
    return figure


def networks(found: Mapping[str, Any]) -> Figure:
    """Distance of finite networks from their limit against the width, with the rates of theory."""
    figure, axes = new_figure()
    widths = np.array(found["widths"], float)
    drawn = (("covariance_error", "error of the covariance", BLUE, -0.5),
             ("excess_kurtosis", "excess kurtosis", ORANGE, -1.0))  # fmt: skip
    for name, words, colour, rate in drawn:
        values = np.abs(np.array(found[name], float))
        axes.plot(widths, values, color=colour, marker="o", ms=4, lw=0, label=words)
        centre = np.exp(np.mean(np.log(values) - rate * np.log(widths)))
        axes.plot(widths, centre * widths**rate, color=colour, lw=1, ls="--", label=f"rate H^{rate:g}")
    log_scale(axes, "x")
    log_scale(axes, "y")
    label(axes, "width H", "distance from the Gaussian limit")
    legend(axes, 2)
    return figure


def energy(found: Mapping[str, Any]) -> Figure:
    """Distances of the joint distribution: projections, and energy against its level of chance."""
    figure, axes = new_figure()
    widths = np.array(found["widths"], float)
    axes.axhline(max(found["energy_floor"], 0.0), color=MUTED, lw=1, ls=":", label="chance (energy)")
    axes.plot(widths, np.maximum(found["energy_distance"], 0), color=BLUE, marker="o", ms=4, label="energy")
    axes.plot(widths, found["ks_distance"], color=ORANGE, marker="s", ms=4, ls="--", label="projections (KS)")
    log_scale(axes, "x")
    label(axes, "width H", "distance of the distribution")
    legend(axes)
    return figure


def calibration(records: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Share of held-out rows inside central intervals of every level."""
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--", label="as promised")
    for (name, record), (colour, line) in zip(records.items(), STYLES, strict=False):
        axes.plot([0, *LEVELS, 1], [0, *record["held"], 1], color=colour, ls=line, lw=2, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))
    label(axes, "interval promises", "interval holds")
    legend(axes, 2)
    return figure


def pit(records: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Density of the predictive probabilities of what was observed; flat at 1 is as promised."""
    figure, axes = new_figure()
    axes.axhline(1, color=MUTED, lw=1, ls="--", label="as promised")
    for (name, record), (colour, line) in zip(records.items(), STYLES, strict=False):
        counts = np.array(record["pit"], float)
        edges = np.linspace(0, 1, len(counts) + 1)
        axes.stairs(counts / counts.mean(), edges, baseline=None, color=colour, ls=line, lw=2, label=name)
    axes.set(xlim=(0, 1))
    axes.set_ylim(bottom=0)
    label(axes, "predictive probability of a smaller value (PIT)", "density")
    legend(axes, 2)
    return figure


def cost(found: Mapping[str, Any]) -> Figure:
    """RMSE against seconds, a line per number of neighbours; along a line the rank grows."""
    figure, axes = new_figure()
    many = sorted({point["neighbors"] for point in found["points"]})
    for count, (colour, line), marker in zip(many, STYLES, MARKERS, strict=False):
        points = sorted((p for p in found["points"] if p["neighbors"] == count), key=lambda p: p["rank"])
        axes.plot(
            [p["seconds"] for p in points], [p["rmse"] for p in points], color=colour, ls=line, marker=marker,
            ms=4, label=f"{count} neighbours" if count else "anchors alone",
        )  # fmt: skip
    log_scale(axes, "x")
    label(axes, "seconds of one evaluation and the predictions", "RMSE of held-out rows")
    legend(axes, 2)
    return figure


def profile(found: Mapping[str, Any]) -> Figure:
    """The MAP loss above its minimum along one parameter; the line ends a 95% interval."""
    figure, axes = new_figure((3.0, 2.3))
    values, curve = np.array(found["values"]), np.array(found["curve"])
    axes.axhline(found["drop"], color=MUTED, lw=1, ls="--")
    axes.plot(values, curve, color=BLUE, lw=2, marker="o", ms=3)
    axes.axvline(found["estimate"], color=INK, lw=1)
    for end in found["interval"]:
        if end is not None:
            axes.axvline(end, color=ORANGE, lw=1, ls=":")
    if values[0] > 0 and values[-1] > 10 * values[0]:
        log_scale(axes, "x")
    axes.set_ylim(0, 3 * found["drop"])
    label(axes, found["name"], "loss above its minimum")
    return figure


def spectra(found: Mapping[str, Any]) -> Figure:
    """Eigenvalues of the information of the parameters' logarithms, largest first."""
    figure, axes = new_figure()
    axes.axhline(1.0, color=MUTED, lw=1, ls=":")
    rows = zip(found["designs"].items(), STYLES, MARKERS, strict=False)
    for (name, part), (colour, line), marker in rows:
        values = np.array(part["values"], float)
        values = np.maximum(values, values[0] * np.finfo(float).eps)
        x = np.arange(1, len(values) + 1)
        axes.plot(x, values, color=colour, ls=line, marker=marker, ms=4, label=name)
    log_scale(axes, "y")
    label(axes, "direction of the parameters", "information")
    legend(axes, 2)
    return figure
