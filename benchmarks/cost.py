"""Time of one objective with its gradient against n, r, m, I, beside what `widegp.cost` predicts.

    python benchmarks/cost.py                  about four minutes on two free cores
    python benchmarks/cost.py --quick          small tables
    python benchmarks/cost.py --quick --cpu    CPU seconds of all threads, where others use the machine too
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.compute.backend import Backend, choose_backend
from widegp.cost import Calibration, Size, evaluation_seconds
from widegp.inference.choose import Clock, calibrate
from widegp.kernels import named

REPEATS = 3
# Where one dial varies, the others stay here.
BASE = Size("full-scale", 20_000, 20, 200, 30)
QUICK = Size("full-scale", 1_000, 20, 100, 20)


@dataclass(frozen=True)
class Line:
    """Sizes along one dial: ``dial`` is the symbol, ``field`` its name in `Size`."""

    base: Size
    dial: str
    field: str
    values: tuple[int, ...]

    def sizes(self) -> list[Size]:
        return [replace(self.base, **{self.field: value}) for value in self.values]


def lines(quick: bool) -> list[Line]:
    base = QUICK if quick else BASE
    vfe = replace(base, name="vfe", n_rows=2 * base.n_rows)
    n, r, m = base.n_rows, base.rank, base.neighbors
    return [
        Line(base, "n", "n_rows", (n // 4, n, 4 * n)),
        Line(base, "r", "rank", (r // 4, r, 4 * r)),
        Line(base, "m", "neighbors", (m // 3, m, 2 * m)),
        Line(base, "I", "n_inputs", (5, 20, 90)),
        Line(vfe, "n", "n_rows", (n // 2, 2 * n, 8 * n)),
        Line(vfe, "r", "rank", (r // 2, r, 4 * r)),
        Line(Size("exact", n, 20, 1, 0), "n", "n_rows", (500, 1000) if quick else (500, 1000, 2000)),
    ]


def measured(size: Size, backend: Backend, clock: Clock) -> float:
    """The least seconds of one evaluation among three, after one that may compile."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((size.n_rows, size.n_inputs)), rng.standard_normal(size.n_rows)
    kernel = named("mixed").replace(sigma_u2=1 / size.n_inputs)
    dials = Dials(size.name, size.rank, size.neighbors, "random", "random", None)
    seconds: list[float] = []
    with backend.scope():
        likelihood: Any = Builder(X, dials, backend, 0).build(kernel)
        for _ in range(REPEATS + 1):
            began = clock()
            likelihood.evaluate(kernel, Observed(y, 0.1))
            seconds.append(clock() - began)
    return min(seconds[1:])


def exponent(values: tuple[int, ...], seconds: list[float]) -> float:
    """p of seconds = c value^p by least squares in logarithms."""
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def calibration(n_inputs: int, backend: Backend, clock: Clock) -> Calibration:
    X = np.random.default_rng(0).standard_normal((6000, n_inputs))
    return calibrate(X, named("mixed").replace(sigma_u2=1 / n_inputs), backend, 0, clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small tables")
    parser.add_argument("--cpu", action="store_true", help="count CPU seconds")
    parser.add_argument("--backend", default="auto", choices=("auto", "native", "xla"))
    arguments = parser.parse_args()
    backend = choose_backend(named("mixed"), arguments.backend)
    clock = time.process_time if arguments.cpu else time.perf_counter
    rates = calibration(20, backend, clock)
    print(f"backend {backend.name}, {rates}")
    ratios: list[float] = []
    summary: list[str] = []
    print(f"{'':12}{'n':>9}{'I':>5}{'r':>6}{'m':>5}{'measured':>11}{'predicted':>11}{'ratio':>7}")
    for line in lines(arguments.quick):
        sizes = line.sizes()
        seconds = [measured(size, backend, clock) for size in sizes]
        expected = [evaluation_seconds(size, rates) for size in sizes]
        for size, got, wanted in zip(sizes, seconds, expected, strict=True):
            ratios.append(wanted / got)
            print(
                f"{size.name:12}{size.n_rows:9,}{size.n_inputs:5}{size.shape.r:6}{size.shape.m:5}"
                f"{got:10.4f}s{wanted:10.4f}s{wanted / got:7.2f}",
                flush=True,
            )
        summary.append(
            f"| {line.base.name} | {line.dial} | {line.values[0]:,} to {line.values[-1]:,}"
            f" | {exponent(line.values, seconds):.2f} | {exponent(line.values, expected):.2f} |"
        )
    print("\n| approximation | dial | from | measured exponent | predicted |\n|---|---|---|---|---|")
    print("\n".join(summary))
    worst = max(ratios, key=lambda ratio: abs(np.log(ratio)))
    spread = float(np.exp(np.sqrt(np.mean(np.log(ratios) ** 2))))
    print(f"\npredicted / measured: typical factor {spread:.2f}, worst {worst:.2f}, of {len(ratios)} sizes")


if __name__ == "__main__":
    main()
