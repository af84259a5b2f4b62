"""Prediction in cells: what sharing costs in accuracy, and what it gives in speed.

    python -m benchmarks.prediction loss superconductivity elevators pol yearpredictionmsd_8162
    python -m benchmarks.prediction speed --rows 100000
    python -m benchmarks.prediction latency
    python -m benchmarks.prediction trees --model sc.widegp
    python -m benchmarks.prediction cli --rows 1000000

``loss``: 1,500 training rows are held out (``--seed``), parameters of the plain model fitted to ``--fit`` of
the others, and the held-out rows predicted in cells and from 400 neighbours of their own. NLL is that of
standardised targets, its difference with the standard error of paired rows; ``information`` is the mean of
log sd in cells less log sd from own neighbours, the difference that is to be expected if both are calibrated,
but blind to single rows whose nearest neighbours are missing. ``--append FILE`` adds a line of JSON for each
table and seed, and leaves out those that it has.

The others take ``--model FILE``, made by ``widegp fit`` from a table of numbers; by default it is the plain
model of ``--table``, fitted to ``--fit`` of its rows. New rows are rows of the table with a hundredth of each
column's sd of noise. ``cli`` runs ``widegp predict`` on a Parquet file of them in a process of its own, and
says its peak memory and how far the time left that the bar showed after a tenth of the rows was off.
``trees``: rows that walk down those of a model beside nodes that are compared with many rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.tables import frame_and_test, load
from widegp import TableModel, WideGPRegressor, forests
from widegp.fitted import FittedGP
from widegp.machine import peak_memory
from widegp.trees import TreesInput

HELD = 1500


def plain(X: np.ndarray, y: np.ndarray, few: int, **settings: Any) -> WideGPRegressor:
    """Parameters of some rows, posterior of all of them; the cells too are those of all rows."""
    settings = {"approximation": "full-scale", "rank": 200, "random_state": 0} | settings
    start = WideGPRegressor.plain(**settings, max_iter=25).fit(X[:few], y[:few]).params_
    return WideGPRegressor.plain(**settings, start=start, max_iter=0).fit(X, y)


def scores(model: FittedGP, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-log N(z; mean, sd^2) of standardised targets, and log sd: (q,) each."""
    found = model.predictive(X)
    log_sd = np.log(found.sd_z)
    return 0.5 * np.log(2 * np.pi) + log_sd + 0.5 * found.normal_score(y) ** 2, log_sd


def loss(name: str, few: int, held: int, seed: int) -> dict[str, Any]:
    split = load(name)
    order = np.random.default_rng(seed).permutation(len(split.y))
    out, rest = order[:HELD], order[HELD:]
    model = plain(split.X[rest], split.y[rest], few, ard=name in ("elevators", "pol")).fitted_
    X, y = split.X[out[:held]], split.y[out[:held]]
    own = replace(model, rows=replace(model.rows, cells=False))
    (nll, log_sd), (nll_own, log_sd_own) = scores(model, X, y), scores(own, X, y)
    told = {"table": name, "seed": seed, "rows": len(rest), "held": len(y), "own": nll_own.mean()}
    for label, apart in (("nll", nll - nll_own), ("information", log_sd - log_sd_own)):
        told |= {label: apart.mean(), f"{label}_se": apart.std() / np.sqrt(len(y))}
    return told


def seconds(work: Callable[..., Any], *args: Any) -> tuple[float, float]:
    """Of the clock, and of all cores together, which tells more on a machine that others use too."""
    began, spent = time.perf_counter(), time.process_time()
    work(*args)
    return time.perf_counter() - began, time.process_time() - spent


def regressor(asked: argparse.Namespace) -> WideGPRegressor:
    if asked.model is not None:
        return TableModel.load(asked.model).regressor
    split = load(asked.table)
    return plain(split.X, split.y, asked.fit)


def new_frame(table: str, rows: int) -> pd.DataFrame:
    frame, target, _ = frame_and_test(table)
    frame = frame.drop(columns=target)
    rng = np.random.default_rng(0)
    X = frame.to_numpy(float)
    moved = X[rng.integers(0, len(X), rows)] + 0.01 * X.std(0) * rng.normal(size=(rows, X.shape[1]))
    return pd.DataFrame(moved, columns=frame.columns)


def speed(asked: argparse.Namespace) -> None:
    model, X = regressor(asked), new_frame(asked.table, asked.rows).to_numpy()
    fitted = model.fitted_
    print(f"{len(fitted.models)} models, {len(fitted.models[0].rows.X):,} training rows", flush=True)
    model.predict(X[:1], return_std=True)

    def moments(X: np.ndarray) -> None:
        for one in fitted.models:
            one.predictor.predict(one.inputs.transform(X))

    def means(X: np.ndarray) -> None:
        for one in fitted.models:
            one.predictor.mean(one.inputs.transform(X))

    for label, work in (
        ("cells parted, none factorised", moments), ("again", moments), ("means of f alone", means),
        ("mean and sd of y", lambda X: model.predict(X, return_std=True)), ("mean of y", model.predict),
        ("95% intervals of y", model.predict_interval),
    ):  # fmt: skip
        clock, core = seconds(work, X)
        told = f"{len(X) / clock:,.0f} rows/s, {len(X) / core:,.0f} for each second of a core"
        print(f"  {label}: {told}", flush=True)
    kept = sum(one.predictor.factors.bytes for one in fitted.models) / 2**20
    cells = [len(one.predictor.factors) for one in fitted.models]
    print(f"  kept: {kept:.0f} MiB of {cells} cells", flush=True)


