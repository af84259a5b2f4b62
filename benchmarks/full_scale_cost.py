"""One objective + gradient of full-scale beside its matrix products alone, median of 5, in one run.

The products are those of `widegp.measure.full_scale_products`.
"""

from __future__ import annotations

import numpy as np

from widegp.kernels import Mixed
from widegp.measure import evaluation, full_scale_products, timed

N, I, R, M = 19_000, 81, 200, 30


def main() -> None:
    rng = np.random.default_rng(0)
    # A decaying spectrum, as tables of measurements have.
    X = rng.normal(size=(N, I)) * np.arange(1, I + 1) ** -0.5
    evaluate = evaluation(X, rng.normal(size=N), "full-scale", Mixed(sigma_u2=1 / I), 0.1, R, M)
    whole, products = timed(evaluate).median, full_scale_products(N, I, R, M)
    print(f"n {N}  I {I}  r {R}  m {M}: objective + gradient {whole:.3f} s")
    print(f"products alone {products:.3f} s")
    print(f"ratio {whole / products:.2f}")


if __name__ == "__main__":
    main()
