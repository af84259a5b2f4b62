"""Pictures of the league, from standings alone: each function draws one and knows nothing of files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.league import ranks
from benchmarks.league.models import MODELS

# Okabe and Ito's palette, which readers with any colour vision can tell apart; widegp is the first.
COLOURS = (
    "#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#F0E442", "#000000", "#5F5F5F",
    "#8B4513", "#6A3D9A", "#9E9E9E",
)  # fmt: skip
COLOUR = dict(zip(MODELS, COLOURS, strict=True))


def title(model: str) -> str:
    return MODELS[model].title if model in MODELS else model


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    # Figure without pyplot: no display is needed and no global state is left behind.
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = np.atleast_2d(figure.subplots(rows, columns, squeeze=False))
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def critical_difference(mean_ranks: dict[str, pd.Series], tables: int) -> Figure:
    """A line for each score: models at their mean ranks, and bars that join those that chance may tell apart.

    mean_ranks : by the name of the score, of k models each.
    """
    figure, axes = _panels(len(mean_ranks), 1, 9.0, 2.3 * len(mean_ranks))
    for (name, found), axis in zip(mean_ranks.items(), axes[:, 0], strict=True):
        _difference_line(axis, found.sort_values(), tables)
        axis.set_title(name, loc="left", fontsize=10)
    return figure


def _difference_line(axis: Any, found: pd.Series, tables: int) -> None:
    k = len(found)
    difference = ranks.critical_difference(k, tables)
    levels = np.linspace(0.78, 0.02, (k + 1) // 2)
    axis.set(xlim=(0.5, k + 0.5), ylim=(-0.1, 1.35), yticks=[], xticks=range(1, k + 1))
    axis.spines["left"].set_visible(False)
    axis.xaxis.tick_top()
    axis.spines["bottom"].set_visible(False)
    axis.spines["top"].set_visible(True)
    for place, (model, rank) in enumerate(found.items()):
        first = place < (k + 1) // 2
        height = levels[place if first else k - 1 - place]
        side = 0.5 if first else k + 0.5
        axis.plot([rank, rank, side], [1.35, height, height], color=COLOUR[str(model)], lw=1.2)
        align = "left" if first else "right"
        axis.text(side, height + 0.02, f"{title(str(model))} {rank:.2f}", ha=align, va="bottom", fontsize=8)
    order = found.to_numpy()
    for row, (low, high) in enumerate(ranks.cliques(order, difference)):
        height = 1.24 - 0.09 * row
        axis.plot([order[low] - 0.04, order[high] + 0.04], [height, height], color="#5F5F5F", lw=3)


def bars(scores: dict[str, pd.DataFrame]) -> Figure:
    """Each table's scores as differences from the best model of the table; tables x models by score."""
    first = next(iter(scores.values()))
    figure, axes = _panels(1, len(scores), 3.4 * len(scores), 0.32 * len(first) + 1.3)
    for (name, found), axis in zip(scores.items(), axes[0], strict=True):
        gap = found.sub(found.min(axis=1), axis=0)
        # A linear model may be so far behind that nothing else could be seen.
        most = float(np.nanquantile(gap.to_numpy(), 0.85)) or 1.0
        for place, model in enumerate(gap.columns):
            offset = (place - (gap.shape[1] - 1) / 2) * 0.8 / gap.shape[1]
            at, width = np.arange(len(gap)) + offset, np.minimum(gap[model], most)
            # Lines take fewer bytes of SVG than as many rectangles.
            axis.hlines(at, 0, width, color=COLOUR[model], label=title(model), lw=14 / gap.shape[1])
        axis.set(
            yticks=range(len(gap)),
            ylim=(len(gap) - 0.4, -0.6),
            xlim=(0, most),
            xlabel=f"{name} behind the best",
        )
        axis.set_yticklabels(gap.index if axis is axes[0][0] else [])
    figure.legend(
        *axes[0][0].get_legend_handles_labels(),
        ncols=4,
        loc="outside lower center",
        frameon=False,
        fontsize=8,
    )
    return figure


def against_time(seconds: pd.DataFrame, scores: pd.DataFrame) -> Figure:
    """CRPS over that of the best model of its table, beside seconds of fitting; large dots are medians."""
    figure, axes = _panels(1, 1, 8.0, 4.2)
    axis = axes[0, 0]
    ratio = scores.div(scores.min(axis=1), axis=0)
    for model in scores.columns:
        x, y = seconds[model].to_numpy(), ratio[model].to_numpy()
        seen = np.isfinite(x) & np.isfinite(y)
        if not seen.any():
            continue
        axis.scatter(x[seen], y[seen], s=10, color=COLOUR[model], alpha=0.45, lw=0)
        middle = np.median(x[seen]), np.median(y[seen])
        axis.scatter(*middle, s=90, color=COLOUR[model], edgecolor="white", label=title(model), zorder=3)
    axis.set(xscale="log", yscale="log", xlabel="seconds to tune and fit", ylabel="CRPS / best of the table")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def calibration(coverage: pd.DataFrame) -> Figure:
    """Mean share of test targets inside central intervals; models x levels (in per cent)."""
    figure, axes = _panels(1, 1, 8.0, 3.2)
    axis = axes[0, 0]
    for place, level in enumerate(coverage.columns):
        axis.axvline(level, color="#5F5F5F", lw=0.8, ls="--")
        axis.scatter(coverage[level], range(len(coverage)), s=36, color=COLOURS[2 + place], label=f"{level}%")
    axis.set(yticks=range(len(coverage)), ylim=(len(coverage) - 0.5, -0.5), xlim=(20, 102))
    axis.set_yticklabels([title(str(model)) for model in coverage.index])
    axis.set_xlabel("test targets inside the interval, per cent")
    return figure


def curves(found: dict[str, dict[str, pd.Series]]) -> Figure:
    """NLL less that of the centre against a dial: for each dial, a line for each table."""
    figure, axes = _panels(1, len(found), 3.4 * len(found), 3.2)
    for (dial, lines), axis in zip(found.items(), axes[0], strict=True):
        for k, (table, line) in enumerate(lines.items()):
            at = range(len(line)) if line.index.dtype == object else line.index
            axis.plot(at, line, "o-", ms=3, lw=1.2, color=COLOURS[k], label=table)
            if line.index.dtype == object:
                axis.set_xticks(range(len(line)), line.index, rotation=30)
        axis.axhline(0, color="#5F5F5F", lw=0.6)
        axis.set(xlabel=dial, ylabel="NLL less that of the centre" if axis is axes[0][0] else "")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=6, loc="outside lower center", frameon=False, fontsize=8)
    return figure
