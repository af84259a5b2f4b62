"""What computations cost here: seconds, memory, and the bare matrix products that they cannot do without.

``widegp bench`` and the scripts in benchmarks/ measure with these functions, so that their figures compare.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from widegp.machine import peak_memory, versions

INPUTS = 50
NOISE = 0.1
NEW_ROWS = 1_000
NOISE_SHARE = 0.1
HIDDEN_UNITS = 50
# Products of more rows are measured with so many, and scaled up.
PRODUCT_ROWS = 20_000


def table(rows: int, inputs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """X (rows, inputs) of standard normals; y (rows,), a leaky network of 50 units plus noise, standardised.

    The noise has a tenth of the network's variance.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, inputs))
    hidden = X @ rng.standard_normal((inputs, HIDDEN_UNITS)) / np.sqrt(inputs)
    hidden += rng.standard_normal(HIDDEN_UNITS)
    f = np.maximum(hidden, 0.2 * hidden) @ rng.standard_normal(HIDDEN_UNITS)
    y = f + np.sqrt(NOISE_SHARE) * f.std() * rng.standard_normal(rows)
    return X, (y - y.mean()) / y.std()


@dataclass(frozen=True)
class Timing:
    """``first`` is the first call's seconds, compilation included; ``repeats`` those of later calls."""

    first: float
    repeats: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.repeats)


def timed(work: Callable[[], Any], repeats: int = 5) -> Timing:
    """Seconds of a first call and of ``repeats`` more."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return Timing(seconds[0], tuple(seconds[1:]))


class PeakMemory:
    """Bytes of resident memory at most above those at the start, by the kernel's own record of the peak.

    Linux can forget an earlier peak, so that what came before does not hide what is measured; elsewhere the
    peak of the whole process is all there is, and a larger one before the start makes the figure too small.
    """

    def __init__(self) -> None:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.start = (peak_memory() or 0)

    def bytes(self) -> int:
        return max(0, (peak_memory() or 0) - self.start)


@dataclass(frozen=True)
class Setting:
    """An approximation by its name, with ``rank`` anchors by the rule ``anchors`` and so many neighbours."""

    name: str
    rank: int
    neighbors: int = 0
    anchors: str = "random"


def likelihood(X: np.ndarray, kernel: Any, setting: Setting, backend: str = "auto") -> tuple[Any, Any]:
    """The likelihood of an approximation, with the builder that knows its backend.

    Call ``evaluate(kernel, Observed(y, noise))`` of it inside ``builder.backend.scope()``.
    """
    from widegp.approximations.build import Builder
    from widegp.approximations.layout import Dials
    from widegp.compute.backend import choose_backend
    from widegp.engines.base import backend_for, make_engine

    engine = make_engine("auto", backend)
    chosen = choose_backend(kernel, backend_for(engine, backend))
    dials = Dials(setting.name, setting.rank, setting.neighbors, setting.anchors, "random", None)
    builder = Builder(X, dials, chosen, 0, engine)
    with chosen.scope():
        return builder, builder.build(kernel)


def evaluation(
    X: np.ndarray, y: np.ndarray, kernel: Any, noise: float, setting: Setting
) -> Callable[[], Any]:
    """One objective with gradient as a function of no arguments; making it searches and places anchors."""
    from widegp.approximations.evaluation import Observed

    builder, built = likelihood(X, kernel, setting)
    observed = Observed(y, noise)

    def work() -> Any:
        with builder.backend.scope():
            out = built.evaluate(kernel, observed)
        if out.problem:
            raise ArithmeticError(f"The {setting.name} objective failed: {out.problem}.")
        return out

    return work


def vfe_products(n: int, inputs: int, rank: int, repeats: int = 5) -> float:
    """Seconds of the matrix products that one vfe objective with gradient cannot do without.

    X Z' twice (2 n I r flops each), K'K by its symmetry (n r^2), K A (2 n r^2): by the threads of BLAS or by
    a share of the rows for each thread, whichever is faster here.
    """
    from threadpoolctl import threadpool_limits

    from widegp.compute.native import NativeBackend

    rng = np.random.default_rng(0)
    size = min(n, PRODUCT_ROWS)
    X, Z = rng.standard_normal((size, inputs)), rng.standard_normal((rank, inputs))
    K, A = rng.standard_normal((size, rank)), rng.standard_normal((rank, rank))
    wide, square = np.empty((size, rank)), np.empty((rank, rank))
    backend = NativeBackend()

    def by_blas() -> None:
        np.matmul(X, Z.T, out=wide)
        np.matmul(K.T, K, out=square)
        np.matmul(X, Z.T, out=wide)
        np.matmul(K, A, out=wide)

    def by_parts() -> None:
        backend.matmul(X, Z.T)
        backend.inner(K, K)
        backend.matmul(X, Z.T)
        backend.matmul(K, A)

    with backend.scope():
        parts = timed(by_parts, repeats).median
    with threadpool_limits(threads(), user_api="blas"):
        blas = timed(by_blas, repeats).median
    return min(blas, parts) * n / size


def full_scale_products(n: int, inputs: int, rank: int, neighbors: int, repeats: int = 5) -> float:
    """Seconds of the matrix products of one full-scale objective with gradient.

    For each row's m + 1 points, inner products and low-rank parts in both passes; for the table, X Z' in both
    passes and for their pullback, features K W in both, phi~'D^-1 phi~, phi~ A_bar, W_bar and K_bar.
    """
    from widegp.compute.native import NativeBackend

    rng = np.random.default_rng(0)
    size = min(n, PRODUCT_ROWS)
    X, Z = rng.standard_normal((size, inputs)), rng.standard_normal((rank, inputs))
    K, W = rng.standard_normal((size, rank)), rng.standard_normal((rank, rank))
    other, backend = K.copy(), NativeBackend()
    points = rng.standard_normal((neighbors + 1, inputs))
    features = rng.standard_normal((neighbors + 1, rank))
    count, per_row = threads(), _row_products()

    def work() -> None:
        per_row(points, features, 2 * size, count)
        for _ in range(2):
            backend.matmul(X, Z.T)
            backend.matmul(K, W)
        backend.matmul(X, Z.T)
        backend.inner(K, K)
        backend.matmul(K, W)
        backend.inner(K, other)
        backend.matmul(K, W.T)

    with backend.scope():
        return timed(work, repeats).median * n / size


@cache
def _row_products() -> Callable[[np.ndarray, np.ndarray, int, int], None]:
    """x x' and f f' for every row, the rows shared among threads, with BLAS on one thread in each."""
    from numba import njit, prange

    @njit(parallel=True)
    def products(x, f, rows, threads):
        for t in prange(threads):
            mine, low = x.copy(), f.copy()
            out = np.empty((x.shape[0], x.shape[0]))
            for _ in range(rows * t // threads, rows * (t + 1) // threads):
                np.dot(mine, mine.T, out)
                np.dot(low, low.T, out)

    return products


def threads() -> int:
    """Threads that the package's loops use here."""
    from widegp.compute.native_arc import threads as chosen

    return int(chosen())


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """b of cost = a size^b, by least squares on the logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(slope)


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system, and versions of what computes."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads(),
        "memory_gib": _memory_gib(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": versions(),
    }


def _memory_gib() -> float | None:
    with suppress(ValueError, OSError, AttributeError):
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    return None


def _processor() -> str:
    with suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Figure:
    """``seconds`` for ``rows``; ``products`` are those of the bare matrix products, where they are known."""

    name: str
    rows: int
    seconds: float
    products: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as long as the products."""
        return None if self.products is None else self.seconds / self.products

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    def to_dict(self) -> dict[str, Any]:
        known = {"name": self.name, "rows": self.rows, "seconds": self.seconds, "rows_per_second": self.rate}
        return known | {"products_seconds": self.products, "times_products": self.ratio}


