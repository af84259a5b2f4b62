"""Fit a small table, check the intervals against the truth, draw the result; then a CSV and its report.

The data of the picture are Friedman's first function: ten inputs, five of which do nothing, and noise of
known size. So the scores have a floor, that of a forecaster who knows the function and the noise, and can be
read against it.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import houses
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy import stats
from sklearn.datasets import make_friedman1

from widegp import WideGPRegressor, metrics

OUTPUT = Path("demo-output")
PICTURE, TABLE, MODEL, REPORT = (
    OUTPUT / name for name in ("calibration.png", "houses.csv", "houses.widegp", "report.html")
)
SEED = 0
TRAIN_ROWS, TEST_ROWS = 1_000, 500
NOISE_SD = 1.0
LEVELS = (0.50, 0.80, 0.90, 0.95, 0.99)

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#5F5F5F"

MEANINGS = {
    "sigma_a2": "hidden biases: how far out the function bends",
    "sigma_u2": "hidden weights: how strongly the inputs act",
    "sigma_b2": "output bias: the overall level",
    "sigma_v2": "output weights: the size of the function",
    "alpha": "leaky slope: 0 is a ReLU, 1 a straight line",
    "w": "mixing weight: 1 is smooth (tanh), 0 angular",
    "sigma_eps2": "noise variance, target scaled to unit variance",
}


class Data(NamedTuple):
    """Training rows, test rows, and the noise-free function at the test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    truth: np.ndarray


class Forecast(NamedTuple):
    """A normal distribution for every test row."""

    mean: np.ndarray
    sd: np.ndarray

    def scores(self, y: np.ndarray) -> dict[str, float]:
        return {
            "RMSE": metrics.rmse(y, self.mean),
            "NLPD": metrics.nlpd(y, self.mean, self.sd),
            "CRPS": metrics.crps(y, self.mean, self.sd),
        }


def make_data() -> Data:
    X, truth = make_friedman1(TRAIN_ROWS + TEST_ROWS, n_features=10, noise=0.0, random_state=SEED)
    y = truth + NOISE_SD * np.random.default_rng(SEED).standard_normal(len(truth))
    train, test = slice(TRAIN_ROWS), slice(TRAIN_ROWS, None)
    return Data(X[train], y[train], X[test], y[test], truth[test])


def fit(data: Data) -> tuple[WideGPRegressor, float]:
    model = WideGPRegressor.plain(ard=True, random_state=SEED)
    start = time.perf_counter()
    model.fit(data.X, data.y)
    return model, time.perf_counter() - start


def scores_table(data: Data, forecast: Forecast) -> Table:
    constant = Forecast(np.full(TEST_ROWS, data.y.mean()), np.full(TEST_ROWS, data.y.std()))
    oracle = Forecast(data.truth, np.full(TEST_ROWS, NOISE_SD))
    columns = [f.scores(data.y_test) for f in (constant, forecast, oracle)]
    table = Table(title=f"Scores on {TEST_ROWS} test rows (smaller is better)", title_justify="left")
    table.add_column("score")
    for heading in ("no model", "widegp", "truth known"):
        table.add_column(heading, justify="right", style="bold" if heading == "widegp" else "")
    table.add_column("what it is")
    meanings = {
        "RMSE": "typical error of the mean",
        "NLPD": "-log density at the observed",
        "CRPS": "distance forecast to observed",
    }
    for name, meaning in meanings.items():
        table.add_row(name, *(f"{column[name]:.3f}" for column in columns), meaning)
    return table


def coverage_table(model: WideGPRegressor, data: Data) -> Table:
    table = Table(title="Intervals: how often they hold the observed value", title_justify="left")
    for heading in ("promised", "held", "chance error", "mean width", "width, truth known"):
        table.add_column(heading, justify="right", style="bold" if heading == "held" else "")
    for level in LEVELS:
        lower, upper = model.predict_interval(data.X_test, level)
        table.add_row(
            f"{level:.0%}",
            f"{metrics.coverage(data.y_test, lower, upper):.1%}",
            f"± {1.96 * np.sqrt(level * (1 - level) / TEST_ROWS):.1%}",
            f"{np.mean(upper - lower):.2f}",
            f"{2 * NOISE_SD * stats.norm.ppf((1 + level) / 2):.2f}",
        )
    return table


def parameter_table(parameters: dict[str, float | np.ndarray]) -> Table:
    table = Table(title="Fitted parameters", title_justify="left")
    table.add_column("name")
    table.add_column("value", justify="right", style="bold")
    table.add_column("meaning")
    for name, value in parameters.items():
        meaning = MEANINGS.get(name, "")
        if np.ndim(value) == 0:
            table.add_row(name, f"{float(value):.3g}", meaning)
            continue
        for j, entry in enumerate(np.asarray(value), start=1):
            table.add_row(f"{name}, input {j}", f"{entry:.3g}", meaning if j == 1 else "")
    return table


