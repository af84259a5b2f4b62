"""What the default priors say about a target before any is seen: ``python benchmarks/prior_predictive.py``.

Parameters are drawn from the priors, then a function and its noise at standard normal inputs. A fit sees its
target scaled to variance 1, so draws should not exclude a target of any kind that is met in practice. Printed
are quantiles over draws of

    sd        of the drawn target, in units of the standardised one
    noise     its share of noise, sigma_eps2 / variance
    straight  share of the function's variance that a straight line explains
    turns     changes of direction along a line through the rows, per standard deviation of the inputs
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np

from widegp.inference.parameters import declared_parameters
from widegp.inference.priors import Prior, default_priors
from widegp.kernels import Mixed
from widegp.kernels.parameters import FRACTION

QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
ROWS = 200


@cache
def logit_weights(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """A grid of logits and their shares under exp(-penalty)."""
    z = np.linspace(-12, 12, 501)
    weight = np.exp([-prior.penalty(x) for x in FRACTION.map.forward(z)])
    return z, weight / weight.sum()


def drawn_parameters(n_inputs: int, rng: np.random.Generator) -> dict[str, float]:
    """One value of each; a fraction by the density of its logit, as the fit reads every prior."""
    kernel, out = Mixed(), {}
    declared = declared_parameters(kernel)
    for name, prior in default_priors(kernel, n_inputs, False).items():
        if declared[name].kind is FRACTION:
            z, weight = logit_weights(prior)
            out[name] = float(FRACTION.map.forward(rng.choice(z, p=weight)))
        else:
            out[name] = float(prior.distribution().rvs(random_state=rng))
    return out


def drawn_target(n_inputs: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """sd, noise, straight and turns of one draw."""
    values = drawn_parameters(n_inputs, rng)
    noise = values.pop("sigma_eps2")
    X = rng.standard_normal((ROWS, n_inputs))
    line = np.linspace(-2, 2, ROWS)[:, None] * np.ones(n_inputs) / np.sqrt(n_inputs)
    places = np.vstack([X, line])
    K = Mixed(**values)(places)
    root = np.linalg.cholesky(K + 1e-9 * np.trace(K) / len(K) * np.eye(len(K)))
    f = root @ rng.standard_normal(len(K))
    rows, along = f[:ROWS], f[ROWS:]
    A = np.column_stack([np.ones(ROWS), X])
    left = rows - A @ np.linalg.lstsq(A, rows, rcond=None)[0]
    variance = np.var(rows)
    turns = np.sum(np.diff(np.sign(np.diff(along[::10]))) != 0) / 4
    return np.sqrt(variance + noise), noise / (variance + noise), 1 - np.var(left) / variance, float(turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, nargs="+", default=[1, 5, 30])
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("inputs  quantity " + "".join(f"{q:>9.1%}" for q in QUANTILES))
    for n_inputs in args.inputs:
        rng = np.random.default_rng(args.seed)
        draws = np.array([drawn_target(n_inputs, rng) for _ in range(args.draws)])
        for name, column in zip(("sd", "noise", "straight", "turns"), draws.T, strict=True):
            print(f"{n_inputs:>6}  {name:<9}" + "".join(f"{x:>9.3g}" for x in np.quantile(column, QUANTILES)))


if __name__ == "__main__":
    main()
