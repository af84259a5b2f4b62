"""Simulators against the covariance they should have, and against the exact GP as a judge."""

import jax.numpy as jnp
import numpy as np
import pytest
from naive_gp import nearest_earlier as naive_neighbors

from widegp import designs
from widegp.kernels import FromActivation, Mixed, Mixture, ReLU, Tanh
from widegp.simulate import default_width, mean_variance, simulate
from widegp.simulate.covariance import row_covariance
from widegp.simulate.sequential import row_weights

KERNEL = Mixed(sigma_a2=0.8, sigma_u2=np.array([0.5, 1.0, 2.0]), sigma_b2=0.3, sigma_v2=1.2, alpha=0.3, w=0.6)
X = np.random.default_rng(5).normal(size=(30, 3))


def worst_z(draws, K):
    """Largest |mean f f' - K| in standard errors of a Gaussian f, over all pairs of rows; draws (n, s)."""
    d = np.diagonal(K)
    error = np.sqrt((np.outer(d, d) + K**2) / draws.shape[1])
    return np.max(np.abs(draws @ draws.T / draws.shape[1] - K) / error)


def judge(method, n, I, n_draws, seed=0, n_test=200, **settings):
    """Test MSE over predicted variance of the exact GP at the true parameters, and its standard error."""
    rows, kernel = designs.uniform(n, I, seed), Mixed()
    simulated = simulate(kernel, rows, method=method, n_draws=n_draws, rng=seed + 1, **settings)
    K = kernel(rows)
    train, test = slice(0, n - n_test), slice(n - n_test, n)
    weights = np.linalg.solve(K[train, train] + simulated.noise * np.eye(n - n_test), K[train, test])
    predicted = np.mean(np.diagonal(K)[test] - np.sum(weights * K[train, test], axis=0)) + simulated.noise
    errors = np.mean((simulated.y[test] - weights.T @ simulated.y[train]) ** 2, axis=0)
    return errors.mean() / predicted, errors.std() / np.sqrt(n_draws) / predicted


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("exact", {}),
        ("vecchia", {"block": 10, "neighbors": 29}),
        ("full-scale", {"rank": 8, "neighbors": 29}),
        ("full-scale", {"rank": 30, "neighbors": 3}),
    ],
)
def test_draws_have_the_covariance_of_the_kernel(method, settings):
    simulated = simulate(KERNEL, X, method=method, n_draws=20_000, rng=2, noise=0.5, **settings)
    assert worst_z(simulated.f, KERNEL(X)) < 5
    assert worst_z(simulated.y, KERNEL(X) + 0.5 * np.eye(len(X))) < 5
    assert worst_z(simulated.f[:, :5_000], 1.2 * KERNEL(X)) > 5


@pytest.mark.parametrize(
    "kernel", [KERNEL, Tanh(), Mixture(("sigmoid", "relu"))], ids=["mix", "tanh", "mixture"]
)
def test_networks_have_the_covariance_of_the_kernel(kernel):
    simulated = simulate(kernel, X, method="network", n_draws=2_000, width=200, rng=3)
    assert worst_z(simulated.f, kernel(X)) < 5
    assert simulated.width == 200


def test_vecchia_is_the_sequence_of_conditionals_it_says():
    block, m, K = 6, 4, KERNEL(X)
    near = naive_neighbors(X, m)
    # f = B f + sqrt(d) e, so Cov f = (1 - B)^-1 D (1 - B)^-T.
    B, d = np.zeros_like(K), np.diagonal(K).copy()
    for i in range(1, len(X)):
        N = np.arange(i) if i < block else near[i]
        B[i, N] = np.linalg.solve(K[np.ix_(N, N)], K[N, i])
        d[i] -= B[i, N] @ K[N, i]
    root = np.linalg.solve(np.eye(len(X)) - B, np.diag(np.sqrt(d)))
    simulated = simulate(KERNEL, X, block=block, neighbors=m, n_draws=20_000, rng=4)
    assert worst_z(simulated.f, root @ root.T) < 5
    assert worst_z(simulated.f, K) > 5


@pytest.mark.parametrize(
    "kernel", [KERNEL, ReLU(), FromActivation(jnp.tanh, terms=64)], ids=["mix", "relu", "tanh"]
)
def test_row_weights_are_the_regression_on_the_other_rows(kernel):
    rows = np.array([4, 20, 11, 7, 2])
    features = np.random.default_rng(0).normal(size=(len(X), 2)) / 10
    R = kernel(X) - features @ features.T
    weights = row_weights(row_covariance(kernel, X, features), rows)
    others, own = rows[:-1], rows[-1]
    a = np.linalg.solve(R[np.ix_(others, others)], R[others, own])
    np.testing.assert_allclose(weights.a, a, rtol=1e-9)
    assert weights.d == pytest.approx(R[own, own] - a @ R[others, own], rel=1e-9)
    assert weights.jitter == 0