def draw(data: Data, forecast: Forecast) -> Figure:
    # Figure without pyplot: no display is needed and no global state is left behind.
    figure = Figure(figsize=(11.5, 4.0), layout="constrained")
    panels = (draw_intervals, draw_coverage, draw_pit)
    for axes, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
        panel(axes, data.y_test, forecast)
        axes.set_title(axes.get_title(loc="left"), loc="left", fontsize=11)
        axes.set_box_aspect(1)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_intervals(axes: Axes, y: np.ndarray, forecast: Forecast, shown: int = 100) -> None:
    y, mean, half = y[:shown], forecast.mean[:shown], 1.96 * forecast.sd[:shown]
    missed = np.abs(y - mean) > half
    ends = (min(y.min(), (mean - half).min()), max(y.max(), (mean + half).max()))
    axes.plot(ends, ends, color=GREY, lw=1, ls="--", zorder=1)
    # Colour and marker both tell the misses, for print in grey.
    for rows, color, marker, word in ((~missed, BLUE, "o", "inside"), (missed, VERMILLION, "D", "outside")):
        axes.errorbar(
            y[rows], mean[rows], half[rows], fmt=marker, ms=3.8, color=color, elinewidth=0.9, capsize=0,
            alpha=0.8, mec="white", mew=0.4, label=f"{word} the interval: {rows.sum()}", zorder=3,
        )  # fmt: skip
    axes.set(xlabel="observed", ylabel="predicted mean and 95% interval")
    axes.set_title(f"(a) Predictions of {shown} test rows", loc="left")
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def draw_coverage(axes: Axes, y: np.ndarray, forecast: Forecast) -> None:
    levels = np.linspace(0, 1, 101)
    # A central interval of level p holds y when |2 PIT - 1| <= p.
    depth = np.abs(2 * metrics.pit(y, forecast.mean, forecast.sd) - 1)
    held = (depth[:, None] <= levels).mean(axis=0)
    low, high = stats.binom.interval(0.95, len(y), levels)
    axes.fill_between(levels, low / len(y), high / len(y), color=GREY, alpha=0.22, lw=0, label="chance (95%)")
    axes.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--", label="perfect calibration")
    axes.plot(levels, held, color=BLUE, lw=1.8, label="widegp")
    axes.set(xlabel="promised coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1))
    axes.set_title("(b) Calibration of the intervals", loc="left")
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def draw_pit(axes: Axes, y: np.ndarray, forecast: Forecast, bins: int = 10) -> None:
    pit = metrics.pit(y, forecast.mean, forecast.sd)
    low, high = stats.binom.interval(0.95, len(y), 1 / bins)
    axes.axhspan(low, high, color=GREY, alpha=0.22, lw=0, label="chance (95%)")
    axes.axhline(len(y) / bins, color=GREY, lw=1, ls="--", label="perfect calibration")
    counts, edges = np.histogram(pit, bins, range=(0, 1))
    axes.stairs(counts, edges, color=BLUE, alpha=0.3, fill=True)
    axes.stairs(counts, edges, color=BLUE, lw=1.8, label="widegp")
    axes.set(xlabel="predictive probability of a smaller value (PIT)", ylabel="test rows", xlim=(0, 1))
    # Room above the bars for the legend.
    axes.set_ylim(0, 1.45 * max(counts.max(), high))
    axes.set_title("(c) Where observed values fall", loc="left")
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def command(console: Console, *words: str) -> str:
    """What ``widegp words`` prints, run as from a shell."""
    console.print(f"$ widegp {shlex.join(words)}", highlight=False, markup=False, soft_wrap=True)
    run = [sys.executable, "-m", "widegp.cli", *words]
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if done.returncode:
        # The command has said why on stderr.
        raise SystemExit(done.returncode)
    return done.stdout


def report_on_houses(console: Console) -> None:
    """From a CSV to a page, by the commands that a user types."""
    houses.write(TABLE)
    console.print(f"A made-up table of {houses.ROWS} houses is in {TABLE}.", highlight=False)
    scores = command(console, "fit", str(TABLE), "--target", "price", "--out", str(MODEL))
    # Up to the first table: the verdict in words.
    verdict = " ".join(line.strip() for line in takewhile(str.strip, scores.splitlines()))
    console.print(verdict, highlight=False, markup=False)
    command(console, "report", str(MODEL), "--out", str(REPORT))


def main() -> None:
    OUTPUT.mkdir(exist_ok=True)
    console = Console()
    data = make_data()
    console.print(
        f"Friedman's function: {TRAIN_ROWS:,} training rows, {data.X.shape[1]} inputs, noise sd {NOISE_SD:g}."
    )
    model, seconds = fit(data)
    console.print(
        f"Fitted in {seconds:.1f} s: {model.result_.reason} after {model.n_iter_} iterations,"
        f" log posterior {model.log_posterior_:.1f}.\n"
    )
    forecast = Forecast(*model.predict(data.X_test, return_std=True))
    for table in (scores_table(data, forecast), coverage_table(model, data), parameter_table(model.params_)):
        console.print(table)
        console.print()
    draw(data, forecast).savefig(PICTURE, dpi=200)
    report_on_houses(console)
    console.print(f"\nOpen {REPORT} in a browser, and {PICTURE}.", style="bold", highlight=False)


if __name__ == "__main__":
    main()
