"""Classes beside others: GPBoost on magic, draws of NUTS, many rows.

    python benchmarks/classes.py gpboost [--rows 17118] [--threads 2] [--who vecchia plain widegp]
    python benchmarks/classes.py nuts [--draws 2000]
    python benchmarks/classes.py rows 30000 300000

``gpboost``: log loss, AUC and seconds of a Bernoulli likelihood on the test rows of magic, from the same
training rows, by GPBoost's Vecchia approximation and its Vecchia-inducing-points full-scale one (Matérn 3/2,
inputs standardised, a length scale for each or, with ``--one-length``, for all), and by WideGPClassifier,
as it is and ``plain``.
``nuts``: the largest difference of probabilities at new rows between Laplace's approximation and draws of f
by NUTS at the same parameters, for two classes (200 rows) and three (100 rows). ``rows``: time and peak
memory of a classifier on simulated rows with 8 inputs, its log loss and that of the true probabilities.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from tables import load

from widegp import WideGPClassifier, metrics

NEW = 50
# The process alone, with one variance for all inputs.
PLAIN = {"metric": "iso", "scale_inputs": "standard", "trees": "none"}


def gpboost_line(approximation: str, split: Any, threads: int, one_length: bool) -> str:
    import gpboost

    centre, spread = split.X.mean(0), split.X.std(0)
    X, X_test = ((rows - centre) / spread for rows in (split.X, split.X_test))
    began = clocks()
    more = {"num_ind_points": 200} if approximation == "full_scale_vecchia" else {}
    matern = "matern" if one_length else "matern_ard"
    model = gpboost.GPModel(
        gp_coords=X, cov_function=matern, cov_fct_shape=1.5, gp_approx=approximation,
        likelihood="bernoulli_logit", num_neighbors=20, num_parallel_threads=threads, seed=0, **more,
    )  # fmt: skip
    model.fit(y=split.y)
    fitted = clocks()
    p = np.asarray(model.predict(gp_coords_pred=X_test, predict_response=True)["mu"])
    return _scored(f"gpboost {approximation}", split, p, began, fitted)


def widegp_line(who: str, split: Any, seed: int) -> str:
    began = clocks()
    model = WideGPClassifier(random_state=seed, **(PLAIN if who == "plain" else {})).fit(split.X, split.y)
    fitted = clocks()
    return _scored(f"widegp {who}", split, model.predict_proba(split.X_test)[:, 1], began, fitted)


def clocks() -> np.ndarray:
    """Seconds of the wall and of all cores together; on a busy machine only the latter tell."""
    return np.array([time.perf_counter(), time.process_time()])


def _scored(name: str, split: Any, p: np.ndarray, began: np.ndarray, fitted: np.ndarray) -> str:
    loss, auc = metrics.log_loss(split.y_test, p), metrics.auc(split.y_test, p)
    (fit, fit_cpu), (predict, predict_cpu) = fitted - began, clocks() - fitted
    seconds = f"fit {fit:.1f} s ({fit_cpu:.1f} of CPU), predict {predict:.1f} s ({predict_cpu:.1f} of CPU)"
    return f"{name}, {len(split.y)} rows: log loss {loss:.4f}, AUC {auc:.4f}, {seconds}"


def sampled(K: np.ndarray, y: np.ndarray, level: np.ndarray, draws: int) -> np.ndarray:
    """P (q, C) at the last q rows of K from draws of f (C functions) given classes y (n,) at the first n."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    n, C = len(y), len(level)
    L = np.linalg.cholesky(K[:n, :n] + 1e-8 * np.eye(n))
    with jax.enable_x64(True):
        seen, factor, base = jnp.asarray(y.astype(int)), jnp.asarray(L), jnp.asarray(level)

        def potential(z: Any) -> Any:
            f = factor @ z + base
            return 0.5 * jnp.sum(z**2) - jnp.sum(jax.nn.log_softmax(f, axis=1)[jnp.arange(n), seen])

        run = MCMC(NUTS(potential_fn=potential), num_warmup=draws // 2, num_samples=draws, progress_bar=False)
        run.run(jax.random.PRNGKey(0), init_params=jnp.zeros((n, C)))
        f = np.asarray(factor @ run.get_samples())
    weights = np.linalg.solve(K[:n, :n] + 1e-8 * np.eye(n), K[:n, n:])
    given = np.sqrt(np.maximum(np.diag(K)[n:] - np.sum(K[:n, n:] * weights, axis=0), 0.0))
    mean = np.einsum("nq,dnc->dqc", weights, f)
    new = mean + given[:, None] * np.random.default_rng(0).standard_normal(mean.shape)
    return np.asarray(softmax(new + level, axis=2).mean(axis=0))


def nuts_line(n_classes: int, rows: int, draws: int) -> str:
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(rows + NEW, 3))
    f = 2 * np.column_stack([np.sin((1 + c) * X[:, 0]) + X[:, c] for c in range(n_classes)])
    y = np.argmax(f + rng.gumbel(size=f.shape), axis=1)
    model = WideGPClassifier(random_state=0, approximation="exact", metric="iso", scale_inputs="standard")
    model.fit(X[:rows], y[:rows])
    part = model.fitted_[0]
    scaled = part.inputs.transform(X)
    K = np.asarray(part.kernel(scaled, scaled))
    level = np.array([one.level for one in model.fitted_])
    if n_classes == 2:
        # f is the difference of two functions of half its variance each.
        K, level = K / 2, np.array([0.0, level[0]])
    found = sampled(K, y[:rows], level, draws)
    error = np.abs(model.predict_proba(X[rows:]) - found)
    told = f"from NUTS at most {error.max():.4f}, on average {error.mean():.4f}"
    return f"{n_classes} classes, {rows} rows: {told}"


def rows_line(rows: int) -> str:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows + 5_000, 8))
    p = expit(3 * np.sin(X[:, 0]) + 2 * X[:, 1] * X[:, 2] - X[:, 3])
    y = (rng.random(len(p)) < p).astype(int)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    model = WideGPClassifier(random_state=0).fit(X[:rows], y[:rows])
    fitted = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    q = model.predict_proba(X[rows:])[:, 1]
    loss, best = (metrics.log_loss(y[rows:], one) for one in (q, p[rows:]))
    return (
        f"{rows} rows: fit {fitted - began:.0f} s, peak {peak:.2f} GiB ({before / 2**20:.2f} before the fit),"
        f" log loss {loss:.4f} (truth {best:.4f}), {model.fitted_[0].result.reason}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("gpboost", "nuts", "rows"))
    parser.add_argument("sizes", type=int, nargs="*", default=[])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--who", nargs="+", default=["vecchia", "full_scale_vecchia", "widegp"])
    parser.add_argument("--one-length", action="store_true", help="of GPBoost, for all inputs")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.what == "nuts":
        print(nuts_line(2, 200, asked.draws), flush=True)
        print(nuts_line(3, 100, asked.draws), flush=True)
    for rows in asked.sizes if asked.what == "rows" else ():
        print(rows_line(rows), flush=True)
    if asked.what == "gpboost":
        split = load("magic")
        kept = np.random.default_rng(0).permutation(len(split.y))[: asked.rows]
        split = split._replace(X=split.X[kept], y=split.y[kept])
        for who in asked.who:
            if who in ("widegp", "plain"):
                print(widegp_line(who, split, 0), flush=True)
            else:
                print(gpboost_line(who, split, asked.threads, asked.one_length), flush=True)


if __name__ == "__main__":
    main()
