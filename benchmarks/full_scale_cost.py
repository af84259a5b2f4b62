"""One objective + gradient of full-scale beside its matrix products alone, median of 5, in one run.

The products are those of `widegp.measure.full_scale_products`. With ``--cpu`` the least processor time of
seven evaluations instead, where others use the machine too: ``NUMBA_NUM_THREADS=1 ... --rows 3000 --cpu``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from widegp.kernels import Mixed
from widegp.measure import Setting, evaluation, full_scale_products, timed

N, I, R, M = 19_000, 81, 200, 30


def processor_seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=N)
    parser.add_argument("--cpu", action="store_true")
    asked = parser.parse_args()
    rng, n = np.random.default_rng(0), asked.rows
    # A decaying spectrum, as tables of measurements have.
    X = rng.normal(size=(n, I)) * np.arange(1, I + 1) ** -0.5
    setting = Setting("full-scale", R, M)
    evaluate = evaluation(X, rng.normal(size=n), Mixed(sigma_u2=1 / I), 0.1, setting)
    if asked.cpu:
        evaluate()
        print(f"n {n}: processor time {min(processor_seconds(evaluate) for _ in range(7)):.3f} s")
        return
    whole, products = timed(evaluate).median, full_scale_products(n, I, R, M)
    print(f"n {n}  I {I}  r {R}  m {M}: objective + gradient {whole:.3f} s")
    print(f"products alone {products:.3f} s")
    print(f"ratio {whole / products:.2f}")


if __name__ == "__main__":
    main()