def survey(
    sizes: Sequence[int], rank: int, full_scale_rank: int, neighbors: int, repeats: int = 3
) -> Iterator[Figure]:
    """What this machine does: objectives with gradient and the search for neighbours, then predictions.

    Tables of `INPUTS` inputs; medians of ``repeats`` after a first call, which may compile.
    """
    from widegp.kernels import Mixed
    from widegp.neighbors import nearest_earlier

    kernel = Mixed(sigma_u2=1 / INPUTS)
    for n in sizes:
        X, y = table(n, INPUTS)
        work = evaluation(X, y, kernel, NOISE, Setting("vfe", rank))
        products = vfe_products(n, INPUTS, rank, repeats)
        yield Figure("evaluation, vfe", n, timed(work, repeats).median, products)
        points = kernel.embedding(X)
        search = partial(nearest_earlier, points, neighbors)
        yield Figure("search for neighbours", n, timed(search, 1).median)
        work = evaluation(X, y, kernel, NOISE, Setting("full-scale", full_scale_rank, neighbors))
        products = full_scale_products(n, INPUTS, full_scale_rank, neighbors, repeats)
        yield Figure("evaluation, full-scale", n, timed(work, repeats).median, products)
    for name, size in (("vfe", rank), ("full-scale", full_scale_rank)):
        yield _prediction(name, max(sizes), size, neighbors)


def _prediction(name: str, rows: int, rank: int, neighbors: int) -> Figure:
    """Means and standard deviations at new rows by a regressor that keeps its start."""
    from widegp.estimator import WideGPRegressor

    new = min(rows, NEW_ROWS)
    X, y = table(rows + new, INPUTS)
    model = WideGPRegressor.plain(
        approximation=name, rank=rank, neighbors=neighbors, anchors="random", scale_inputs=None,
        start={"sigma_u2": 1 / INPUTS, "sigma_eps2": NOISE}, max_iter=0, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:rows], y[:rows])
    taken = timed(lambda: model.predict(X[rows:], return_std=True), 1)
    return Figure(f"prediction, {name}", new, taken.median)
