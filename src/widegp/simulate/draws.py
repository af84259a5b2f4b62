"""One call for four ways to draw a Gaussian process with noise at the rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from widegp.anchors import Wanted, choose_anchors
from widegp.approximations.whitening import JITTERS, whiten
from widegp.compute.backend import choose_backend
from widegp.inference.protocol import NOISE_FRACTION
from widegp.kernels.base import Kernel
from widegp.neighbors import nearest_earlier
from widegp.networks import network_of
from widegp.progress import Listener, Progress
from widegp.simulate.covariance import row_covariance
from widegp.simulate.sequential import draw_in_turn

METHODS = ("vecchia", "network", "full-scale", "exact")
EXACT_ROWS = 20_000
"""Largest table drawn with ``method="exact"``: its covariance takes 3.2 GB."""

_BATCH = 8_192


@dataclass(frozen=True)
class Simulation:
    """Rows X (n, I), draws f of the process and y = f + noise, (n,) or (n, n_draws), and how they were made.

    noise : sigma_eps2.
    jitter : largest share of a mean diagonal that was added to some matrix to factor it; 0 if none was.
    width : hidden units of a network; None for other methods.
    """

    X: np.ndarray
    f: np.ndarray
    y: np.ndarray
    kernel: Kernel
    noise: float
    method: str
    jitter: float = 0.0
    width: int | None = None


class Settings(NamedTuple):
    """The dials of `simulate` that belong to its methods."""

    block: int
    neighbors: int
    rank: int
    width: int


def simulate(
    kernel: Kernel,
    X: np.ndarray,
    *,
    noise: float | None = None,
    noise_fraction: float = NOISE_FRACTION,
    method: str = "vecchia",
    n_draws: int | None = None,
    block: int = 500,
    neighbors: int | None = None,
    rank: int = 1000,
    width: int | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Listener | None = None,
) -> Simulation:
    """f ~ GP(0, K) at the rows of X (n, I), and y = f + e, e ~ N(0, sigma_eps2), section (dados_simulados).

    "vecchia"     the paper's: the first ``block`` rows exactly, then each row given its ``neighbors`` earlier
                  ones that are nearest in the inputs. In many inputs these are not draws from K: the errors
                  of the conditionals add up along the rows. At n = 2,000 and I = 80 the exact GP has 1.26
                  times the squared error that it predicts; at I = 20 the excess is a few per cent.
    "network"     one network of ``width`` hidden units whose limit is K. Its covariance is K at any width,
                  averaged over networks; width makes it Gaussian. O(n) memory.
    "full-scale"  weights of the features of ``rank`` anchors, random rows; then what they leave over, each
                  row given the earlier ones that are nearest in the kernel's metric. Few neighbours are
                  better than many here, for the same reason as above.
    "exact"       a Cholesky factor of K(X, X), up to ``EXACT_ROWS`` rows.

    Parameters
    ----------
    noise, noise_fraction : sigma_eps2, or eta in sigma_eps2 = eta mean K(x, x), eq. (nugget_frac).
    n_draws : None for vectors (n,), a number for tables (n, n_draws) of independent draws at the same rows.
        Draw k is the same whatever n_draws is; "vecchia" and "full-scale" weigh the neighbours once for all.
    neighbors : 500, or 30 with "full-scale".
    width : `default_width`.
    progress : called with a `widegp.progress.Progress` that counts rows, or hidden units.
    """
    X = np.ascontiguousarray(X, float)
    if method not in METHODS:
        raise ValueError(f"Unknown method {method!r}; choose one of {', '.join(METHODS)}.")
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"simulate takes a table of rows, shape (n, I); got {X.shape}.")
    if noise is None:
        noise = noise_fraction * mean_variance(kernel, X)
    if neighbors is None:
        neighbors = 30 if method == "full-scale" else 500
    settings = Settings(block, neighbors, rank, width or default_width(len(X)))
    shared, *streams = np.random.default_rng(rng).spawn(1 + (n_draws or 1))
    f, jitter = _DRAWERS[method](kernel, X, settings, shared, streams, progress)
    y = f + np.sqrt(noise) * _normals(len(X), streams)
    if n_draws is None:
        f, y = f[:, 0], y[:, 0]
    used = settings.width if method == "network" else None
    return Simulation(X, f, y, kernel, float(noise), method, jitter, used)


def mean_variance(kernel: Kernel, X: np.ndarray, batch: int = _BATCH) -> float:
    """K-bar = mean_i K(x_i, x_i), eq. (nugget_frac), ``batch`` rows at a time."""
    parts = [np.sum(np.asarray(kernel.diag(X[k : k + batch]))) for k in range(0, len(X), batch)]
    return float(np.sum(parts) / len(X))


def default_width(n_rows: int) -> int:
    """max(10,000, 2 n): more hidden units than rows.

    Given its hidden layer, a network of M blocks is a Gaussian process of rank M H + 1 whose covariance is
    off by c H^-1/2, c about 1. The rule keeps it from being confined to fewer dimensions than there are rows,
    and the covariance of one draw within about one per cent.
    """
    return max(10_000, 2 * n_rows)


def _normals(n: int, streams: list[np.random.Generator]) -> np.ndarray:
    return np.stack([stream.standard_normal(n) for stream in streams], axis=1)


def _exact(
    kernel: Kernel, X: np.ndarray, settings: Any, shared: Any, streams: list, progress: Listener | None
) -> tuple[np.ndarray, float]:
    if len(X) > EXACT_ROWS:
        raise ValueError(
            f'method="exact" factors an n x n matrix, up to {EXACT_ROWS:,} rows; got {len(X):,}.'
            ' Use method="network".'
        )
    return _factored(kernel, X, _normals(len(X), streams))


def _factored(kernel: Kernel, X: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, float]:
    """L e with L L' = K(X, X), and the share of the mean diagonal that was added to factor it."""
    backend = choose_backend(kernel)
    with backend.scope():
        K = np.asarray(backend.cross(kernel, X, X))
        for jitter in (0.0, *JITTERS):
            L = np.asarray(backend.cholesky(K + jitter * np.mean(np.diagonal(K)) * np.eye(len(K))))
            if np.isfinite(L[-1, -1]):
                return L @ normals, jitter
    raise ArithmeticError(
        f"The covariance of the {len(X)} rows has no Cholesky factor even with {JITTERS[-1]:g} of its mean"
        " diagonal added; remove duplicate rows."
    )


