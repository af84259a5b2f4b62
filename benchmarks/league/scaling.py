"""Seconds against rows and workers on a Dask cluster of local processes, and a model of them.

    t(n, W) = a + b n / W

a, what a round trip costs, and b, seconds for a row on one worker, by least squares of relative errors
(`cost_model`); the error of an extrapolation is that of the two estimates and of a single measurement. Parts
are ``draw``, rows of a wide network whose limit is K_mix, and ``vfe`` and ``full-scale``, one objective with
its gradient. Strong scaling: the same rows on 1, 2, 4 workers of one thread; weak scaling: as many rows for
each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.league.records import Job

INPUTS, RANK, NEIGHBORS, WIDTH, NOISE = 20, 200, 30, 10_000, 0.1
WORKERS = (1, 2, 4)
# Rows by part: a draw computes 10,000 hidden units for each row.
PARTS = {
    "vfe": (20_000, 40_000, 80_000, 160_000),
    "full-scale": (20_000, 40_000, 80_000, 160_000),
    "draw": (5_000, 10_000, 20_000, 40_000),
}
REPEATS = 3
# What is said of a row whose workers shared cores.
CROWDED = "more workers than cores"
# Blocks of this many rows are drawn by one task.
DRAWN_TOGETHER = 1_250


def jobs() -> Iterator[Job]:
    for part, sizes in PARTS.items():
        for rows in sizes:
            for workers in WORKERS:
                setting = {"part": part, "rows": rows, "workers": workers}
                yield Job.of("simulated", "widegp-dask", setting, study="scaling")


def measure(setting: dict[str, Any], threads: int) -> dict[str, Any]:
    """Median seconds of one draw or evaluation on ``workers`` processes; there are ``threads`` cores."""
    from dask.distributed import Client, LocalCluster

    from widegp.measure import PeakMemory, timed

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    count = setting["workers"]
    cluster = LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client:
        memory = PeakMemory()
        drawn = setting["part"] == "draw"
        work = _drawing(client, setting["rows"]) if drawn else _evaluation(client, setting)
        taken = timed(work, REPEATS)
        crowded = CROWDED if count > threads else ""
        known = {"kind": "scaling", "rows": setting["rows"], "inputs": INPUTS, "detail": crowded}
        return known | {"fit_s": taken.median, "peak_mib": memory.bytes() / 2**20}


def _drawing(client: Any, rows: int) -> Callable[[], Any]:
    blocks = [min(DRAWN_TOGETHER, rows - k) for k in range(0, rows, DRAWN_TOGETHER)]
    # Means come back, not rows: drawn tables stay where they are fitted.
    return lambda: client.gather(client.map(drawn_mean, blocks, range(len(blocks)), pure=False))


def drawn_mean(rows: int, seed: int) -> float:
    """The mean target of a block of rows, drawn from one network by its worker."""
    from widegp.kernels import Mixed
    from widegp.simulate import simulate

    X = np.random.default_rng(seed).uniform(-0.5, 0.5, (rows, INPUTS))
    return float(np.mean(simulate(Mixed(), X, method="network", width=WIDTH, rng=0).y))


def _evaluation(client: Any, setting: dict[str, Any]) -> Callable[[], Any]:
    from widegp.approximations.build import Builder
    from widegp.approximations.evaluation import Observed
    from widegp.approximations.layout import Dials
    from widegp.compute.backend import choose_backend
    from widegp.engines.base import backend_for
    from widegp.engines.dask import DaskEngine
    from widegp.kernels import Mixed
    from widegp.measure import table

    X, y = table(setting["rows"], INPUTS)
    kernel, engine, name = Mixed(sigma_u2=1 / INPUTS), DaskEngine(client), setting["part"]
    backend = choose_backend(kernel, backend_for(engine, "auto"))
    neighbors = NEIGHBORS if name == "full-scale" else 0
    builder = Builder(X, Dials(name, RANK, neighbors, "random", "random", None), backend, 0, engine)
    with backend.scope():
        built = builder.build(kernel)

    def work() -> Any:
        with backend.scope():
            return built.evaluate(kernel, Observed(y, NOISE))

    return work


class CostModel(NamedTuple):
    """a, b of t = a + b n / W, their covariance (2, 2), and the relative sd of one measurement."""

    a: float
    b: float
    covariance: np.ndarray
    scatter: float

    def at(self, rows: float, workers: float) -> tuple[float, float]:
        """Seconds, and their standard error."""
        x = np.array([1.0, rows / workers])
        seconds = float(x @ [self.a, self.b])
        return seconds, float(np.sqrt(x @ self.covariance @ x + (self.scatter * seconds) ** 2))


def cost_model(rows: Sequence[float], workers: Sequence[float], seconds: Sequence[float]) -> CostModel:
    """argmin over a, b of sum_i ((t_i - a - b n_i / W_i) / t_i)^2, with the usual covariance of the two."""
    t = np.asarray(seconds, float)
    x = np.stack([np.ones(len(t)), np.asarray(rows, float) / np.asarray(workers, float)], axis=1)
    weighted = x / t[:, None]
    (a, b), *_ = np.linalg.lstsq(weighted, np.ones(len(t)), rcond=None)
    left = 1 - weighted @ [a, b]
    variance = float(left @ left) / max(len(t) - 2, 1)
    return CostModel(float(a), float(b), variance * np.linalg.inv(weighted.T @ weighted), variance**0.5)
