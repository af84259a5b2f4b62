"""Functions of several fits that are added up before a likelihood sees them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from widegp import WideGPClassifier, WideGPRegressor, load
from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.choices.latent import LatentFit, Path
from widegp.compute.backend import choose_backend
from widegp.fitted import Member
from widegp.inference.latent import LatentProblem
from widegp.inference.objective import start_values
from widegp.inference.run import OptimizerSettings, Run
from widegp.kernels.registry import named
from widegp.laplace import Response
from widegp.likelihoods import Bernoulli
from widegp.prediction import Moments, pooled, pooled_jointly

PLAIN = {"metric": "iso", "scale_inputs": "standard", "trees": "none", "max_iter": 3, "random_state": 0}
WEIGHTS = np.array([0.7, 0.5])


def test_parts_that_err_alike_are_added_up():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(200_000)
    means, sds = rng.normal(size=(2, 3)), rng.uniform(0.2, 1.5, (2, 3))
    f = sum(w * (m[:, None] + s[:, None] * z) for w, m, s in zip(WEIGHTS, means, sds, strict=True))
    found = pooled([Moments(m, s**2) for m, s in zip(means, sds, strict=True)], WEIGHTS)
    np.testing.assert_allclose(found.mean, f.mean(1), atol=0.02)
    np.testing.assert_allclose(np.sqrt(found.variance), f.std(1), rtol=0.01)


def test_jointly_the_marginals_are_the_same_and_correlations_are_averaged():
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(2, 4, 4))
    several = [(rng.normal(size=4), root @ root.T) for root in roots]
    mean, C = pooled_jointly(several, WEIGHTS)
    alone = pooled([Moments(m, np.diagonal(c)) for m, c in several], WEIGHTS)
    np.testing.assert_allclose(mean, alone.mean)
    np.testing.assert_allclose(np.diagonal(C), alone.variance)
    correlation = [c[0, 1] / np.sqrt(c[0, 0] * c[1, 1]) for _, c in several]
    assert C[0, 1] / np.sqrt(C[0, 0] * C[1, 1]) == pytest.approx(WEIGHTS @ correlation / WEIGHTS.sum())
    assert np.linalg.eigvalsh(C).min() > 0


def summed(models: list, weights: np.ndarray):
    """The first of some fitted models, its function replaced by the sum of those of all."""
    members = tuple(
        Member(float(w), m.inputs, m.params, m.warp, m.posterior, m.rows)
        for w, m in zip(weights, models, strict=True)
    )
    return replace(models[0], members=members)


def rows(count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (count, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


def test_probabilities_are_those_of_the_sum_and_files_keep_it(tmp_path):
    X, f = rows()
    y = (np.random.default_rng(3).uniform(size=len(X)) < expit(3 * f)).astype(int)
    fits = [WideGPClassifier(kernel=kernel, **PLAIN).fit(X, y) for kernel in ("relu", "tanh")]
    model, parts = fits[0], [fit.fitted_[0] for fit in fits]
    model.fitted_ = (summed(parts, WEIGHTS),)
    level = parts[0].level
    new, moments = X[:3], [part.latent(X[:3]) for part in parts]
    for i, p in enumerate(model.predict_proba(new)[:, 1]):
        mean = level + sum(w * (m.mean[i] - level) for w, m in zip(WEIGHTS, moments, strict=True))
        sd = sum(w * np.sqrt(m.variance[i]) for w, m in zip(WEIGHTS, moments, strict=True))
        expected, _ = quad(lambda z, m=mean, s=sd: expit(m + s * z) * norm.pdf(z), -9, 9)
        assert p == pytest.approx(expected, abs=1e-7)
    # A file has one kernel for all members of a class.
    model.fitted_ = (summed([parts[0], parts[0]], WEIGHTS),)
    model.save(tmp_path / "classes.widegp")
    again = load(tmp_path / "classes.widegp")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_draws_of_counts_have_the_marginals_of_predictions_and_an_exposure_is_not_weighed():
    X, f = rows()
    y = np.random.default_rng(4).poisson(np.exp(1 + f))
    fit = {"likelihood": "poisson", **PLAIN}
    fits = [WideGPRegressor(kernel=kernel, **fit).fit(X, y) for kernel in ("relu", "tanh")]
    model = summed([one.fitted_ for one in fits], WEIGHTS)
    draws = model.sample(X[:8], 4000, 0)
    error = draws.std(1) / np.sqrt(4000)
    assert np.all(np.abs(draws.mean(1) - model.predictive(X[:8]).mean) < 4 * error)
    twice = model.predictive(X[:8], np.full(8, 2.0)).mean
    np.testing.assert_allclose(twice, 2 * model.predictive(X[:8]).mean)


def test_weights_are_those_under_which_rows_outside_the_sample_are_likeliest():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(2000, 1))
    f = 2 * X[:, 0]
    y = (rng.uniform(size=2000) < expit(f)).astype(float)
    kernel = named("relu").at_start(1)
    start = start_values(kernel, 1.0, np.zeros(0), None)
    del start["sigma_eps2"]
    problem = LatentProblem(kernel, Response(Bernoulli("logit"), y, np.zeros(2000), np.ones(2000)), {})
    builder = Builder(X, Dials("exact", 1, 0, "kmeans", "random", None), choose_backend(kernel), 0)
    fit = LatentFit(builder, problem, {}, start, Run(OptimizerSettings("lbfgs", 1)))
    outside, held = fit._weighing.rows, fit._held.rows
    assert set(outside) == set(range(2000)) - set(fit._sample.rows) and set(held) <= set(outside)

    def path(shrunk: float, seed: int) -> Path:
        mean = shrunk * f + 0.5 * np.random.default_rng(seed).standard_normal(len(f))

        def moments(rows: np.ndarray) -> Moments:
            return Moments(mean[rows, None], np.full((len(rows), 1), 0.01))

        score = problem.log_score(start, held, *moments(held))
        return SimpleNamespace(
            moments=moments, held=SimpleNamespace(log_score=score), first=SimpleNamespace(values=start)
        )  # type: ignore[return-value]

    one, other = path(0.5, 6), path(0.7, 7)
    found = np.array(fit._weights(one, other))

    def score(weights: np.ndarray) -> float:
        """Log probability of the rows outside the sample and log density of the weights, up to a constant."""
        both, t = pooled([one.moments(outside), other.moments(outside)], weights), weights.sum()
        prior = np.log(weights[0] / t) + np.log(weights[1] / t) - 0.5 * (np.log(t) / 0.1) ** 2
        return float(problem.log_score(start, outside, *both).sum() + prior)

    grid = [score(np.array([a, b])) for a in np.linspace(0.01, 2, 40) for b in np.linspace(0.01, 2, 40)]
    assert score(found) >= max(grid) - 1e-6
    assert 1 < found.sum() < 1.6
