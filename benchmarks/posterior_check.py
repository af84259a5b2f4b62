"""The posterior of the parameters beside 4 x 1,000 draws of NUTS, on tables of 60 and 100 rows.

``python benchmarks/posterior_check.py`` (needs numpyro)

Printed per unconstrained parameter z: mean and sd of NUTS, R-hat, sd of NUTS over that of the prior; then,
for the importance-weighted draws of posterior="laplace" and for what posterior="auto" averages over (draws up
to 60 rows, else points around the mode), (mean - mean of NUTS) / sd of NUTS, and sd over that of NUTS. After
that the largest differences of the predictions of both at 200 new rows, and the evidence.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

from widegp import WideGPRegressor
from widegp.inference.parameters import declared_parameters
from widegp.inference.theta import ParameterPosterior
from widegp.kernels.parameters import KINDS

AIM = 0.1
# Where the posterior's sd is below this share of the prior's the data have determined the parameter.
DETERMINED = 0.7


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    if name == "waves":
        X = rng.uniform(-3, 3, (100, 2))
        return X, np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.2 * rng.standard_normal(100)
    X = rng.uniform(-3, 3, (60, 3))
    return X, np.maximum(X[:, 0], 0) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(60)


def prior_sd(model: WideGPRegressor, label: str, kind: str, rng: np.random.Generator) -> float:
    """Of z, by draws of the prior."""
    prior = declared_parameters(model.kernel_)[label].default_prior(model.n_features_in_, False)
    return float(np.std(KINDS[kind].map.inverse(prior.distribution().rvs(20_000, random_state=rng))))


def moments(posterior: ParameterPosterior) -> tuple[np.ndarray, np.ndarray]:
    return posterior.z_mean, np.sqrt(np.diagonal(posterior.z_covariance))


def compared(name: str, kernel: str) -> pd.DataFrame:
    X, y = table(name)
    rng, new = np.random.default_rng(0), np.random.default_rng(1).uniform(-3, 3, (200, X.shape[1]))
    models, seconds = {}, {}
    for posterior in ("auto", "laplace", "sample"):
        began = time.perf_counter()
        model = WideGPRegressor.plain(kernel=kernel, posterior=posterior, random_state=0).fit(X, y)
        models[posterior], seconds[posterior] = model, round(time.perf_counter() - began, 1)
    draws = models["sample"].posterior_
    mean, sd = moments(draws)
    prior = [prior_sd(models["sample"], *one, rng) for one in zip(draws.labels, draws.kinds, strict=True)]
    columns = {"mean": mean, "sd": sd, "R-hat": draws.rhat, "sd / prior's": sd / prior}
    for posterior, words in (("laplace", "draws"), ("auto", "auto")):
        own_mean, own_sd = moments(models[posterior].posterior_)
        columns |= {f"{words}: shift": (own_mean - mean) / sd, f"{words}: ratio": own_sd / sd}
    found = pd.DataFrame(columns, index=list(draws.labels))
    print(f"\n{name}, {len(X)} rows, kernel {kernel}; seconds with start-up {seconds}")
    print(found.round(3).to_string())
    two = models["sample"].predict_distribution(new)
    for posterior in ("laplace", "auto"):
        one = models[posterior].predict_distribution(new)
        shift, ratio = np.max(np.abs(one.mean - two.mean) / two.sd), np.max(np.abs(one.sd / two.sd - 1))
        print(f"predictions of {posterior}: means differ by at most {shift:.3f} sd, sds by {ratio:.1%}")
    print(models["laplace"].posterior_.evidence)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["ramp:relu", "waves:mixed"])
    for pair in parser.parse_args().tables:
        found = compared(*pair.split(":"))
        for words in ("draws", "auto"):
            for which, kept in (("all", found), ("determined", found[found["sd / prior's"] < DETERMINED])):
                shift, ratio = kept[f"{words}: shift"].abs(), (kept[f"{words}: ratio"] - 1).abs()
                near = (shift <= AIM) & (ratio <= AIM)
                print(
                    f"{words}, {which}: {near.sum()} of {len(kept)} parameters within {AIM:.0%}; at most"
                    f" {shift.max():.3f} sd in the mean, {ratio.max():.1%} in the sd.", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
