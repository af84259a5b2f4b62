"""Draw the pictures of the site: ``python docs/make_figures.py [NAME ...]`` writes docs/figures/NAME.svg.

They are kept with the pages, so that building the site needs no fit; draw them again when what they show has
changed. About two minutes on one core for all.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from widegp import WideGPClassifier, WideGPRegressor, designs, metrics
from widegp.conformal import ConformalCalibration
from widegp.identifiability import shape_correlations
from widegp.kernels import Mixed, ReLU
from widegp.networks import ShallowBNN
from widegp.simulate import simulate

FOLDER = Path(__file__).parent / "figures"
LARGEST = 100_000

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
BLUE, VERMILLION, GREEN, ORANGE, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#5F5F5F"


def panels(count: int, width: float = 10.0, height: float = 3.2) -> tuple[Figure, Any]:
    # Figure without pyplot: no display is needed and no global state is left behind.
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, count))
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def first_fit() -> Figure:
    """A function, noisy rows with a gap, and what the process says about both."""
    rng = np.random.default_rng(0)
    x = np.sort(np.concatenate([rng.uniform(-3, -0.4, 45), rng.uniform(1.0, 3, 35)]))
    y = np.sin(2 * x) + 0.3 * x + 0.15 * rng.standard_normal(len(x))
    model = WideGPRegressor.plain(random_state=0).fit(x[:, None], y)
    grid = np.linspace(-3.6, 3.6, 200)[:, None]
    figure, (axes,) = panels(1, 8.0)
    for latent, alpha, label in (
        (False, 0.18, "95% of new observations"),
        (True, 0.35, "95% of the function"),
    ):
        lower, upper = model.predict_interval(grid, latent=latent)
        axes.fill_between(grid[:, 0], lower, upper, color=BLUE, alpha=alpha, lw=0, label=label)
    axes.plot(grid[:, 0], model.predict(grid), color=BLUE, lw=1.8, label="mean")
    axes.plot(grid[:, 0], np.sin(2 * grid[:, 0]) + 0.3 * grid[:, 0], "--", color=GREY, lw=1, label="truth")
    axes.plot(x, y, "o", color=VERMILLION, ms=3, label="rows")
    axes.set(xlabel="x", ylabel="y")
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    return figure


def kernels() -> Figure:
    """Kernels over the correlation of the pre-activations, and draws of K_mix at three weights."""
    figure, (left, right) = panels(2)
    shapes = shape_correlations(np.linspace(-1, 1, 201))
    styles = dict(zip(shapes.names, ("-", "--", "-", "--", ":"), strict=True))
    colours = dict(zip(shapes.names, (BLUE, ORANGE, VERMILLION, GREEN, GREY), strict=True))
    for name, curve in zip(shapes.names, shapes.curves, strict=True):
        scaled = (curve - curve.mean()) / curve.std()
        left.plot(shapes.rho, scaled, styles[name], color=colours[name], label=name.replace("_", " "))
    left.set(xlabel="correlation of the pre-activations", ylabel="kernel, centred and scaled")
    x = np.linspace(-3, 3, 200)[:, None]
    for w, colour in ((0.0, VERMILLION), (0.5, GREEN), (1.0, BLUE)):
        kernel = Mixed(w=w, alpha=0.0, sigma_a2=1.0, sigma_u2=4.0, sigma_b2=0.0)
        f = simulate(kernel, x, noise=0.0, method="exact", n_draws=2, rng=4).f
        right.plot(x, f / f.std(), color=colour, lw=1.4, label=[f"w = {w:g}", None])
    right.set(xlabel="x", ylabel="draws of K_mix, alpha = 0")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    return figure


def networks() -> Figure:
    """Outputs at two points of ReLU networks of growing width, beside the limit."""
    X = np.array([[1.0], [-1.0]])
    K = ReLU(sigma_b2=0.0)(X)
    limit = np.random.default_rng(1).multivariate_normal([0, 0], K, 700)
    figure, axes = panels(4, 10.0, 2.7)
    for each, width in zip(axes, (1, 4, 64, None), strict=True):
        f = limit
        if width is not None:
            f = ShallowBNN(width, activation="relu", sigma_b2=0.0).draw(X, 700, rng=2)[:, :, 0]
        each.plot(*f.T, ".", color=VERMILLION if width is None else BLUE, ms=1.6, rasterized=True)
        each.set(xlim=(-4, 4), ylim=(-4, 4), xlabel="f(1)")
        each.set_title("limit" if width is None else f"{width} hidden unit{'s' * (width > 1)}", fontsize=10)
        each.set_box_aspect(1)
    axes[0].set_ylabel("f(-1)")
    return figure


def dials() -> Figure:
    """Held-out error of each approximation next to the exact process, with little and with much noise."""
    figure, axes = panels(2)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 4))
    truth = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + np.abs(X[:, 2])
    choices = {
        "vfe, rank": ("vfe", "rank", (10, 30, 100, 300), "s-", ORANGE),
        "vecchia, neighbours": ("vecchia", "neighbors", (3, 10, 30), "o-", BLUE),
        "full-scale, rank 50, neighbours": ("full-scale", "neighbors", (3, 10, 30), "D-", VERMILLION),
    }
    for each, noise, words in zip(axes, (0.05, 1.0), ("little noise", "much noise"), strict=True):
        y = truth + noise * rng.standard_normal(len(X))
        train, test = slice(1000), slice(1000, None)
        exact = _error(X, y, truth, train, test, approximation="exact")
        each.axhline(exact, color=GREY, ls="--", lw=1, label="exact")
        for label, (name, dial, values, style, colour) in choices.items():
            settings = [{"rank": 50, "approximation": name} | {dial: v} for v in values]
            errors = [_error(X, y, truth, train, test, **s) for s in settings]
            each.semilogx(values, errors, style, color=colour, ms=4, label=label)
        each.set_ylim(bottom=0)
        each.set(xlabel="the dial", ylabel="error of the function, RMSE", title=f"{words}, sd {noise:g}")
        each.legend(frameon=False, fontsize=8)
    return figure


def _error(
    X: np.ndarray, y: np.ndarray, truth: np.ndarray, train: slice, test: slice, **settings: Any
) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = WideGPRegressor.plain(random_state=0, predict_neighbors=50, **settings)
        model.fit(X[train], y[train])
    return metrics.rmse(truth[test], model.predict(X[test]))


def warps() -> Figure:
    """A skewed target with and without a warp."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 150))
    y = np.exp(1 + np.sin(3 * x) + 0.5 * rng.standard_normal(150))
    grid = np.linspace(-1, 1, 150)[:, None]
    figure, axes = panels(2)
    for each, transform in zip(axes, (None, "auto"), strict=True):
        model = WideGPRegressor.plain(target_transform=transform, random_state=0).fit(x[:, None], y)
        lower, upper = model.predict_interval(grid)
        each.fill_between(grid[:, 0], lower, upper, color=BLUE, alpha=0.2, lw=0, label="95% interval")
        each.plot(grid, model.predict_quantiles(grid, [0.5]), color=BLUE, label="median")
        each.plot(x, y, "o", color=VERMILLION, ms=2.5)
        each.axhline(0, color=GREY, lw=0.8)
        name = "no warp" if transform is None else f"warp: {model.transform_.name}"
        each.set(xlabel="x", ylabel="y", ylim=(-6, 26), title=name)
        each.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def inputs() -> Figure:
    """Effect and weight of each input, for a function with straight, wavy and idle ones."""
    from widegp.explain import explain

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (350, 4))
    y = 3 * X[:, 0] + np.sin(5 * X[:, 1]) + 0.2 * rng.standard_normal(350)
    model = WideGPRegressor.plain(ard=True, random_state=0).fit(X, y)
    found = explain(model, X, ["straight", "wavy", "idle 1", "idle 2"])
    figure, axes = panels(3, 10.0, 2.8)
    place = np.arange(4)[::-1]
    for shift, key, colour in ((0.2, "effect", BLUE), (-0.2, "weight", ORANGE)):
        axes[0].barh(place + shift, [e[key] for e in found["inputs"]], 0.38, color=colour, label=key)
    axes[0].set_yticks(place, [e["name"] for e in found["inputs"]])
    axes[0].legend(frameon=False, fontsize=8)
    for each, curve in zip(axes[1:], found["partial_dependence"], strict=False):
        each.fill_between(curve["x"], curve["lower"], curve["upper"], color=BLUE, alpha=0.25, lw=0)
        each.plot(curve["x"], curve["mean"], color=BLUE)
        each.set(xlabel=curve["name"], ylabel="mean prediction")
    return figure


