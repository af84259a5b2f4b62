"""One objective + gradient of full-scale beside its matrix products alone, median of 5, in one run.

The products: inner products and low-rank parts of every row's set M in both passes (one BLAS thread per
core), kernel products in both passes and for their pullback, features in both passes, phi~'D^-1 phi~,
phi~ A_bar, W_bar and K_bar.
"""

from __future__ import annotations

import time

import numpy as np
from numba import get_num_threads, njit, prange

from widegp.approximations.build import Builder, Dials
from widegp.compute.backend import choose_backend
from widegp.kernels import Mixed

N, I, R, M = 19_000, 81, 200, 30


@njit(parallel=True)
def small_products(x, f, rows, threads):
    """rows times x x' and f f', shared among threads."""
    for t in prange(threads):
        mine, low = x.copy(), f.copy()
        out = np.empty((x.shape[0], x.shape[0]))
        for _ in range(rows * t // threads, rows * (t + 1) // threads):
            np.dot(mine, mine.T, out)
            np.dot(low, low.T, out)


def large_products(backend, X, Z, K, W, A):
    for _ in range(2):
        backend.matmul(X, Z.T)
        backend.matmul(K, W)
    backend.matmul(X, Z.T)
    backend.inner(K, K)
    backend.matmul(K, A)
    backend.inner(K, K.copy())
    backend.matmul(K, W.T)


def median(work, repeats=5):
    work()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def main() -> None:
    rng = np.random.default_rng(0)
    # A decaying spectrum, as tables of measurements have.
    X = rng.normal(size=(N, I)) * np.arange(1, I + 1) ** -0.5
    y = rng.normal(size=N)
    kernel = Mixed(sigma_u2=1 / I)
    backend = choose_backend(kernel, "native")
    with backend.scope():
        builder = Builder(X, Dials("full-scale", R, M, "kmeans", "random", None), backend, 0)
        likelihood = builder.build(kernel)
        x, f = rng.normal(size=(M + 1, I)), rng.normal(size=(M + 1, R))
        K, W, A = rng.normal(size=(N, R)), rng.normal(size=(R, R)), rng.normal(size=(R, R))
        threads = get_num_threads()
        small = median(lambda: small_products(x, f, 2 * N, threads))
        large = median(lambda: large_products(backend, X, builder.Z, K, W, A))
        whole = median(lambda: likelihood.evaluate(kernel, 0.1, y))
    print(f"n {N}  I {I}  r {R}  m {M}: objective + gradient {whole:.3f} s")
    print(f"products alone {small + large:.3f} s (rows {small:.3f}, blocks {large:.3f})")
    print(f"ratio {whole / (small + large):.2f}")


if __name__ == "__main__":
    main()