def test_duplicate_rows_are_drawn_alike_and_the_jitter_is_recorded():
    doubled = np.concatenate([X[:10], X[:10]])
    for method in ("exact", "vecchia"):
        simulated = simulate(KERNEL, doubled, method=method, block=5, rng=0)
        np.testing.assert_allclose(simulated.f[:10], simulated.f[10:], atol=1e-2)
        assert 0 < simulated.jitter <= 1e-4
    assert simulate(KERNEL, X, method="vecchia", rng=0).jitter == 0


@pytest.mark.parametrize("method", ["exact", "vecchia", "full-scale", "network"])
def test_a_draw_depends_on_its_seed_and_number_alone(method):
    settings = {"method": method, "rng": 9, "rank": 5, "neighbors": 4, "width": 50}
    one, three = simulate(KERNEL, X, **settings), simulate(KERNEL, X, n_draws=3, **settings)
    assert one.y.shape == (30,)
    assert three.f.shape == (30, 3)
    np.testing.assert_allclose(three.y[:, 0], one.y, rtol=1e-9)
    assert np.all(np.abs(np.corrcoef(three.y.T - three.f.T)[np.triu_indices(3, 1)]) < 0.7)


def test_stretches_and_threads_do_not_change_a_draw(monkeypatch):
    whole = simulate(KERNEL, X, block=3, neighbors=6, rng=1).f
    monkeypatch.setattr("widegp.simulate.sequential.STRETCH_BYTES", 1)
    monkeypatch.setattr("widegp.simulate.sequential._PART", 2)
    np.testing.assert_array_equal(simulate(KERNEL, X, block=3, neighbors=6, rng=1).f, whole)


@pytest.mark.parametrize("method", ["vecchia", "full-scale", "network"])
def test_progress_ends_at_the_whole(method):
    seen = []
    simulate(
        KERNEL, X, method=method, rank=4, block=3, width=70, n_draws=2, rng=0,
        progress=seen.append,
    )  # fmt: skip
    done = [event.iteration for event in seen]
    assert done == sorted(done) and done[-1] == seen[-1].total and seen[-1].fraction == 1


def test_noise_is_a_share_of_the_mean_variance():
    mean = np.mean(np.diagonal(KERNEL(X)))
    assert mean_variance(KERNEL, X, batch=7) == pytest.approx(mean)
    assert simulate(KERNEL, X, method="exact", rng=0).noise == pytest.approx(0.04 * mean)
    simulated = simulate(KERNEL, X, method="exact", n_draws=2_000, noise_fraction=0.3, rng=0)
    assert np.var(simulated.y - simulated.f) == pytest.approx(0.3 * mean, rel=0.03)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("exact", {}), ("network", {"width": 1_500}), ("full-scale", {"rank": 300})],
)
def test_the_exact_gp_finds_the_draws_as_predictable_as_it_should(method, settings):
    ratio, error = judge(method, 700, 20, 20, **settings)
    assert error < 0.04
    assert abs(ratio - 1) < 3 * error + 0.02


@pytest.mark.slow
@pytest.mark.parametrize(("I", "slack"), [(20, 0.02), (80, 0.05)])
@pytest.mark.parametrize("method", ["exact", "network", "full-scale"])
def test_calibration_at_two_thousand_rows(method, I, slack):
    ratio, error = judge(method, 2_000, I, 12)
    assert abs(ratio - 1) < 3 * error + slack


@pytest.mark.slow
def test_the_papers_construction_is_not_a_draw_from_the_kernel_in_80_inputs():
    ratio, error = judge("vecchia", 2_000, 80, 12)
    assert ratio > 1.15
    assert ratio - 1 > 5 * error
    ratio, error = judge("vecchia", 2_000, 20, 12)
    assert abs(ratio - 1) < 3 * error + 0.03


def test_a_network_has_more_units_than_there_are_rows():
    assert default_width(100) == 10_000
    assert default_width(50_000) == 100_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate(KERNEL, X, method="magic"), "Unknown method 'magic'"),
        (lambda: simulate(KERNEL, X[0]), "shape \\(n, I\\)"),
        (lambda: simulate(KERNEL, np.zeros((20_001, 3)), method="exact", noise=0.1), 'Use method="network"'),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
