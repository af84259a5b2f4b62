"""Seconds of adding rows to a fitted model, and whether a new fit is called for where there is no need.

    python benchmarks/growth.py time --rows 100000 --new 1000
        seconds of an update, and of the first prediction after it; parameters stay where they start
    python benchmarks/growth.py alarms --table elevators --rows 8000 --new 4000 --seeds 5
        rows of one table in random order: is a new fit called for though nothing has changed?

Both print one JSON line a run.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings

import numpy as np

from widegp import WideGPRegressor


def timed(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def run_time(args) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(args.rows + 3 * args.new, args.inputs))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.3 * rng.normal(size=len(X))
    start = {"sigma_u2": 1 / args.inputs, "sigma_eps2": 0.1}
    model = WideGPRegressor.plain(
        approximation=args.approximation, rank=args.rank, neighbors=args.neighbors, max_iter=0, start=start,
        random_state=0, predict_cells=args.cells,
    )  # fmt: skip
    fit = timed(lambda: model.fit(X[: args.rows], y[: args.rows]))
    few = X[-100:]
    first = timed(lambda: model.predict(few, True))
    # The first update may have to compile what the fit did not need.
    updates, processor, after = [], [], []
    for k in range(3):
        new, began = slice(args.rows + k * args.new, args.rows + (k + 1) * args.new), time.process_time()
        updates.append(round(timed(lambda new=new: model.update(X[new], y[new])), 3))
        processor.append(round(time.process_time() - began, 3))
        after.append(round(timed(lambda: model.predict(few, True)), 3))
    told = {
        "approximation": args.approximation, "rows": args.rows, "new": args.new, "inputs": args.inputs,
        "rank": args.rank, "neighbors": args.neighbors, "fit_s": round(fit, 1),
        "predict_100_before_s": round(first, 3), "updates_s": updates,
        "updates_processor_s": processor, "predict_100_after_s": after,
        "peak_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "refit_due": model.result_.refit_due,
    }  # fmt: skip
    print(json.dumps(told), flush=True)


def run_alarms(args) -> None:
    from tables import load

    split = load(args.table)
    for seed in range(args.seeds):
        X, y = np.concatenate([split.X, split.X_test]), np.concatenate([split.y, split.y_test])
        order = np.random.default_rng(seed).permutation(len(y))[: args.rows + args.new]
        X, y = X[order], y[order]
        made = WideGPRegressor if args.default else WideGPRegressor.plain
        model = made(approximation=args.approximation, rank=args.rank, random_state=seed)
        model.fit(X[: args.rows], y[: args.rows])
        model.update(X[args.rows :], y[args.rows :])
        growth = model.result_.growth[-1]
        sds = (growth.score - growth.expected) / np.hypot(growth.chance, growth.doubt)
        told = {
            "table": args.table, "seed": seed, "default": args.default, "approximation": model.approximation_,
            "rows": args.rows, "new": args.new, "score": round(growth.score, 4),
            "expected": round(growth.expected, 4), "sds": round(float(sds), 2), "due": growth.refit_due,
        }  # fmt: skip
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("what", choices=("time", "alarms"))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--new", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=20)
    parser.add_argument("--rank", type=int, default=200)
    parser.add_argument("--neighbors", type=int, default=30)
    parser.add_argument("--approximation", default="full-scale")
    parser.add_argument("--cells", action="store_true")
    parser.add_argument("--table", default="elevators")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--default", action="store_true", help="The default model instead of the plain one.")
    given = parser.parse_args()
    run_time(given) if given.what == "time" else run_alarms(given)