def _vecchia(
    kernel: Kernel, X: np.ndarray, settings: Settings, shared: Any, streams: list, progress: Listener | None
) -> tuple[np.ndarray, float]:
    normals = _normals(len(X), streams)
    first = min(max(settings.block, 1), len(X))
    f = np.empty_like(normals)
    f[:first], jitter = _factored(kernel, X[:first], normals[:first])
    # Near in the inputs, as the paper's draws turn out to be: near in the kernel's metric the errors of the
    # conditionals add up faster, and the scores of C4 and C6 are 20% too high (docs/paper.md).
    neighbors = nearest_earlier(X, min(settings.neighbors, len(X) - 1))
    later = draw_in_turn(row_covariance(kernel, X), neighbors, f, normals, first, progress)
    return f, max(jitter, later)


def _full_scale(
    kernel: Kernel,
    X: np.ndarray,
    settings: Settings,
    shared: np.random.Generator,
    streams: list,
    progress: Listener | None,
) -> tuple[np.ndarray, float]:
    """f = Phi w + r: w ~ N(0, I), r ~ GP(0, K - Phi Phi') drawn in turn."""
    anchors = choose_anchors(X, Wanted(settings.rank, "random"), shared).points
    backend = choose_backend(kernel)
    with backend.scope():
        white = whiten(backend, kernel, anchors)
        if white is None:
            raise ArithmeticError("The anchors' kernel matrix has no Cholesky factor; lower rank.")
        features = np.asarray(backend.features(kernel, X, anchors, white.W))
    low = features @ _normals(features.shape[1], streams)
    normals = _normals(len(X), streams)
    rest = np.empty_like(normals)
    neighbors = nearest_earlier(kernel.embedding(X), min(settings.neighbors, len(X) - 1))
    jitter = draw_in_turn(row_covariance(kernel, X, features), neighbors, rest, normals, 0, progress)
    return low + rest, max(jitter, white.jitter)


def _network(
    kernel: Kernel, X: np.ndarray, settings: Settings, shared: Any, streams: list, progress: Listener | None
) -> tuple[np.ndarray, float]:
    network = network_of(kernel, settings.width)
    f = np.empty((len(X), len(streams)))
    # The rows are shared among threads already.
    with threadpool_limits(1, user_api="blas"):
        for k, stream in enumerate(streams):
            f[:, k] = network.draw(X, 1, stream, partial(_shifted, progress, k, len(streams)))[0, :, 0]
    return f, 0.0


def _shifted(progress: Listener | None, k: int, count: int, event: Progress) -> None:
    """Tell of the k-th of ``count`` equal pieces of work."""
    if progress is not None:
        total = event.total or 0
        progress(Progress.step(event.stage, k * total + event.iteration, count * total))


_DRAWERS: dict[str, Callable[..., tuple[np.ndarray, float]]] = {
    "vecchia": _vecchia,
    "network": _network,
    "full-scale": _full_scale,
    "exact": _exact,
}