def design_spread() -> Figure:
    """Norms and angles of rows in 80 inputs under two designs."""
    figure, (left, right) = panels(2)
    style = {"density": True, "histtype": "stepfilled", "alpha": 0.5}
    for name, colour in (("uniform", GREY), ("stratified", BLUE)):
        X = designs.DESIGNS[name](1500, 80, 0)
        norms = np.linalg.norm(X, axis=1)
        cosines = ((X @ X.T) / np.outer(norms, norms))[np.triu_indices(len(X), 1)]
        left.hist(norms, 60, range=(1.5, 3.6), color=colour, label=name, **style)
        right.hist(cosines, 80, range=(-1, 1), color=colour, **style)
    left.set(xlabel="norms of the rows", ylabel="density")
    right.set(xlabel="cosines of pairs of rows")
    left.legend(frameon=False)
    return figure


def conformal() -> Figure:
    """Promised against held coverage, before and after calibration, where one row in twelve is spoiled."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3700, 1))
    spoiled = rng.uniform(size=3700) < 1 / 12
    y = np.sin(3 * X[:, 0]) + np.where(spoiled, 1.5, 0.15) * rng.standard_normal(3700)
    model = WideGPRegressor.plain(random_state=0).fit(X[:200], y[:200])
    mean, sd = model.predict(X[200:], return_std=True)
    pit = metrics.pit(y[200:], mean, sd)
    calibration = ConformalCalibration.fit(pit[:500])
    levels = np.linspace(0.02, 0.98, 49)
    depth = np.abs(2 * pit[500:] - 1)
    before = [(depth <= level).mean() for level in levels]
    after = [np.mean(depth <= 2 * calibration.levels(level)[1] - 1) for level in levels]
    figure, (axes,) = panels(1, 4.6, 4.0)
    axes.plot([0, 1], [0, 1], "--", color=GREY, lw=1, label="as promised")
    axes.plot(levels, before, color=VERMILLION, label="the model's own")
    axes.plot(levels, after, color=BLUE, label="conformal, 500 rows")
    axes.set(xlabel="promised coverage", ylabel="held, on 3,000 rows")
    axes.legend(frameon=False, fontsize=8)
    return figure


def metric() -> Figure:
    """A function of one direction under one variance and a learned metric; the metric; varying noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 8))
    y = np.sin(1.5 * (X[:, 0] - X[:, 1])) + 0.1 * rng.standard_normal(400)
    figure, (fit, matrix, noise) = panels(3, 11.0)
    for kind, color in (("iso", ORANGE), ("learned", BLUE)):
        model = WideGPRegressor.plain(metric=kind, random_state=0).fit(X[:200], y[:200])
        fit.plot(y[200::2], model.predict(X[200::2]), "o", ms=3, color=color, label=f'metric="{kind}"')
    fit.plot([-1.3, 1.3], [-1.3, 1.3], "--", color=GREY, lw=1)
    fit.set(xlabel="new target", ylabel="prediction")
    fit.legend(frameon=False, fontsize=8, loc="upper left")
    A = model.metric_
    matrix.imshow(A @ A.T, cmap="RdBu_r", norm=matplotlib.colors.CenteredNorm())
    matrix.set(title="learned covariance of hidden weights", xlabel="input", ylabel="input")
    x = rng.uniform(-2, 2, (500, 1))
    sd = 0.4 * np.exp(0.6 * x[:, 0])
    z = np.sin(2 * x[:, 0]) + sd * rng.standard_normal(500)
    varying = WideGPRegressor.plain(noise="varying", random_state=0).fit(x, z)
    grid = np.linspace(-2, 2, 100)[:, None]
    lower, upper = varying.predict_interval(grid)
    noise.fill_between(grid[:, 0], lower, upper, color=BLUE, alpha=0.2, lw=0, label='95%, noise="varying"')
    for side in (-1.96, 1.96):
        edge = np.sin(2 * grid[:, 0]) + side * 0.4 * np.exp(0.6 * grid[:, 0])
        noise.plot(grid[:, 0], edge, "--", color=GREY, lw=1, label="truth" if side > 0 else None)
    noise.plot(x[::3, 0], z[::3], "o", color=VERMILLION, ms=2)
    noise.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def targets() -> Figure:
    """Probabilities of three classes with sets of 90%, and counts hung from what is expected."""
    figure, (left, right) = panels(2)
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 400)
    f = np.column_stack([-2 * x, np.full(400, 1.0), 2 * x - 1])
    y = np.argmax(f + rng.gumbel(size=f.shape), axis=1)
    settings: Any = {"approximation": "vfe", "rank": 20, "metric": "iso", "random_state": 0}
    model = WideGPClassifier(conformal=True, scale_inputs="standard", **settings).fit(x[:, None], y)
    grid = np.linspace(-3, 3, 200)
    p, sets = model.predict_proba(grid[:, None]), model.predict_set(grid[:, None], 0.9)
    for c, colour in enumerate((BLUE, ORANGE, VERMILLION)):
        left.plot(grid, p[:, c], color=colour, lw=1.8, label="abc"[c])
        held = np.where(sets[:, c], -0.06 - 0.05 * c, np.nan)
        left.plot(grid, held, color=colour, lw=4, solid_capstyle="butt")
    left.set(xlabel="x", ylabel="probability; below: sets of 90%", ylim=(-0.22, 1.02))
    left.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    counts = rng.poisson(rng.gamma(2, 0.5, 400) * np.exp(0.8 + 0.4 * x))
    for name, colour in (("poisson", VERMILLION), ("negative-binomial", BLUE)):
        own = WideGPRegressor.plain(likelihood=name, approximation="vfe", rank=20, random_state=0)
        found = own.fit(x[:, None], counts).predict_distribution(x[:, None])
        k = np.arange(13)
        expected = np.diff([found.cdf(np.full(400, t)).sum() for t in (-1, *k)])
        right.plot(k, np.sqrt(expected), "o-", color=colour, ms=3, lw=1.4, label=f"expected, {name}")
    seen = np.sqrt(np.bincount(counts, minlength=13)[:13])
    right.bar(k, seen, bottom=np.sqrt(expected) - seen, color=GREY, alpha=0.4, label="rows, hung")
    right.axhline(0, color=GREY, lw=1)
    right.set(xlabel="count", ylabel="square root of rows")
    right.legend(frameon=False, fontsize=8)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "metric": metric,
    "first-fit": first_fit,
    "kernels": kernels,
    "networks": networks,
    "dials": dials,
    "warps": warps,
    "inputs": inputs,
    "designs": design_spread,
    "conformal": conformal,
    "targets": targets,
}


def main(names: list[str]) -> None:
    # The same bytes for the same picture: no date, and identifiers that do not change.
    settings: Any = {"svg.hashsalt": "widegp", "svg.fonttype": "path", "font.size": 9}
    FOLDER.mkdir(exist_ok=True)
    for name in names or FIGURES:
        path = FOLDER / f"{name}.svg"
        with matplotlib.rc_context(settings):
            FIGURES[name]().savefig(path, metadata={"Date": None}, dpi=110)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} KB")
        if path.stat().st_size > LARGEST:
            raise SystemExit(f"{path} is larger than {LARGEST:,} bytes; draw fewer points.")


if __name__ == "__main__":
    main(sys.argv[1:])
