"""What the packages compared in peers.py share: the task, where it starts, its priors, and L-BFGS.

Nothing here imports a package that is measured, so that each process holds one of them alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from widegp import metrics
from widegp.inference.priors import Beta, default_priors
from widegp.kernels import Mixed
from widegp.measure import table

INPUTS = 90
KERNEL = ("sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2", "alpha", "w")
NAMES = (*KERNEL, "sigma_eps2")
MAX_ITER = 500

Values = dict[str, float]


class Task(NamedTuple):
    """X (n, I), y (n,) standardised, anchors Z (r, I)."""

    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray


def task(rows: int, rank: int) -> Task:
    """The same rows and the same anchors, which are rows drawn at random, in every process."""
    X, y = table(rows, INPUTS)
    return Task(X, y, X[np.random.default_rng(1).choice(rows, rank, replace=False)])


def start(noise: float = 0.1) -> Values:
    """Where every package begins: pre-activations of unit order, alpha = w = 1/2."""
    return dict(zip(NAMES, (1.0, 1 / INPUTS, 1.0, 1.0, 0.5, 0.5, noise), strict=True))


def penalty(values: dict[str, Any], log: Callable[[Any], Any]) -> Any:
    """-log p(theta) up to a constant under the default priors, for the tensors of any package."""
    total: Any = 0.0
    for name, prior in default_priors(Mixed(), INPUTS, ard=False).items():
        if name in values:
            x = values[name]
            if isinstance(prior, Beta):
                total = total - (prior.a - 1) * log(x) - (prior.b - 1) * log(1 - x)
            else:
                total = total + (prior.shape + 1) * log(x) + prior.scale / x
    return total


class _OutOfTime(Exception):
    pass


@dataclass
class Trace:
    """Seconds since the start and the lowest MAP objective by then, for every iteration."""

    limit: float
    points: list[tuple[float, float]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    evaluations: int = 0
    ended: str = "no iteration"

    def record(self, value: float) -> None:
        lowest = min(value, self.points[-1][1]) if self.points else value
        self.points.append((time.perf_counter() - self.began, float(lowest)))
        if self.points[-1][0] > self.limit:
            raise _OutOfTime

    def minimise(self, run: Callable[..., Any]) -> None:
        """``run(callback=..., options=...)`` is SciPy's L-BFGS-B with the rest of its arguments filled in."""

        def callback(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            self.record(float(intermediate_result.fun))

        try:
            out = run(callback=callback, options={"maxiter": MAX_ITER, "maxfun": 10 * MAX_ITER})
            self.ended, self.evaluations = str(out.message), int(out.nfev)
        except _OutOfTime:
            self.ended = f"stopped after {self.limit:.0f} s"


def scores(y: np.ndarray, mean: np.ndarray, sd: np.ndarray, unit: float) -> str:
    """RMSE, NLL of the target divided by ``unit``, and coverage of 95% intervals."""
    covered = metrics.coverage(y, mean - 1.96 * sd, mean + 1.96 * sd)
    nll = metrics.nlpd(y / unit, mean / unit, sd / unit)
    return f"RMSE {metrics.rmse(y, mean):.3f}, NLL {nll:.4f}, coverage {covered:.3f}"
