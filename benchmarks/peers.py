"""Beside GPyTorch, GPflow and GPBoost: ``python benchmarks/peers.py evaluate|converge|gpboost``.

    evaluate --rows 20000 --rank 500    one objective with gradient (sparse bound, K_mix, I = 90)
    converge --rows 20000 --rank 500    time to a MAP within 1e-4 per row of the best that any package found
    gpboost                             a whole fit and prediction on Superconductivity

Same rows, anchors, start and priors, float64, as many threads as there are cores; each package has a process
to itself, one after the other. Objectives and gradients are compared, and a difference is an error. Packages
that are not installed are left out: pip install 'widegp[bench]'.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from peers_shared import NAMES, Trace, start, task

from widegp.machine import versions
from widegp.measure import PeakMemory, timed, vfe_products

PEERS = ("gpflow", "gpytorch")
MARK = "RESULT "
CLOSE, CLOSE_GRADIENT = 1e-6, 1e-4
PER_ROW = 1e-4


def module(package: str) -> Any:
    return import_module(f"peers_{package}")


def evaluate_here(package: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Of one package, in this process: seconds, bytes above those before the first evaluation, the answer."""
    peer = module(package)
    peer.use_threads(asked.threads)
    given = task(asked.rows, asked.rank)
    model = peer.Model(given, start())
    memory, answers = PeakMemory(), []
    timing = timed(lambda: answers.append(model.evaluate()), asked.repeats)
    value, gradient = answers[-1]
    out = {
        "seconds": timing.median, "first": timing.first, "bytes": memory.bytes(), "value": value,
        "gradient": gradient, "versions": versions(peer.PACKAGES),
    }  # fmt: skip
    if package == "widegp":
        out["products"] = vfe_products(*given.X.shape, asked.rank, repeats=asked.repeats)
    return out


def converge_here(package: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Of one package, in this process: the MAP objective against time from the start.

    The regressor goes first: its anchors, which it chooses within its time, are given to the others.
    """
    peer, given, trace = module(package), task(asked.rows, asked.rank), Trace(asked.limit)
    peer.use_threads(asked.threads)
    file = Path(asked.folder) / "ours.npz"
    out: dict[str, Any] = {"versions": versions(peer.PACKAGES)}
    if package == "widegp":
        fitted, noise = peer.fit(given, trace)
        np.savez(file, Z=fitted.anchors_, start_noise=noise, **fitted.params_)
        record = fitted.result_
        out |= {"stages": record.seconds, "estimates": fitted.params_, "jitter": record.jitter}
    else:
        ours = np.load(file)
        began = start(float(ours["start_noise"]))
        model = peer.Model(given._replace(Z=ours["Z"]), began)
        calls = timed(model.evaluate, 1)
        out["compiling"] = calls.first - calls.median
        out["value_there"] = model.map_value({name: float(ours[name]) for name in NAMES})
        model.put(began)
        trace.began = time.perf_counter()
        model.minimise(trace)
        out["estimates"] = {name: float(value) for name, value in model.values().items()}
    return out | {"points": trace.points, "ended": trace.ended, "evaluations": trace.evaluations}


def gpboost_here(package: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Of one package, in this process: a line for each of its models."""
    return {"lines": module(package).superconductivity(asked.threads, asked.limit / 2)}


HERE = {"evaluate": evaluate_here, "converge": converge_here, "gpboost": gpboost_here}


def elsewhere(package: str, asked: argparse.Namespace) -> dict[str, Any] | None:
    """The same in a fresh process; None, with a line that says why, where there is no answer."""
    if find_spec(package) is None:
        print(f"{package} is not installed and left out: pip install 'widegp[bench]'", flush=True)
        return None
    options = [f"--{k}={v}" for k, v in vars(asked).items() if k not in ("mode", "package", "peers") and v]
    command = [sys.executable, __file__, asked.mode, *options, f"--package={package}"]
    count = str(asked.threads)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", "PYTHONWARNINGS": "ignore"}
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), count)
    environment = os.environ | quiet | limits
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    marked = [line for line in run.stdout.splitlines() if line.startswith(MARK)]
    if run.returncode or not marked:
        print(f"{package} failed with exit code {run.returncode}:\n{run.stderr[-2000:]}", flush=True)
        return None
    return json.loads(marked[-1][len(MARK) :])


def label(answer: dict[str, Any]) -> str:
    return " ".join(f"{k} {v}" for k, v in list(answer["versions"].items())[:1])


def _gradient_gap(ours: dict[str, float], theirs: dict[str, float]) -> float:
    """The largest relative difference, entries below a thousandth of the largest counted as that much."""
    least = 1e-3 * max(abs(slope) for slope in ours.values())
    return max(abs(theirs[name] - slope) / max(abs(slope), least) for name, slope in ours.items())


