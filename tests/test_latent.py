"""Laplace's approximation through the approximations: against the dense naive one and finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from naive_laplace import mode_and_evidence
from scipy.special import expit

from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.inference.latent import LatentProblem, RowNoise
from widegp.inference.objective import start_values
from widegp.inference.parameters import ParameterSpace
from widegp.inference.priors import default_priors
from widegp.kernels.registry import named
from widegp.laplace import Response, evidence, find_mode
from widegp.likelihoods import Bernoulli, NegativeBinomial, StudentT
from widegp.prediction import make_predictor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 3))
KERNEL = named("mixed").replace(sigma_u2=0.5, sigma_v2=3.0)
LIKELIHOODS = [Bernoulli(), NegativeBinomial(0.5), StudentT(4.0, 0.4)]
each = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda l: l.name)


def covariance(kernel=KERNEL):
    backend = choose_backend(kernel, "native")
    return np.asarray(backend.cross(kernel, X, X))


F = np.linalg.cholesky(covariance() + 1e-8 * np.eye(70)) @ RNG.normal(size=70)


def seen(likelihood):
    return Response(likelihood, likelihood.sample(F, np.random.default_rng(1)), 0.1)


def built(name, rank, neighbors, backend="native"):
    dials = Dials(name, rank, neighbors, "kmeans", "random", None)
    return Builder(X, dials, choose_backend(KERNEL, backend), 0).build(KERNEL)


@each
@pytest.mark.parametrize(
    ("name", "rank", "neighbors"), [("exact", 1, 0), ("full-scale", 10, 69), ("vecchia", 1, 69)]
)
def test_with_all_rows_to_condition_on_it_is_dense_laplace(likelihood, name, rank, neighbors):
    response = seen(likelihood)
    mode = find_mode(RowNoise(built(name, rank, neighbors), KERNEL), response)
    f, value = mode_and_evidence(covariance(), likelihood, response.y, response.offset)
    assert mode.value == pytest.approx(value, abs=1e-7)
    np.testing.assert_allclose(mode.f, f, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "rank", "neighbors", "backend"),
    [
        ("full-scale", 12, 8, "native"),
        ("full-scale", 12, 8, "xla"),
        ("fitc", 20, 0, "native"),
        ("dtc", 20, 0, "native"),
        ("vfe", 20, 0, "native"),
    ],
)
def test_gradient_through_every_member_of_the_family(name, rank, neighbors, backend):
    likelihood = NegativeBinomial(0.5)
    response, rows = seen(likelihood), built(name, rank, neighbors, backend)
    with rows.backend.scope():
        found = evidence(RowNoise(rows, KERNEL), response, None, 1e-9)

        def value(kernel, psi):
            changed = replace(response, likelihood=likelihood.with_psi(psi))
            return find_mode(RowNoise(rows, kernel), changed, found.mode.f, 1e-11).value

        for parameter in ("sigma_u2", "sigma_v2", "w"):
            at = float(getattr(KERNEL, parameter))
            moved = [KERNEL.replace(**{parameter: at + h}) for h in (1e-4, -1e-4)]
            numeric = (value(moved[0], likelihood.psi) - value(moved[1], likelihood.psi)) / 2e-4
            assert float(found.gradient[parameter]) == pytest.approx(numeric, rel=1e-5, abs=1e-5), parameter
        numeric = (value(KERNEL, likelihood.psi + 1e-4) - value(KERNEL, likelihood.psi - 1e-4)) / 2e-4
        assert found.by_psi[0] == pytest.approx(numeric, rel=1e-5)


def test_full_scale_is_near_dense_and_nearer_with_more_neighbours():
    response = seen(Bernoulli())
    want = mode_and_evidence(covariance(), Bernoulli(), response.y, response.offset)[1]
    errors = [
        abs(find_mode(RowNoise(built("full-scale", 12, m), KERNEL), response).value - want) for m in (2, 30)
    ]
    assert errors[1] < errors[0] < 1.0
    assert errors[1] < 0.02


@each
def test_objective_and_its_gradient_in_unconstrained_coordinates(likelihood):
    problem = LatentProblem(KERNEL, seen(likelihood), default_priors(KERNEL, 3, False))
    start = start_values(KERNEL, 1.0, np.log(likelihood.psi), None)
    del start["sigma_eps2"]
    space = ParameterSpace.of(KERNEL, start, problem.psi_bounds)
    objective = problem.on(built("full-scale", 12, 8), space)
    z = space.pack(start)
    answer = objective(z)
    assert answer.problem is None and len(space.bounds()) == z.size
    for k, h in enumerate(1e-4 * np.eye(z.size)):
        numeric = (objective(z + h).value - objective(z - h).value) / 2e-4
        assert answer.gradient[k] == pytest.approx(numeric, rel=2e-4, abs=2e-4), space.labels()[k]
    part = problem.restricted(np.arange(5))
    assert part.response.y.shape == part.response.offset.shape == (5,)


def elliptical_slice_draws(L, response, n_draws, rng):
    """Draws of f given y by elliptical slice sampling, which needs no derivative; L L' = K."""

    def log_p(f):
        return float(np.sum(response.terms(f).log_p))

    f, out = np.zeros(len(L)), []
    for _ in range(n_draws):
        other, least = L @ rng.standard_normal(len(L)), log_p(f) + np.log(rng.random())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while log_p(new := f * np.cos(angle) + other * np.sin(angle)) <= least:
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        f = new
        out.append(f)
    return np.array(out)


@pytest.mark.slow
def test_probabilities_against_a_long_markov_chain():
    """200 rows and 20 new ones: Laplace's probabilities beside those of 30,000 draws of f."""
    rng = np.random.default_rng(2)
    points = rng.normal(size=(220, 3))
    backend = choose_backend(KERNEL, "native")
    K = np.asarray(backend.cross(KERNEL, points, points)) + 1e-8 * np.eye(220)
    L = np.linalg.cholesky(K)
    f = L @ rng.standard_normal(220)
    response = Response(Bernoulli(), Bernoulli().sample(f[:200], rng))
    rows = Builder(points[:200], Dials("exact", 1, 0, "kmeans", "random", None), backend, 0).build(KERNEL)
    mode = find_mode(RowNoise(rows, KERNEL), response)
    posterior = rows.posterior(KERNEL, Observed(mode.pseudo.z, 1.0, mode.pseudo.noise))
    mean, variance = make_predictor(posterior, None).predict(points[200:])
    laplace = Bernoulli().predictive(mean, variance).probability
    draws = elliptical_slice_draws(L[:200, :200], response, 30_000, rng)[1000:]
    weights = np.linalg.solve(K[:200, :200], K[:200, 200:])
    given = np.diag(K[200:, 200:]) - np.sum(K[:200, 200:] * weights, axis=0)
    sampled = np.mean(expit(draws @ weights + np.sqrt(given) * rng.standard_normal((len(draws), 20))), axis=0)
    np.testing.assert_allclose(laplace, sampled, atol=0.02)
