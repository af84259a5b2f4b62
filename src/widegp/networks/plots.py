"""Pictures of a convergence study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from widegp.networks.convergence import ConvergenceStudy


def plot_study(study: ConvergenceStudy) -> Figure:
    """Covariance error, excess kurtosis, projections and energy distance against the width."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _rate(left, study, "covariance_error", -0.5)
    _rate(middle, study, "excess_kurtosis", -1.0)
    error = 2 * study.sampled_kurtosis_error
    middle.errorbar(
        study.widths, study.sampled_kurtosis, error, fmt="s", mfc="none", alpha=0.6, label="from draws, ±2 se"
    )
    right.plot(study.widths, study.ks_distance, "o-", label="Kolmogorov distance of projections")
    right.plot(study.widths, study.energy_distance, "s-", label="energy distance")
    right.axhline(study.energy_floor, ls=":", color="grey", label="energy between draws of the limit")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    for axes in (left, middle, right):
        axes.set_xlabel("width H")
        axes.legend(fontsize=8)
    return figure


def _rate(axes: Axes, study: ConvergenceStudy, quantity: str, rate: float) -> None:
    """One quantity on log-log axes, beside a line with the slope that theory gives."""
    widths, values = study.widths, np.abs(getattr(study, quantity))
    axes.loglog(widths, values, "o", label=quantity.replace("_", " "))
    centre = np.exp(np.mean(np.log(values) - rate * np.log(widths)))
    axes.loglog(widths, centre * widths**rate, "--", color="grey", label=f"H^{rate:g}")
    axes.set_xscale("log", base=2)
