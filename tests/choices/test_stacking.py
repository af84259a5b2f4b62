"""Shares of two models by rows held out: against known mixtures, and in the average of a fit."""

import numpy as np
import pytest
from scipy import stats

from widegp import WideGPRegressor
from widegp.choices import search
from widegp.choices.stacking import stacked_share


def losses(y, *laws):
    return [-law.logpdf(y) for law in laws]


@pytest.mark.parametrize("share", [0.2, 0.7, 1.0])
def test_the_share_of_a_mixture_is_found(share):
    rng = np.random.default_rng(0)
    laws = stats.norm(0, 1), stats.norm(2, 0.5)
    drawn = np.where(rng.random(4000) < share, *(law.rvs(4000, random_state=rng) for law in laws[::-1]))
    assert stacked_share(*losses(drawn, *laws)) == pytest.approx(share, abs=0.03)


def test_few_rows_leave_the_share_near_a_half():
    """Of one row: (a + 2 b) / (3 a + 3 b), with densities a and b."""
    assert stacked_share(np.zeros(3), np.zeros(3)) == pytest.approx(0.5)
    a, b = 0.1, 0.4
    found = stacked_share(-np.log([a]), -np.log([b]))
    assert found == pytest.approx((a + 2 * b) / (3 * (a + b)), rel=1e-5)
    assert 0 < stacked_share(np.zeros(9), np.full(9, 800.0)) < 0.1


def test_rows_held_out_weigh_one_variance_against_one_per_input(monkeypatch):
    """And not the evidence, which is sure of one also where neither is right."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(60)
    seen = []

    def share(first, second):
        seen.append((first, second))
        return 0.3

    monkeypatch.setattr(search, "stacked_share", share)
    model = WideGPRegressor(trees="none", random_state=0).fit(X, y)
    assert len(seen) == 1 and all(loss.shape == (60,) for loss in seen[0])
    by_input = [np.ndim(member.params["sigma_u2"]) > 0 for member in model.fitted_.members]
    assert model.fitted_.weights[by_input].sum() == pytest.approx(0.3)
    assert any("to 30%, one for each" in note for note in model.result_.notes)
