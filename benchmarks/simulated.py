"""A GP drawn from K_mix, n = 9,000 + 1,000, I = 20, nugget 4%: low-rank predictions beside the exact ones.

At the true parameters: excess of the test MSE over the noise, as a multiple of the exact GP's, and coverage.
"""

from __future__ import annotations

import numpy as np

from widegp import WideGPRegressor, metrics
from widegp.kernels import Mixed

N_TRAIN, N_TEST, N_INPUTS = 9000, 1000, 20
TRUTH = {"sigma_a2": 1.0, "sigma_u2": 1.0, "sigma_b2": 1.0, "sigma_v2": 1.0, "alpha": 0.5, "w": 0.5}


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (N_TRAIN + N_TEST, N_INPUTS))
    kernel = Mixed(**TRUTH)
    noise = 0.04 * float(np.mean(kernel.diag(X)))
    K = kernel(X)
    K[np.diag_indices_from(K)] += noise
    return X, np.linalg.cholesky(K) @ rng.normal(size=len(X)), noise


def main() -> None:
    for seed in range(3):
        X, y, noise = draw(seed)
        excess = {}
        for name in ("exact", "dtc", "fitc"):
            # The target stays as drawn: dividing the variances by its variance undoes the standardisation.
            variance = y[:N_TRAIN].var()
            scaled = {"sigma_b2": 1 / variance, "sigma_v2": 1 / variance, "sigma_eps2": noise / variance}
            start = TRUTH | scaled
            model = WideGPRegressor.plain(
                approximation=name, rank=500, scale_inputs=None, start=start, max_iter=0, random_state=seed
            )
            model.fit(X[:N_TRAIN], y[:N_TRAIN])
            mean = model.predict(X[N_TRAIN:])
            covered = metrics.coverage(y[N_TRAIN:], *model.predict_interval(X[N_TRAIN:]))
            excess[name] = metrics.mse(y[N_TRAIN:], mean) - noise
            ratio = excess[name] / excess["exact"]
            print(f"seed {seed} {name:5s} excess {excess[name]:.4f} ratio {ratio:.3f} coverage {covered:.3f}")


if __name__ == "__main__":
    main()
