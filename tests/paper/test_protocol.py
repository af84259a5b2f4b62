"""The paper's protocol against fifty steps of Adam written out, and against the estimator."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import widegp
from widegp import WideGPRegressor
from widegp.data.preprocessing import InputScaler
from widegp.inference.priors import InverseGamma, resolve_priors
from widegp.inference.protocol import REAL_NOISE_START, paper_priors
from widegp.kernels import Mixed
from widegp.paper.protocol import (
    LEVELS,
    Outcome,
    Split,
    held_out,
    paper_fit,
    record,
    sound_fit,
)

NAMES = ("sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2", "alpha", "w", "sigma_eps2")


@pytest.fixture(scope="module")
def split() -> Split:
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.5, 0.5, (90, 4))
    y = np.sin(4 * X[:, 0]) + X[:, 1] + rng.normal(0, 0.2, 90) + 0.7
    return held_out(X, y, 0)


def constrained(z):
    """softplus for variances, sigmoid for alpha and w, exp(2 z) for the noise."""
    return dict(
        zip(NAMES, [*jax.nn.softplus(z[:4]), *jax.nn.sigmoid(z[4:6]), jnp.exp(2 * z[6])], strict=True)
    )


def naive_loss(z, X, y, noise_start):
    """Eq. (map_loss_body) of the rows given, priors of weight 100 with their modes at the start."""
    v = constrained(z)
    kernel = Mixed(**{k: v[k] for k in NAMES[:-1]})
    cov = kernel(X) + v["sigma_eps2"] * jnp.eye(len(y))
    loss = 0.5 * (y @ jnp.linalg.solve(cov, y) + jnp.linalg.slogdet(cov)[1] + len(y) * jnp.log(2 * jnp.pi))
    modes = {"sigma_b2": 1.01, "sigma_eps2": noise_start}
    for name in NAMES:
        x = v[name]
        if name in ("alpha", "w"):
            loss -= 99 * (jnp.log(x) + jnp.log1p(-x))
        else:
            loss += 101 * jnp.log(x) + 101 * modes.get(name, 1.0) / x
    return loss


def naive_adam(X, y, noise_start, steps=50, rate=1e-3):
    with jax.enable_x64(True):
        inverse = np.log(np.expm1(1.0))
        z = np.array([inverse] * 4 + [0.0, 0.0, 0.5 * np.log(noise_start)])
        gradient = jax.jit(jax.grad(lambda z: naive_loss(z, X, y, noise_start)))
        m = v = np.zeros(7)
        for t in range(1, steps + 1):
            g = np.asarray(gradient(z))
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            z = z - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return {name: float(value) for name, value in constrained(z).items()}


def test_estimates_and_predictions_are_those_of_the_first_rows_alone(split):
    out = paper_fit(split, "first", rank=30)
    X, y = split.X[:30], split.y[:30]
    start = 0.04 * float(np.mean(Mixed().diag(split.X)))
    expected = naive_adam(X, y, start)
    for name in NAMES:
        assert out.params[name] == pytest.approx(expected[name], abs=2e-6), name
    kernel = Mixed(**{k: expected[k] for k in NAMES[:-1]})
    S = np.asarray(kernel(X)) + expected["sigma_eps2"] * np.eye(30)
    cross = np.asarray(kernel(split.X_test, X))
    np.testing.assert_allclose(out.mean, cross @ np.linalg.solve(S, y), atol=1e-4)
    explained = np.einsum("ij,ji->i", cross, np.linalg.solve(S, cross.T))
    variance = np.asarray(kernel.diag(split.X_test)) - explained + expected["sigma_eps2"]
    np.testing.assert_allclose(out.sd**2, variance, rtol=1e-3)


def test_no_parameter_moves_further_than_fifty_steps_allow(split):
    params = paper_fit(split, "kmeans", rank=20).params
    for name in ("sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2"):
        assert abs(params[name] - 1) < 0.04
    assert abs(params["alpha"] - 0.5) < 0.015 and abs(params["w"] - 0.5) < 0.015


def test_on_real_tables_it_is_the_estimators_paper_protocol(split):
    wide = Split(7 * split.X + 3, 5 * split.y - 2, 7 * split.X_test + 3, split.y_test)
    out = paper_fit(wide, "first", rank=25, real=True)
    model = WideGPRegressor.paper_protocol(
        REAL_NOISE_START, anchors="first", rank=25, random_state=0
    ).fit(wide.X, wide.y)
    for name in NAMES:
        assert out.params[name] == pytest.approx(model.params_[name], rel=1e-9)
    mean, sd = model.predict(wide.X_test, return_std=True)
    np.testing.assert_allclose(out.mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(out.sd, sd, rtol=1e-8)
    assert out.units["sigma_eps2"] == pytest.approx(np.var(wide.y))


def test_both_put_the_mode_of_the_noise_where_it_starts_by_the_rule_too(split, tmp_path):
    """Without a start of the noise it is eta K-bar, and the prior of the noise follows it."""
    wide = Split(7 * split.X + 3, 5 * split.y - 2, 7 * split.X_test + 3, split.y_test)
    rows = InputScaler.fit(wide.X, "minmax").transform(wide.X)
    start = 0.04 * float(np.mean(Mixed().diag(rows)))
    out = paper_fit(wide, "first", rank=25, real=True, noise_start=start)
    model = WideGPRegressor.paper_protocol(anchors="first", rank=25, random_state=0).fit(wide.X, wide.y)
    for name in NAMES:
        assert out.params[name] == pytest.approx(model.params_[name], rel=1e-9), name
    model.save(tmp_path / "model.widegp")
    for kept in (model, widegp.load(tmp_path / "model.widegp")):
        assert kept.fitted_.noise_start == pytest.approx(start)
        priors = resolve_priors(kept.priors, kept.kernel_, 4, False, kept.fitted_.noise_start)
        assert priors == paper_priors(kept.fitted_.noise_start)
        assert priors["sigma_eps2"] == InverseGamma(100.0, 101 * kept.fitted_.noise_start)


def test_where_no_noise_is_estimated_it_has_no_prior():
    assert set(resolve_priors("paper", Mixed(), 4, False)) == set(NAMES) - {"sigma_eps2"}


def test_held_out_rows_are_the_first_tenth_of_a_permutation():
    X, y = np.arange(46.0).reshape(23, 2), np.arange(23.0)
    p = np.random.default_rng(5).permutation(23)
    split = held_out(X, y, 5)
    assert split.y_test.tolist() == p[:2].tolist() and split.y.tolist() == p[2:].tolist()
    assert np.array_equal(split.X[:, 0], 2 * split.y)


def test_a_record_has_scores_calibration_and_units(split):
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    part = Split(split.X, split.y, np.zeros((4000, 4)), y)
    params, units = {"sigma_eps2": 0.5, "w": 0.3}, {"sigma_eps2": 4.0}
    outcome = Outcome(params, units, 0 * y, 1 + 0 * y, 1.0, 0.5, "converged")
    made = record(outcome, part, case="C1")
    assert made["params"] == {"sigma_eps2": 2.0, "w": 0.3, "sigma_eps2_z": 0.5}
    np.testing.assert_allclose(made["held"], LEVELS, atol=0.03)
    assert sum(made["pit"]) == 4000 and max(made["pit"]) < 1.3 * 4000 / len(made["pit"])
    assert made["seconds"] == 1.5 and made["case"] == "C1"
    assert made["scores"]["rmse"] == pytest.approx(np.sqrt(np.mean(y**2)))


def test_the_sound_default_gives_estimates_in_the_units_of_the_cube(split):
    out = sound_fit(split, rank=10, neighbors=5, predict_neighbors=10, max_iter=2)
    assert out.units["sigma_v2"] == pytest.approx(np.var(split.y))
    assert out.units["sigma_u2"] == pytest.approx(12, rel=0.2)
    assert set(sound_fit(split, real=True, rank=10, neighbors=5, max_iter=1).units) == {"sigma_eps2"}
