"""Laplace's approximation against a dense naive one, finite differences, quadrature and repeated rows."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_gp import nearest_earlier
from naive_laplace import mode_and_evidence

from widegp.laplace import Response, Solved, evidence, find_mode
from widegp.likelihoods import Bernoulli, Gamma, Gaussian, NegativeBinomial, Poisson, StudentT

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (40, 2))
LIKELIHOODS = [
    Gaussian(0.3), StudentT(4.0, 0.3), Bernoulli("logit"), Bernoulli("probit"), Poisson(),
    NegativeBinomial(0.6), Gamma(3.0),
]  # fmt: skip
each = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda l: l.name)
THETA = np.array([1.7, 0.8])


def covariance(theta, X=X):
    """theta_0 exp(-|x - x'|^2 / (2 theta_1^2)) and its derivatives by theta."""
    squared = ((X[:, None] - X[None]) ** 2).sum(2)
    shape = np.exp(-squared / (2 * theta[1] ** 2))
    K = theta[0] * shape + 1e-8 * np.eye(len(X))
    return K, [shape, theta[0] * shape * squared / theta[1] ** 3]


class DenseProblem:
    """-log N(z; 0, K + N) with its derivatives, by inverses."""

    def __init__(self, theta, X=X):
        self.K, self.slopes = covariance(theta, X)
        self.calls = 0

    def __call__(self, z, noise, gradient=False):
        self.calls += 1
        C = self.K + np.diag(noise)
        inverse = np.linalg.inv(C)
        alpha = inverse @ z
        value = 0.5 * (z @ alpha + np.linalg.slogdet(C)[1] + len(z) * np.log(2 * np.pi))
        bar = (inverse - np.outer(alpha, alpha)) / 2
        by_theta = {f"theta{k}": np.sum(bar * slope) for k, slope in enumerate(self.slopes)}
        return Solved(value, alpha, np.diag(bar), by_theta if gradient else None)


def seen(likelihood, X=X, seed=1, **more):
    rng = np.random.default_rng(seed)
    f = np.linalg.cholesky(covariance(THETA, X)[0]) @ rng.standard_normal(len(X))
    return Response(likelihood, likelihood.sample(f, rng), **more)


@each
def test_mode_and_evidence_are_the_naive_ones(likelihood):
    offset, weight = RNG.normal(0, 0.3, 40), RNG.integers(1, 4, 40).astype(float)
    for more in ({}, {"offset": offset, "weight": weight}):
        response = seen(likelihood, **more)
        solve = DenseProblem(THETA)
        mode = find_mode(solve, response)
        f, value = mode_and_evidence(solve.K, likelihood, response.y, **more)
        assert mode.problem is None and mode.steps < 30
        np.testing.assert_allclose(mode.f, f, atol=1e-7)
        assert mode.value == pytest.approx(value, abs=1e-7)


@each
def test_gradient_is_that_of_the_whole_evidence(likelihood):
    offset, weight = RNG.normal(0, 0.3, 40), RNG.integers(1, 4, 40).astype(float)
    response = seen(likelihood, offset=offset, weight=weight)
    found = evidence(DenseProblem(THETA), response)

    def value(theta, psi):
        family = likelihood.with_psi(psi)
        return mode_and_evidence(covariance(theta)[0], family, response.y, offset, weight)[1]

    psi = likelihood.psi
    for k in range(2):
        h = 1e-5 * np.eye(2)[k]
        numeric = (value(THETA + h, psi) - value(THETA - h, psi)) / 2e-5
        assert float(found.gradient[f"theta{k}"]) == pytest.approx(numeric, rel=1e-6, abs=1e-6)
    for k in range(psi.size):
        h = 1e-5 * np.eye(psi.size)[k]
        numeric = (value(THETA, psi + h) - value(THETA, psi - h)) / 2e-5
        assert found.by_psi[k] == pytest.approx(numeric, rel=1e-6, abs=1e-6)


def test_gaussian_evidence_is_exact():
    response = seen(Gaussian(0.3))
    found = evidence(DenseProblem(THETA), response)
    C = covariance(THETA)[0] + 0.3 * np.eye(40)
    want = 0.5 * (response.y @ np.linalg.solve(C, response.y) + np.linalg.slogdet(2 * np.pi * C)[1])
    assert found.value == pytest.approx(want, abs=1e-9)
    assert found.mode.steps <= 2


@each
def test_integer_weights_are_repeated_rows(likelihood):
    weight = np.tile([1.0, 2.0, 3.0, 1.0], 10)
    response = seen(likelihood, weight=weight)
    rows = np.repeat(np.arange(40), weight.astype(int))
    once = evidence(DenseProblem(THETA), response)
    # Repeated rows share one f: no jitter between them.
    again = DenseProblem(THETA)
    again.K, again.slopes = again.K[np.ix_(rows, rows)], [s[np.ix_(rows, rows)] for s in again.slopes]
    repeated = evidence(again, Response(likelihood, response.y[rows]))
    assert repeated.value == pytest.approx(once.value, rel=1e-8)
    np.testing.assert_allclose(repeated.mode.f, once.mode.f[rows], atol=1e-8)
    for name, slope in once.gradient.items():
        assert float(repeated.gradient[name]) == pytest.approx(float(slope), rel=1e-7, abs=1e-8)


@each
def test_posterior_variances_at_the_rows(likelihood):
    response = seen(likelihood)
    solve = DenseProblem(THETA)
    mode = find_mode(solve, response)
    want = np.diag(solve.K - solve.K @ np.linalg.solve(solve.K + np.diag(mode.pseudo.noise), solve.K))
    np.testing.assert_allclose(mode.variance, want, atol=1e-8)


def test_a_known_mode_saves_steps():
    response = seen(Bernoulli())
    cold, warm = DenseProblem(THETA), DenseProblem(THETA)
    mode = find_mode(cold, response)
    again = find_mode(warm, response, start=mode.f)
    assert warm.calls == 1 < cold.calls
    assert again.value == mode.value


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(0.2), StudentT(2.1, 0.01)], ids=str)
def test_wild_targets_still_have_a_mode(likelihood):
    y = np.where(np.arange(40) % 7 == 0, 5000.0, 0.0)
    mode = find_mode(DenseProblem(THETA), Response(likelihood, y))
    assert mode.problem is None
    assert np.isfinite(mode.value)


