"""One job in a process of its own: ``python -m benchmarks.league.job ORDER RESULT``, JSON and a file for it.

`run.py` starts it, with its limits; nothing is imported before the process keeps to its cores.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any


def fitted(order: dict[str, Any]) -> dict[str, Any]:
    """Fit, predict and score; seconds and memory are those of the model alone."""
    from benchmarks.league import scores, tables
    from benchmarks.league.models import MODELS, Limits
    from widegp.measure import PeakMemory

    model, settings = MODELS[order["model"]], json.loads(order["settings"])
    task = tables.task(order["table"], order["fold"])
    file = import_module(f"benchmarks.league.models.{model.file}")
    inputs = task.numbers[0].shape[1]
    limits = Limits(order["budget_s"], order["threads"], order["seed"])
    memory, began = PeakMemory(), time.perf_counter()
    predict = begin(file, task, limits, {**model.settings, **settings})
    ended = time.perf_counter()
    predicted = predict()
    predict_s = time.perf_counter() - ended
    peak = memory.bytes() / 2**20
    known = {"kind": task.kind, "rows": len(task.y), "inputs": inputs, "fit_s": ended - began}
    return known | {"predict_s": predict_s, "peak_mib": peak} | scores.scores(task, predicted)


def begin(file: Any, task: Any, limits: Any, settings: dict[str, Any]) -> Any:
    """The fit of the file's function for this sort of target; see `benchmarks.league.models`."""
    from benchmarks.league.distributions import Rounded

    sort = "numbers" if task.kind == "regression" else task.kind
    if task.outputs > 1:
        if hasattr(file, "outputs"):
            return file.outputs(task, limits, **settings)
        share = limits._replace(seconds=limits.seconds / task.outputs)
        each = [file.numbers(task.output(t), share, **settings) for t in range(task.outputs)]
        return lambda: [predict() for predict in each]
    if sort == "counts" and not hasattr(file, "counts"):
        predict = file.numbers(task, limits, **settings)
        return lambda: Rounded(predict())
    return getattr(file, sort)(task, limits, **settings)


def measured(order: dict[str, Any]) -> dict[str, Any]:
    if order["study"] == "scaling":
        from benchmarks.league import scaling

        return scaling.measure(json.loads(order["settings"]), order["threads"])
    return fitted(order)


def main() -> None:
    order, result = json.loads(sys.argv[1]), Path(sys.argv[2])
    if order["cores"]:
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(0, order["cores"])
    result.write_text(json.dumps(measured(order)))


if __name__ == "__main__":
    main()