def latency(asked: argparse.Namespace) -> None:
    """One row at a time, in the order of a service: rows at random, the first of its cell is cold."""
    model, X = regressor(asked), new_frame(asked.table, 3000).to_numpy()
    first = seconds(lambda: model.predict(X[:1], return_std=True))[0]
    told = []
    for i in range(1, len(X)):
        made = sum(len(one.predictor.factors) for one in model.fitted_.models)
        took = seconds(lambda i=i: model.predict(X[i : i + 1], return_std=True))[0]
        told.append((took, sum(len(one.predictor.factors) for one in model.fitted_.models) > made))
    took, cold = np.array([t for t, _ in told]), np.array([c for _, c in told])
    print(
        f"first call {first:.2f} s; median of {len(took):,} rows {1e3 * np.median(took):.2f} ms;"
        f" {cold.sum()} that factorise {1e3 * np.median(took[cold]):.1f} ms,"
        f" the others {1e3 * np.median(took[~cold]):.2f} ms, 99% of them below"
        f" {1e3 * np.quantile(took[~cold], 0.99):.2f} ms"
    )


def trees(asked: argparse.Namespace) -> None:
    """Microseconds of one core for each row, by either loop of `widegp.forests`."""
    X = new_frame(asked.table, 4096).to_numpy()
    for model in regressor(asked).fitted_.models:
        parts = getattr(model.inputs, "parts", ())
        for k, own in enumerate(part for part in parts if isinstance(part, TreesInput)):
            rows = reduce(lambda rows, part: part.transform(rows), parts[: parts.index(own)], X)
            print(f"{len(own.roots):,} trees, {len(own.feature):,} nodes, the {k + 1}. of this model")
            for label, few in (("rows walk", len(rows) + 1), ("nodes are compared", 0)):
                forests.FEW_ROWS = few
                own.by_model(rows[:100])
                spent = seconds(own.by_model, rows)[1]
                print(f"  {label}: {1e6 * spent / len(rows):.0f} us a row", flush=True)


def cli(asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, model = Path(folder, "new.parquet"), asked.model
        if model is None:
            frame, target, test = frame_and_test(asked.table)
            model = Path(folder, "model.widegp")
            settings = WideGPRegressor.plain(approximation="full-scale", rank=200, max_iter=5).get_params()
            del settings["random_state"]
            TableModel.fit(frame[~test], target, yardstick=False, **settings).save(model)
        new_frame(asked.table, asked.rows).to_parquet(table)
        code = "from benchmarks.prediction import watched; watched(*__import__('sys').argv[1:])"
        command = [sys.executable, "-c", code, str(model), str(table), str(Path(folder, asked.out))]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"{asked.rows:,} rows in {told['seconds']:.0f} s, {asked.rows / told['seconds']:,.0f} rows/s; peak"
        f" {told['peak'] / 2**30:.2f} GiB; after a tenth, {told['elapsed']:.1f} s, the bar said"
        f" {told['left']:.1f} s, which was {told['took']:.1f} s: {told['left'] / told['took'] - 1:+.0%}"
    )


def watched(model: str, table: str, out: str) -> None:
    """``widegp predict`` in this process, with a bar that is written down instead of shown."""
    import widegp.cli.predict as command

    class Bar:
        def __init__(self, source: Any) -> None:
            self.pace, self.began, self.seen = command.Pace(source.rows_about()), time.perf_counter(), []

        def __enter__(self) -> Callable[[int], None]:
            return self.advance

        def advance(self, rows: int) -> None:
            left = self.pace.done(rows)
            self.seen.append((self.pace.rows, time.perf_counter() - self.began, left))

        def __exit__(self, *_: object) -> None:
            done, total = self.seen[-1][0], self.seen[-1][1]
            known = (seen for seen in self.seen if seen[2] is not None)
            _, elapsed, left = next(seen for seen in known if seen[0] >= done / 10)
            peak = peak_memory() or 0
            told = {"seconds": total, "elapsed": elapsed, "left": left, "took": total - elapsed, "peak": peak}
            print(json.dumps(told))

    command._bar = Bar
    from widegp.data.tables import open_table

    fitted = TableModel.load(model)
    command.keep_in_file(fitted)
    names = [*fitted.column_names, command.OUTSIDE]
    command._stream(fitted, open_table(table), Path(out), 0.95, names)


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("what", choices=("loss", "speed", "latency", "trees", "cli"))
    parser.add_argument("tables", nargs="*", help="of loss")
    parser.add_argument("--table", default="superconductivity")
    parser.add_argument("--fit", type=int, default=2500)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--held", type=int, default=HELD, help="of the held-out rows, those predicted")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", default="predicted.parquet", help="of cli: its ending says the format")
    parser.add_argument("--append", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.what != "loss":
        {"speed": speed, "latency": latency, "trees": trees, "cli": cli}[asked.what](asked)
        return
    lines = asked.append.read_text().splitlines() if asked.append and asked.append.exists() else []
    done = {(told["table"], told["seed"]) for told in map(json.loads, lines)}
    for name in asked.tables or ["superconductivity", "elevators", "pol", "yearpredictionmsd_8162"]:
        if (name, asked.seed) in done:
            continue
        told = loss(name, asked.fit, asked.held, asked.seed)
        print(json.dumps(told), flush=True)
        if asked.append:
            with asked.append.open("a") as file:
                file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
