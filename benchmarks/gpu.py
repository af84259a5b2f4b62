"""One accelerator: ``python benchmarks/gpu.py evaluate 1000 2000 5000``, ``fit 1000``, ``full-scale 500 50``,
``predict 200 17000 1000000``.

A table of the size of YearPredictionMSD, 463,810 x 90, drawn from a network (seed 0), and 51,535 more rows
to predict. ``evaluate`` times one objective with gradient of vfe (median of 5), the first call apart; ``fit``
a MAP fit to convergence with prediction, twice, so that the second run shows what compiling cost;
``full-scale`` the same with anchors and neighbours. Errors are against the CPU on the first 5,000 rows.
``predict RANK TRAINING_ROWS NEW_ROWS`` times predictions in cells, without a fit, whole and by stages, and
compares cells and predictions with the CPU's.
JAX_COMPILATION_CACHE_DIR names a folder that keeps compiled programs for the next process.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from widegp import WideGPRegressor, metrics
from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.compute.xla import XlaBackend
from widegp.compute.xla_cells import at_cells
from widegp.engines.base import make_engine
from widegp.kernels import Mixed
from widegp.stacks import LARGE_PART_ROWS, Stacks, fill

ROWS, NEW_ROWS, INPUTS = 463_810, 51_535, 90


def table(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs and targets of a leaky network with 50 hidden units and noise of a tenth of its variance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows + NEW_ROWS, INPUTS))
    hidden = X @ rng.standard_normal((INPUTS, 50)) / np.sqrt(INPUTS) + rng.standard_normal(50)
    f = np.maximum(hidden, 0.2 * hidden) @ rng.standard_normal(50)
    y = f + np.sqrt(0.1) * f.std() * rng.standard_normal(len(f))
    return X[:rows], y[:rows], X[rows:], y[rows:]


def likelihood(X: np.ndarray, name: str, rank: int, neighbors: int, kernel: Mixed):
    builder = Builder(
        X, Dials(name, rank, neighbors, "random", "random", None), XlaBackend(), 0, make_engine("auto")
    )
    with builder.backend.scope():
        return builder, builder.build(kernel)


def evaluate(ranks: list[int], name: str = "vfe", neighbors: int = 0) -> None:
    X, y, _, _ = table()
    y = (y - y.mean()) / y.std()
    kernel = Mixed(sigma_u2=1 / INPUTS)
    for rank in ranks:
        builder, family = likelihood(X, name, rank, neighbors, kernel)
        seconds, observed = [], Observed(y, 0.1)
        with builder.backend.scope():
            profile(family, kernel, observed)
            for _ in range(6):
                began = time.perf_counter()
                out = family.evaluate(kernel, observed)
                seconds.append(time.perf_counter() - began)
        print(
            f"{name} n={len(X)} I={INPUTS} r={rank} m={neighbors} block {builder.block_rows()}:"
            f" first {seconds[0]:.2f} s, then {statistics.median(seconds[1:]):.3f} s"
            f" (objective {out.value:.6f}, jitter {out.jitter:.0e})",
            flush=True,
        )
        del family
    check(name, min(ranks[0], 500), neighbors, kernel)


def profile(family, kernel: Mixed, observed: Observed) -> None:
    """Seconds of each part of an evaluation, the second time that it runs."""
    parts: dict[str, float] = {}
    for _ in range(2):
        began = time.perf_counter()
        rows = family.rows.with_target(observed.y)
        parts["target"] = time.perf_counter() - began
        began = time.perf_counter()
        model = jax.block_until_ready(family.model(kernel, observed.noise))
        parts["anchors"] = time.perf_counter() - began
        began = time.perf_counter()
        jax.block_until_ready(family.sums(family.rule(model, observed), model, rows))
        parts["sums"] = time.perf_counter() - began
    print("  ", {name: round(seconds, 4) for name, seconds in parts.items()}, flush=True)


def check(name: str, rank: int, neighbors: int, kernel: Mixed) -> None:
    """Value and gradient on few rows, accelerator against CPU."""
    X, y, _, _ = table(5000)
    answers = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        with jax.default_device(device):
            builder, family = likelihood(X, name, rank, neighbors, kernel)
            with builder.backend.scope():
                answers.append(family.evaluate(kernel, Observed(y, 0.1)))
    there, here = answers
    worst = max(
        float(np.max(np.abs(there.gradient[k] - here.gradient[k]) / np.maximum(np.abs(here.gradient[k]), 1)))
        for k in here.gradient
        if np.size(here.gradient[k])
    )
    print(f"   against the CPU: value {abs(there.value / here.value - 1):.1e}, gradient {worst:.1e} relative")


def fit(rank: int, name: str = "vfe", neighbors: int = 30, runs: int = 2) -> None:
    X, y, X_new, y_new = table()
    for run in range(runs):
        began = time.perf_counter()
        model = WideGPRegressor.plain(
            approximation=name, rank=rank, neighbors=neighbors, predict_neighbors=100, random_state=0
        ).fit(X, y)
        fitted = time.perf_counter()
        mean, sd = model.predict(X_new, return_std=True)
        done = time.perf_counter()
        result = model.result_
        stages = {k: round(v, 2) for k, v in result.seconds.items()}
        print(
            f"{name} r={rank} m={neighbors} run {run}: fit {fitted - began:.2f} s,"
            f" predict {done - fitted:.2f} s;"
            f" {result.reason}, {result.n_iter} iterations, {result.n_evaluations} evaluations, {stages},"
            f" RMSE/sd {metrics.rmse(y_new, mean) / y.std():.4f},"
            f" coverage {np.mean(np.abs(y_new - mean) < 1.96 * sd):.4f}",
            flush=True,
        )


def predict(rank: int, rows: int, new_rows: int) -> None:
    """Rows a second in cells: the first time, again, means alone; stages; then 2,000 rows by the CPU."""
    X, y, X_new, _ = table(rows)
    start = {"sigma_eps2": 0.1, "sigma_u2": 1 / INPUTS}
    dials = {"approximation": "full-scale", "rank": rank, "start": start, "max_iter": 0}
    model = WideGPRegressor.plain(**dials, random_state=0).fit(X, y).fitted_
    X_new = np.resize(X_new, (new_rows, INPUTS))
    X_new = model.inputs.transform(X_new + 0.01 * np.random.default_rng(1).standard_normal(X_new.shape))
    predictor = model.predictor
    began = time.perf_counter()
    cells = len(model.rows.parted.centres)
    print(f"n={rows} I={INPUTS} r={rank} {predictor.backend.name}: {cells} cells", end=" ")
    print(f"in {time.perf_counter() - began:.2f} s, sets", end=" ")
    began = time.perf_counter()
    groups = model.rows.groups(X_new)
    print(f"in {time.perf_counter() - began:.2f} s, {len(groups)} of them asked for", flush=True)
    made = {}
    for label, work in (
        ("first", predictor.predict), ("second", predictor.predict), ("third", predictor.predict),
        ("means, first", predictor.mean), ("means, second", predictor.mean),
    ):  # fmt: skip
        began = time.perf_counter()
        made[label] = work(X_new)
        spent = time.perf_counter() - began
        print(f"   {label}: {spent:.2f} s, {new_rows / spent:,.0f} rows/s", flush=True)
    stages(predictor, X_new)
    parts(predictor, X_new)
    here, some = replace(model, backend="native").predictor, slice(None, None, max(1, new_rows // 2000))
    expected, there = here.predict(X_new[some]), made["third"]
    sd = np.sqrt(expected.variance + here.noise)
    mean, alone = (
        np.max(np.abs(means[some] - expected.mean) / sd) for means in (there.mean, made["means, second"])
    )
    variance = np.max(np.abs(there.variance[some] - expected.variance) / sd**2)
    print(f"   against the CPU, {len(sd)} rows, at most: mean {mean:.1e} sd, alone {alone:.1e} sd,", end=" ")
    print(f"variance {variance:.1e} relative", flush=True)


class Clock(dict):
    """Seconds of each stage, in the order in which they were measured."""

    def __call__(self, name: str, work):
        """What ``work`` makes, once that is there."""
        began = time.perf_counter()
        made = jax.block_until_ready(work())
        self[name] = time.perf_counter() - began
        return made


def stages(predictor, X: np.ndarray) -> None:
    """Seconds of each stage of a prediction, every one waited for: their sum is more than the whole, in
    which copies and programs overlap. As many rows as are sent at a time.
    """
    if not predictor.backend.pads:
        return
    rows, kept, clock = predictor.rows, predictor.stacks, Clock()
    with predictor.backend.scope():
        X = X[: kept.room(X.shape[1])[0]]
        sent = kept.sent(X)
        runs = clock("copies to the device", lambda: (list(sent.runs()), sent.buffer))[0]
        points = clock("embedding", lambda: [rows.kernel.embedding(run) for run in runs])
        found = clock("cells, on the device", lambda: [kept.holder(part) for part in points])
        cells, sure = (np.concatenate(list(map(np.asarray, part))) for part in zip(*found, strict=True))
        owner, left = cells[: len(X)].astype(np.int64), np.flatnonzero(~sure[: len(X)])
        owner[left] = clock("cells, left to the host", lambda: rows.owners(X[left]))
        groups = clock("rows in order", lambda: rows.parted_by(owner))
        fresh = Stacks(kept.posterior, kept.backend, rows, kept.numbers, kept.limit)
        of = {group.cell: group for group in groups}
        clock("factorising (first time only)", lambda: (fresh.held(of, list(of)), fresh.slots.stack)[1])
        began = time.perf_counter()
        asked = kept.asked("moments", groups, sent.taken)
        clock["asking for kernels and products"] = time.perf_counter() - began
        clock("waiting for kernels and products", lambda: [values for _, _, values in asked])
        clock("results into place", lambda: fill(np.empty((2, len(X))), asked))
        host = clock("on the host, the cell of each row", lambda: rows.owners(X))
    print(f"   stages of {len(X)} rows in {len(runs)} copies and {len(asked)} programs, each waited for:")
    for name, seconds in clock.items():
        print(f"      {name}: {1e3 * seconds:.1f} ms", flush=True)
    wrong = np.count_nonzero(owner != host)
    print(f"      {len(left)} rows left to the host; {wrong} cells unlike the host's", flush=True)


def kernel_alone(backend, numbers, X, near, given):
    kernel = numbers.kernel
    return backend.cross(kernel, near, X).sum(0) + backend.cross(kernel, X, numbers.Z).sum(1)


def factor_alone(backend, numbers, X, near, given):
    return (given.V @ backend.cross(numbers.kernel, near, X)).sum(0)


def parts(predictor, X: np.ndarray) -> None:
    """Milliseconds of one program for many cells (median of 7), and of what it is made of."""
    if not predictor.backend.pads:
        return
    kept, kind = predictor.stacks, type(predictor.posterior)
    size, m, r = LARGE_PART_ROWS, predictor.rows.set_size, len(predictor.posterior.Z)
    k = kept._parts_together(size)
    flops = {"moments": 2 * (m * (INPUTS + m + 2 * r) + r * (INPUTS + 1.5 * r)), "mean": 2 * INPUTS * (m + r)}
    with predictor.backend.scope():
        slots = np.arange(k, dtype=np.int32) % kept.slots.capacity
        rows = jnp.asarray(np.resize(X, (k, size, INPUTS)))
        for name, formula, which in (
            ("moments", kind.moments, 1), ("mean", kind.mean, 2), ("kernel entries alone", kernel_alone, 1),
            ("kernel of neighbours and product with V", factor_alone, 1),
        ):  # fmt: skip
            seconds, fn = [], at_cells(formula, kept.backend, which)
            for _ in range(8):
                began = time.perf_counter()
                jax.block_until_ready(fn(kept.numbers, kept.slots.stack, slots, rows))
                seconds.append(time.perf_counter() - began)
            spent = statistics.median(seconds[1:])
            rate = f", {flops[name] * k * size / spent / 1e12:.1f} TFLOP/s" if name in flops else ""
            print(f"   one program, {k} x {size} rows, {name}: {1e3 * spent:.2f} ms{rate}", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("evaluate", "fit", "full-scale", "predict"))
    parser.add_argument("dials", type=int, nargs="+", help="ranks; of full-scale and predict as above")
    asked = parser.parse_args()
    print("jax", jax.__version__, jax.devices()[0].device_kind, flush=True)
    if asked.what == "evaluate":
        evaluate(asked.dials)
    elif asked.what == "predict":
        predict(*asked.dials)
    elif asked.what == "fit":
        for rank in asked.dials:
            fit(rank)
    else:
        evaluate(asked.dials[:1], "full-scale", asked.dials[1])
        fit(asked.dials[0], "full-scale", asked.dials[1], runs=1)


if __name__ == "__main__":
    main()
