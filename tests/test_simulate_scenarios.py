"""The scenarios against the table of the paper (cenarios_simulacao_kmix)."""

import dataclasses

import numpy as np
import pytest

from widegp.simulate import SCENARIOS, draw_scenario, mean_variance, replications, scenario

# Design, I, n, mean K(x, x), sigma_eps, sigma_eps2 as published; tolerance on the mean.
PUBLISHED = {
    "C1": ("uniform", 20, 10_000, 2.132745, 0.292078, 0.085310, 2e-3),
    "C2": ("uniform", 80, 10_000, 3.769967, 0.388328, 0.150799, 2e-3),
    "C3": ("uniform", 20, 20_000, 2.131981, 0.292026, 0.085279, 2e-3),
    "C4": ("uniform", 80, 20_000, 3.769044, 0.388281, 0.150762, 2e-3),
    "C5": ("uniform", 20, 50_000, 2.131707, 0.292007, 0.085268, 2e-3),
    "C6": ("uniform", 80, 50_000, 3.768044, 0.388229, 0.150722, 2e-3),
    "C7": ("stratified", 20, 50_000, 2.132325, 0.292050, 0.085293, 3e-3),
    "C8": ("stratified", 80, 50_000, 3.772796, 0.388474, 0.150912, 3e-3),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_scenarios_have_the_published_mean_variance_and_nugget(name):
    design, I, n, mean, sd, variance, tolerance = PUBLISHED[name]
    chosen = scenario(name)
    assert (chosen.design, chosen.n_inputs, chosen.n_rows) == (design, I, n)
    X = chosen.inputs(seed=0)
    assert X.shape == (n, I)
    K_bar = mean_variance(chosen.kernel(), X)
    assert K_bar == pytest.approx(mean, rel=tolerance)
    nugget = chosen.noise_fraction * K_bar
    assert nugget == pytest.approx(variance, rel=tolerance)
    assert np.sqrt(nugget) == pytest.approx(sd, rel=tolerance)


def test_there_are_eight_frozen_scenarios():
    assert list(SCENARIOS) == list(PUBLISHED)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scenario("C1").n_rows = 3
    with pytest.raises(ValueError, match="Unknown scenario 'C9'"):
        scenario("C9")


def test_replications_share_their_inputs():
    fast = {"method": "network", "width": 3}
    all_three = replications("C1", 3, seed=4, **fast)
    one, other = draw_scenario("C1", 4, **fast), draw_scenario("C1", 5, **fast)
    assert all_three.y.shape == (10_000, 3)
    np.testing.assert_array_equal(all_three.X, one.X)
    np.testing.assert_allclose(all_three.y[:, 0], one.y)
    assert not np.allclose(all_three.y[:, 1], one.y)
    assert not np.allclose(other.X, one.X)
    assert one.noise == pytest.approx(0.0853, rel=2e-3)
    assert np.var(one.y - one.f) == pytest.approx(one.noise, rel=0.1)