def evaluate(asked: argparse.Namespace) -> bool:
    """Ratios of seconds and memory, and whether all packages computed the same thing."""
    print(f"one objective with gradient, n {asked.rows}, I 90, r {asked.rank}, {asked.threads} threads,"
          f" float64, median of {asked.repeats}; memory above that before the first evaluation")  # fmt: skip
    ours = elsewhere("widegp", asked)
    if ours is None:
        return False
    print(f"{label(ours):16s} {ours['seconds']:7.3f} s (first {ours['first']:.2f})"
          f" {ours['bytes'] / 1e9:6.2f} GB", flush=True)  # fmt: skip
    print(f"{'bare products':16s} {ours['products']:7.3f} s:"
          f" ours takes {ours['seconds'] / ours['products']:.2f} times as long", flush=True)  # fmt: skip
    same = True
    for package in asked.peers:
        theirs = elsewhere(package, asked)
        if theirs is None:
            continue
        value = abs(theirs["value"] / ours["value"] - 1)
        worst = _gradient_gap(ours["gradient"], theirs["gradient"])
        same &= value < CLOSE and worst < CLOSE_GRADIENT
        print(
            f"{label(theirs):16s} {theirs['seconds']:7.3f} s (first {theirs['first']:.2f})"
            f" {theirs['bytes'] / 1e9:6.2f} GB: {theirs['seconds'] / ours['seconds']:.2f} times as long,"
            f" {theirs['bytes'] / max(ours['bytes'], 1):.1f} times the memory;"
            f" objective differs by {value:.0e}, gradient by {worst:.0e}",
            flush=True,
        )
    if not same:
        print("the packages did not compute the same thing: these figures do not compare")
    return same


def converge(asked: argparse.Namespace) -> bool:
    """Seconds to the best MAP objective of all, to within 1e-4 per row."""
    print(
        f"time to a MAP within {PER_ROW:g} per row of the best of all, n {asked.rows}, I 90, r {asked.rank},"
        f" {asked.threads} threads; default priors in every loss; start and anchors are those of widegp"
    )
    with tempfile.TemporaryDirectory() as folder:
        asked.folder = folder
        answers = {name: elsewhere(name, asked) for name in ("widegp", *asked.peers)}
    found = {name: out for name, out in answers.items() if out and out["points"]}
    if "widegp" not in found:
        return False
    best = min(out["points"][-1][1] for out in found.values())
    seconds, same = {}, True
    for name, out in found.items():
        seconds[name] = next((t for t, v in out["points"] if v <= best + PER_ROW * asked.rows), None)
        same &= _say(out, asked.rows, best, seconds[name], seconds["widegp"], found["widegp"])
    return same


def _say(
    out: dict[str, Any], rows: int, best: float, seconds: float | None, ours: float | None,
    first: dict[str, Any],
) -> bool:  # fmt: skip
    """A line on one package; False if its objective is not the same function as ours."""
    reached = f"{seconds:7.2f} s" if seconds is not None else "  never"
    print(f"{label(out):16s} {reached}; ended after {out['points'][-1][0]:.2f} s,"
          f" {len(out['points'])} iterations, {out['evaluations']} evaluations,"
          f" {(out['points'][-1][1] - best) / rows:.1e} per row above the best ({out['ended']})")  # fmt: skip
    print("   estimates: " + ", ".join(f"{name} {out['estimates'][name]:.4g}" for name in NAMES))
    if "stages" in out:
        stages = ", ".join(f"{k} {v:.2f} s" for k, v in out["stages"].items())
        print(f"   stages: {stages}; jitter {out['jitter']:.0e}", flush=True)
        return True
    value = first["points"][-1][1]
    gap = abs(out["value_there"] / value - 1)
    if ours is None:
        slower = "ours did not get there"
    else:
        more = "" if seconds is not None else "more than "
        slower = f"{more}{(seconds or out['points'][-1][0]) / ours:.1f} times as long as ours"
    print(f"   {slower}, of which about {max(0.0, out['compiling']):.1f} s"
          f" compiling; at our estimates the objective differs by {gap:.0e}", flush=True)  # fmt: skip
    if gap >= CLOSE:
        print("   the objectives are not the same function: these figures do not compare")
    return gap < CLOSE


def gpboost(asked: argparse.Namespace) -> bool:
    """Whole fits on Superconductivity, ours and GPBoost's nearest."""
    print(f"Superconductivity, whole fit and prediction, {asked.threads} threads; RMSE in kelvin, NLL of the"
          " standardised target", flush=True)  # fmt: skip
    for package in ("widegp", "gpboost"):
        for line in (elsewhere(package, asked) or {}).get("lines", ()):
            print(line, flush=True)
    return True


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("mode", choices=list(HERE))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rank", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--limit", type=float, default=200.0, help="seconds that one package may optimise")
    parser.add_argument("--package", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.package:
        print(MARK + json.dumps(HERE[asked.mode](asked.package, asked)), flush=True)
        return
    sys.exit(not {"evaluate": evaluate, "converge": converge, "gpboost": gpboost}[asked.mode](asked))


if __name__ == "__main__":
    main()