def test_a_failure_is_named():
    def broken(z, noise, gradient=False):
        return Solved(np.inf, z, z, None, "the matrix has no factor")

    found = evidence(broken, seen(Bernoulli()))
    assert (found.value, found.problem) == (np.inf, "the matrix has no factor")


def test_evidence_is_close_to_importance_sampling():
    """Few rows of probit, for which Laplace's approximation is good: log p(y) by simulation from q(f)."""
    few = X[:8]
    response = seen(Bernoulli("probit"), few)
    solve = DenseProblem(THETA, few)
    found = evidence(solve, response)
    Sigma = solve.K - solve.K @ np.linalg.solve(solve.K + np.diag(found.mode.pseudo.noise), solve.K)
    rng = np.random.default_rng(5)
    L = np.linalg.cholesky(Sigma + 1e-10 * np.eye(8))
    t = rng.standard_normal((40_000, 8))
    f = found.mode.f + t @ L.T
    log_q = -0.5 * (t**2).sum(1) - np.log(np.diag(L)).sum()
    log_prior = -0.5 * np.sum(f * np.linalg.solve(solve.K, f.T).T, 1) - 0.5 * np.linalg.slogdet(solve.K)[1]
    likelihood = response.likelihood
    log_p = sum(likelihood.terms(np.full(len(f), y), f[:, i]).log_p for i, y in enumerate(response.y))
    weights = log_p + log_prior - log_q
    estimate = np.log(np.mean(np.exp(weights - weights.max()))) + weights.max()
    assert -found.value == pytest.approx(estimate, abs=0.15)


class NeighborProblem:
    """-log N(z; 0, C) where each row is conditioned on few earlier rows, noise included: C is not K + N."""

    def __init__(self, theta, count):
        squared = jnp.asarray(((X[:, None] - X[None]) ** 2).sum(2))
        near = nearest_earlier(X, count)
        missing = jnp.asarray(near < 0)

        def value(theta, z, noise):
            C = theta[0] * jnp.exp(-squared / (2 * theta[1] ** 2)) + 1e-8 * jnp.eye(len(z)) + jnp.diag(noise)

            def row(i, N, none):
                # A neighbour that is missing is one without covariance.
                C_NN = jnp.where(none[:, None] | none[None], jnp.eye(len(N)), C[N][:, N])
                C_Ni = jnp.where(none, 0.0, C[N, i])
                a = jnp.linalg.solve(C_NN, C_Ni)
                d = C[i, i] - a @ C_Ni
                return (z[i] - a @ z[N]) ** 2 / d + jnp.log(2 * jnp.pi * d)

            return 0.5 * jnp.sum(jax.vmap(row)(jnp.arange(len(z)), jnp.asarray(near), missing))

        self.run = jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))
        self.theta = theta

    def __call__(self, z, noise, gradient=False):
        with jax.enable_x64(True):
            value, slopes = self.run(*map(jnp.asarray, (self.theta, z, noise)))
            theta, by_z, by_noise = map(np.asarray, slopes)
            return Solved(float(value), by_z, by_noise, {"theta": theta})


@pytest.mark.parametrize("likelihood", [Bernoulli("logit"), NegativeBinomial(0.6)], ids=lambda l: l.name)
def test_with_neighbours_the_gradient_is_still_that_of_the_evidence(likelihood):
    with jax.enable_x64(True):
        response = seen(likelihood)
        problem = NeighborProblem(THETA, 4)
        found = evidence(problem, response, None, 1e-9)
        dense = mode_and_evidence(covariance(THETA)[0], likelihood, response.y)[1]
        assert abs(found.value - dense) > 1e-4, "the neighbours must matter for this to be a test"
        numeric = []
        for h in 1e-5 * np.eye(2):
            ends = []
            for side in (1, -1):
                problem.theta = THETA + side * h
                ends.append(find_mode(problem, response, found.mode.f, 1e-12).value)
            numeric.append((ends[0] - ends[1]) / 2e-5)
        np.testing.assert_allclose(found.gradient["theta"], numeric, rtol=1e-5, atol=1e-5)
        problem.theta = THETA
        for k, h in enumerate(1e-5 * np.eye(likelihood.psi.size)):
            families = [likelihood.with_psi(likelihood.psi + side * h) for side in (1, -1)]
            moved = [replace(response, likelihood=family) for family in families]
            ends = [find_mode(problem, one, found.mode.f, 1e-12).value for one in moved]
            assert found.by_psi[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-5)


def test_all_rows_as_neighbours_are_dense():
    with jax.enable_x64(True):
        response = seen(Bernoulli())
        found = evidence(NeighborProblem(THETA, 39), response)
    dense = evidence(DenseProblem(THETA), response)
    assert found.value == pytest.approx(dense.value, abs=1e-8)
    np.testing.assert_allclose(found.gradient["theta"], list(dense.gradient.values()), rtol=1e-7)
