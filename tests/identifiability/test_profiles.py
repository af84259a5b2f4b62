"""Profiles against a search that shares no code with the package's optimiser and priors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq, minimize

from widegp.identifiability import Computation, Steps, map_objective, plot_profile, profile
from widegp.kernels import Mixed, ReLU


def table(kernel, noise, n=60, n_inputs=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_inputs))
    S = kernel(X) + noise * np.eye(n)
    return X, np.linalg.cholesky(S) @ rng.normal(size=n)


def loss(X, y, theta):
    """-log p(y) - log p(theta) of a ReLU network, theta = (sigma_a2, sigma_u2, sigma_b2, sigma_v2, noise)."""
    a, u, b, v, noise = theta
    S = ReLU(sigma_a2=a, sigma_u2=u, sigma_b2=b, sigma_v2=v)(X) + noise * np.eye(len(y))
    priors = [(1.0, 2.0), (1 / X.shape[1], 2.0), (0.25, 2.0), (1.0, 2.0), (0.1, 1.5)]
    prior = sum(stats.norm(np.log(m), s).logpdf(np.log(t)) for (m, s), t in zip(priors, theta, strict=True))
    return -stats.multivariate_normal(np.zeros(len(y)), S).logpdf(y) - prior


def test_the_curve_is_the_minimum_over_the_others():
    X, y = table(ReLU(), 0.1, n=40)
    objective, start = map_objective(ReLU(), 0.1, X, y)
    found = profile(objective, start, "sigma_eps2", [0.05, 0.3])
    assert found.values[0] == pytest.approx(0.05)
    curve = dict(zip(np.round(found.values, 6), found.curve, strict=True))

    def lowest(noise):
        def others(z):
            return loss(X, y, [*np.exp(z), noise])

        return minimize(others, np.zeros(4), method="BFGS", options={"gtol": 1e-4}).fun

    assert curve[0.05] - curve[0.3] == pytest.approx(lowest(0.05) - lowest(0.3), abs=2e-3)


def test_the_interval_ends_where_the_objective_has_dropped_by_1_92():
    X, y = table(ReLU(), 0.2, n=40)
    objective, start = map_objective(ReLU(), 0.2, X, y)
    found = profile(objective, start, "sigma_eps2")
    low, high = found.interval
    assert low < found.estimate < high
    assert found.curve.min() == 0 and found.unfinished == 0
    for end in (low, high):
        # A fresh grid of this one value: the others are optimised again from the minimum.
        again = profile(objective, start, "sigma_eps2", [end])
        assert again.curve.max() == pytest.approx(1.92, abs=0.04)


def test_white_noise_has_the_closed_form_profile_of_its_variance():
    rng = np.random.default_rng(3)
    y = 0.7 * rng.normal(size=200)
    # Almost no signal: y is white noise of variance s, and the rest of the likelihood is flat.
    kernel = ReLU(sigma_a2=1e-6, sigma_u2=1e-6, sigma_b2=1e-6, sigma_v2=1e-6)
    objective, start = map_objective(kernel, 0.5, rng.normal(size=(200, 1)), y, priors=None)
    found = profile(objective, start, "sigma_eps2", np.geomspace(0.3, 0.8, 25), Steps(max_iter=0))
    best = np.mean(y**2)

    def drop(s):
        return 100 * (np.log(s / best) + best / s - 1) - 1.920729

    # The minimum is missed by less than the grid, so curves are compared by their differences.
    expected = np.array([drop(s) for s in found.values])
    np.testing.assert_allclose(found.curve - found.curve[0], expected - expected[0], atol=1e-3)
    ends = (brentq(drop, 0.2, best), brentq(drop, best, 2.0))
    assert found.interval == pytest.approx(ends, rel=0.01)


def test_a_flat_parameter_is_open_on_its_flat_side():
    # A ReLU draw: alpha matters only as a slope; w near 0 makes large drops impossible towards w = 0.
    X, y = table(Mixed(w=0.02, alpha=0.2), 0.05)
    objective, start = map_objective(Mixed(w=0.02, alpha=0.2), 0.05, X, y, priors={"w": None})
    found = profile(objective, start, "w", steps=Steps(max_points=4))
    assert found.interval[0] is None
    assert "below" in str(found)


def test_neighbours_and_anchors_serve_as_well():
    X, y = table(Mixed(), 0.1, n=300)
    grid = [0.07, 0.14]
    exact, start = map_objective(Mixed(), 0.1, X, y)
    by = Computation("full-scale", rank=60, neighbors=30)
    near, begin = map_objective(Mixed(), 0.1, X, y, computation=by)
    first, second = profile(exact, start, "sigma_eps2", grid), profile(near, begin, "sigma_eps2", grid)
    np.testing.assert_allclose(first.curve[[0, -1]], second.curve[[0, -1]], atol=0.35)


def test_unknown_names_are_refused_and_results_are_plain():
    X, y = table(ReLU(), 0.1, n=40)
    objective, start = map_objective(ReLU(), 0.1, X, y)
    with pytest.raises(ValueError, match="no parameter 'w'"):
        profile(objective, start, "w")
    with pytest.raises(ValueError, match=r"\(n, I\) and y"):
        map_objective(ReLU(), 0.1, X, y[:-1])
    found = profile(objective, start, "sigma_v2", [0.5, 2.0])
    assert set(found.to_dict()) >= {"name", "values", "curve", "interval"}
    assert found.others.shape == (3, 5) and found.labels[-1] == "sigma_eps2"
    assert plot_profile(found).axes[0].get_xlabel() == "sigma_v2"
