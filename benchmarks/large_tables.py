"""Fits of large tables beside what `widegp cost` predicts: ``python benchmarks/large_tables.py``.

A table of `widegp.measure.table` with 20 inputs, fitted by `WideGPRegressor.plain()` and by the default, each
in a fresh process: seconds of the fit and of 2,000 predictions, what was predicted from rates measured just
before, peak of memory above the data, RMSE and NLL of the predicted rows; beside it gradient boosting, for
orientation. A line of JSON per fit goes to ``--out``, where those that are there already are not run again.
Two cores of a larger machine: ``taskset -c 0,1 env NUMBA_NUM_THREADS=2 python benchmarks/large_tables.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

INPUTS, NEW_ROWS = 20, 2_000
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
KINDS = ("plain", "default", "boosting")


def predicted(rows: int, kind: str) -> dict[str, float]:
    """What `widegp cost` says of this fit, from rates measured now."""
    import numpy as np

    from widegp import cost
    from widegp.approximations.layout import Dials
    from widegp.choices.plan import chosen_plan
    from widegp.compute.backend import choose_backend
    from widegp.inference.choose import calibrate, choose_dials
    from widegp.inference.plan import fit_plan
    from widegp.kernels import named

    kernel = named("mixed").at_start(INPUTS)
    X = np.random.default_rng(0).standard_normal((min(rows, 6_000), INPUTS))
    rates = calibrate(X, kernel, choose_backend(kernel, "auto"), 0)
    asked = Dials("auto", 500, 30, "kmeans", "random", None)
    size = cost.Size.of(choose_dials(asked, rows, INPUTS, False, None), (rows, INPUTS))
    plan = (fit_plan if kind == "plain" else chosen_plan)(size, rates)
    each = cost.prediction_seconds(size, 400, rates, NEW_ROWS)
    return {"cost_fit": cost.fit_seconds(plan), "cost_predict": NEW_ROWS * each}


def here(rows: int, kind: str) -> dict[str, Any]:
    """One fit in this process."""
    from widegp import WideGPRegressor, metrics
    from widegp.measure import PeakMemory, table

    X, y = table(rows + NEW_ROWS, INPUTS)
    out: dict[str, Any] = {"rows": rows, "kind": kind, "threads": _threads()}
    if kind == "boosting":
        from sklearn.ensemble import HistGradientBoostingRegressor

        model: Any = HistGradientBoostingRegressor()
    else:
        out |= predicted(rows, kind)
        model = WideGPRegressor.plain(random_state=0) if kind == "plain" else WideGPRegressor(random_state=0)
    memory, began = PeakMemory(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:rows], y[:rows])
    fitted = time.perf_counter()
    # The peak is that of the fit: predictions of a service are another matter.
    out |= {"fit": fitted - began, "gib": memory.bytes() / 2**30}
    if kind == "boosting":
        mean = model.predict(X[rows:])
        return out | {"predict": time.perf_counter() - fitted, "rmse": metrics.rmse(y[rows:], mean)}
    mean, sd = model.predict(X[rows:], return_std=True)
    out |= {"predict": time.perf_counter() - fitted, "rmse": metrics.rmse(y[rows:], mean)}
    result = model.result_
    out |= {"nlpd": metrics.nlpd(y[rows:], mean, sd), "seconds": result.seconds, "reason": result.reason}
    return out | {"evaluations": result.n_evaluations, "rounds": result.rounds}


def _threads() -> int:
    from widegp.measure import threads

    return threads()


def known(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told(line: dict[str, Any]) -> str:
    words = f"{line['kind']:8s} n {line['rows']:>9,}: fit {line['fit']:7.1f} s"
    if "cost_fit" in line:
        words += f" (predicted {line['cost_fit']:.1f})"
    words += f", {NEW_ROWS:,} predictions {line['predict']:.1f} s"
    if "cost_predict" in line:
        words += f" (predicted {line['cost_predict']:.1f})"
    words += f", {line['gib']:.2f} GiB above the data, RMSE {line['rmse']:.4f}"
    return words + (f", NLL {line['nlpd']:.4f}, {line['seconds']}" if "nlpd" in line else "")


def growth(lines: list[dict[str, Any]], kind: str) -> None:
    """The exponent of seconds in rows, over the sizes of full-scale fits."""
    from widegp.measure import exponent

    large = [line for line in lines if line["kind"] == kind and line["rows"] > 10_000]
    found = sorted((line["rows"], line["fit"]) for line in large)
    if len(found) > 1:
        sizes, seconds = zip(*found, strict=True)
        print(f"{kind}: time grows as n^{exponent(sizes, seconds):.3f} from {sizes[0]:,} rows on")


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--out", type=Path, default=Path("large_tables.jsonl"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(here(asked.rows[0], asked.kinds[0])))
        return
    for rows in asked.rows:
        for kind in asked.kinds:
            lines = known(asked.out)
            line = next((one for one in lines if (one["rows"], one["kind"]) == (rows, kind)), None)
            if line is None:
                command = [sys.executable, __file__, "--child", "--rows", str(rows), "--kinds", kind]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                line = json.loads(done.stdout.splitlines()[-1])
                with asked.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            print(told(line), flush=True)
    for kind in asked.kinds:
        growth(known(asked.out), kind)


if __name__ == "__main__":
    main()
