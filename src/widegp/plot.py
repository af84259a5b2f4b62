"""Pictures of a model and rows that it has not seen; each function returns a Matplotlib axis.

    from widegp import plot

    plot.calibration(model, X_test, y_test)

``model`` is a fitted `WideGPRegressor` or `TableModel`, ``X`` what its ``predict`` takes. ``ax`` is an axis
to draw on; without one there is a new figure, ``axis.figure``, which needs no display.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from widegp.extras import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#5F5F5F"
LEVELS = np.linspace(0.05, 0.95, 19)
# Standard errors of the band that chance leaves.
CHANCE = 1.96


def predictions(model: Any, X: Any, y: ArrayLike, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Targets y (q,) over their predicted means, with the interval of ``level`` of each row."""
    found, y, ax = model.predict_distribution(X), _column(y), _axis(ax)
    lower, upper = found.interval(level)
    inside = (lower <= y) & (y <= upper)
    order = np.argsort(found.mean)
    ax.vlines(found.mean[order], lower[order], upper[order], color=BLUE, alpha=0.25, lw=1)
    for rows, color, words in ((inside, BLUE, "inside"), (~inside, VERMILLION, "outside")):
        ax.plot(found.mean[rows], y[rows], "o", ms=3, color=color, label=f"{words}: {rows.sum():,}")
    ends = [float(found.mean.min()), float(found.mean.max())]
    ax.plot(ends, ends, "--", color=GREY, lw=1)
    ax.set(xlabel="predicted mean", ylabel="target", title=f"{level:.0%} intervals hold {inside.mean():.1%}")
    ax.legend(frameon=False)
    return ax


def calibration(model: Any, X: Any, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Share of targets y (q,) inside the central intervals of every level, with what chance leaves open."""
    depth, ax = model.predict_distribution(X).depth(_column(y)), _axis(ax)
    held = np.array([np.mean(depth <= level) for level in LEVELS])
    error = CHANCE * np.sqrt(LEVELS * (1 - LEVELS) / len(depth))
    band: dict[str, Any] = {"color": GREY, "alpha": 0.2, "lw": 0, "label": "95% by chance"}
    ax.fill_between(LEVELS, LEVELS - error, LEVELS + error, **band)
    ax.plot([0, 1], [0, 1], "--", color=GREY, lw=1)
    ax.plot(LEVELS, held, "o-", ms=4, color=BLUE, label=f"{len(depth):,} rows")
    ax.set(xlabel="promised", ylabel="held", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False)
    return ax


def residuals(model: Any, X: Any, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Normal scores of targets y (q,) over predicted means: standard normal where the model is right."""
    found, ax = model.predict_distribution(X), _axis(ax)
    # A target that the model excludes has an infinite score; it is drawn at the edge.
    scores = np.clip(found.normal_score(_column(y)), -6, 6)
    ax.plot(found.mean, scores, "o", ms=3, color=BLUE)
    for height in (-CHANCE, 0.0, CHANCE):
        ax.axhline(height, color=GREY, lw=1, ls="-" if height == 0 else "--")
    beyond = np.mean(np.abs(scores) > CHANCE)
    ax.set(xlabel="predicted mean", ylabel="normal score", title=f"{beyond:.1%} beyond ±1.96 (5% expected)")
    return ax


def effect(
    model: Any, X: ArrayLike, column: int | str, points: int = 40, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Mean over the rows X (q, I) of the prediction as one input runs over its range; the band holds the
    middle ``level`` of the rows' own curves.

    ``column`` is a number, or a name where X is a frame of numbers.
    """
    names = list(getattr(X, "columns", []))
    j = names.index(column) if isinstance(column, str) else int(column)
    rows, ax = np.asarray(X, float), _axis(ax)
    start, end = np.nanquantile(rows[:, j], [0.01, 0.99])
    grid = np.linspace(start, end, points)
    curves = np.empty((points, len(rows)))
    for k, value in enumerate(grid):
        changed = rows.copy()
        changed[:, j] = value
        curves[k] = model.predict(_like(X, changed))
    lower, upper = np.quantile(curves, [(1 - level) / 2, (1 + level) / 2], axis=1)
    ax.fill_between(grid, lower, upper, color=BLUE, alpha=0.2, lw=0, label=f"{level:.0%} of the rows")
    ax.plot(grid, curves.mean(1), color=BLUE, label="mean over the rows")
    ax.set(xlabel=str(names[j]) if names else f"input {j}", ylabel="prediction")
    ax.legend(frameon=False)
    return ax


def learning_curve(
    model: Any, X: ArrayLike, y: ArrayLike, sizes: Sequence[float] = (0.1, 0.25, 0.5, 1.0),
    seed: int = 0, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """RMSE on a fifth of the rows, held out, over the number of others fitted to; ``model`` is cloned, so
    that it may be unfitted. Each of ``sizes``, shares of the other rows, is a fit.
    """
    from sklearn.base import clone

    from widegp.metrics import rmse

    rows, target, ax = np.asarray(X, float), _column(y), _axis(ax)
    order = np.random.default_rng(seed).permutation(len(target))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    counts = [max(2, int(share * len(kept))) for share in sizes]
    errors = []
    for count in counts:
        part = clone(model).fit(rows[kept[:count]], target[kept[:count]])
        errors.append(rmse(target[held], part.predict(rows[held])))
    ax.loglog(counts, errors, "o-", color=BLUE)
    ax.axhline(float(np.std(target[held])), color=GREY, lw=1, ls="--", label="predicting the mean")
    ax.set(xlabel="rows fitted to", ylabel=f"RMSE on {len(held):,} other rows")
    ax.legend(frameon=False)
    return ax


def _axis(ax: Axes | None) -> Axes:
    """``ax``, or that of a new figure, made without pyplot: no display is needed, no global state is left."""
    if ax is not None:
        return ax
    needed("matplotlib")
    from matplotlib.figure import Figure

    made = Figure(figsize=(5.5, 4), layout="constrained").subplots()
    made.spines[["top", "right"]].set_visible(False)
    return made


def _column(y: ArrayLike) -> np.ndarray:
    return np.asarray(y, float).ravel()


def _like(X: Any, values: np.ndarray) -> Any:
    """Values (q, I) as a frame like X, where X is one: models remember the names of their columns."""
    return type(X)(dict(zip(X.columns, values.T, strict=True))) if hasattr(X, "columns") else values
