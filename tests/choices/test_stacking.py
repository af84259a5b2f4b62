"""Shares of two models by rows held out: against known mixtures, and in the average of a fit."""

import numpy as np
import pytest
from scipy import integrate, stats

from widegp import WideGPRegressor
from widegp.choices import stacking
from widegp.choices.stacking import DOUBT, nested_shares, stacked_share


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


@pytest.mark.parametrize("q", [0.05, 0.3, 0.5, 0.95])
def test_what_is_known_before_is_worth_a_row_or_two(q):
    """Of no row: q. Of one: (a (E w - E w^2) + b E w^2) / (a (1 - E w) + b E w), E w^2 = q (2 q + 1) / 3."""
    nothing = np.zeros(0)
    assert stacked_share(nothing, nothing, q) == pytest.approx(q, abs=1e-3)
    a, b, square = 0.1, 0.4, q * (2 * q + 1) / 3
    expected = (a * (q - square) + b * square) / (a * (1 - q) + b * q)
    assert stacked_share(-np.log([a]), -np.log([b]), q) == pytest.approx(expected, abs=1e-3)


def test_rows_that_tell_models_apart_decide_against_what_was_known_before():
    better, worse = np.zeros(60), np.full(60, 0.5)
    assert stacked_share(better, worse, before=1 - DOUBT) < 0.3
    assert stacked_share(better, better, before=1 - DOUBT) == pytest.approx(1 - DOUBT, abs=1e-3)


def test_metrics_share_out_first_and_then_kernels():
    """Against densities averaged by hand and the integral over w by quadrature."""
    rng = np.random.default_rng(1)
    first, second, third, fourth = (rng.gamma(2.0, 0.5, 25) for _ in range(4))
    w, v = stacked_share(first, second), stacked_share(third, fourth)
    p = (1 - w) * np.exp(-first) + w * np.exp(-second)
    r = (1 - v) * np.exp(-third) + v * np.exp(-fourth)
    prior = stats.beta(2 * 0.8, 2 * 0.2)

    def moment(power):
        def under(s):
            return s**power * np.prod(2 * ((1 - s) * p + s * r)) * prior.pdf(s)

        return integrate.quad(under, 0, 1, limit=200)[0]

    share = moment(1) / moment(0)
    found = nested_shares([[first, second], [third, fourth]], [0.2, 0.8])
    expected = [(1 - share) * (1 - w), (1 - share) * w, share * (1 - v), share * v]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-3)
    alone = nested_shares([[first, second]], [1.0])
    np.testing.assert_allclose(alone, [[1 - w, w]])
    apart = nested_shares([[first], [first]], [0.0, 1.0])
    np.testing.assert_allclose(np.concatenate(apart), [DOUBT, 1 - DOUBT], atol=1e-3)


def test_rows_held_out_weigh_one_variance_against_one_per_input(monkeypatch):
    """And not the evidence, which is sure of one also where neither is right."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(60)
    seen = []

    def share(first, second):
        seen.append((first, second))
        return 0.3

    monkeypatch.setattr(stacking, "stacked_share", share)
    model = WideGPRegressor("mixed", trees="none", random_state=0).fit(X, y)
    assert len(seen) == 1 and all(loss.shape == (60,) for loss in seen[0])
    by_input = [np.ndim(member.params["sigma_u2"]) > 0 for member in model.fitted_.members]
    assert model.fitted_.weights[by_input].sum() == pytest.approx(0.3)
    assert any("mixed with one variance for each input (30%)" in note for note in model.result_.notes)
