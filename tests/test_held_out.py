"""Predictions of held-out rows, against the distributions that they claim to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from widegp import WideGPRegressor
from widegp.held_out import HeldOut


def table(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 3 + np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


def fitted(transform, link=lambda y: y):
    X, y = table(80, 0)
    settings = {"approximation": "exact", "max_iter": 30, "random_state": 0}
    model = WideGPRegressor.plain(target_transform=transform, **settings).fit(X, link(y))
    X, y = table(7, 1)
    return model, X, link(y)


@pytest.fixture(scope="module")
def plain():
    return fitted(None)


@pytest.fixture(scope="module")
def logged():
    return fitted("log", np.exp)


def made_up(n=40, seed=0, **changes):
    """A calibrated forecaster of scale 2: y ~ N(mean, 4)."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    sd = np.full(n, 2.0)
    y = mean + sd * rng.normal(size=n)
    d = stats.norm(mean, sd)
    fields = {
        "y": y, "mean": mean, "sd": sd, "lower": d.ppf(0.1), "upper": d.ppf(0.9), "pit": d.cdf(y),
        "log_density": d.logpdf(y), "level": 0.8, "crps": rng.uniform(size=n), "train_sd": 2.5,
    }  # fmt: skip
    return HeldOut(**(fields | changes))


def crps_by_integration(d, y):
    below = integrate.quad(lambda t: d.cdf(t) ** 2, d.ppf(1e-12), y, limit=200)[0]
    return below + integrate.quad(lambda t: d.sf(t) ** 2, y, d.isf(1e-12), limit=200)[0]


def agrees(held_out, distributions, y):
    for i, d in enumerate(distributions):
        assert held_out.pit[i] == pytest.approx(d.cdf(y[i]), rel=1e-9)
        assert held_out.log_density[i] == pytest.approx(d.logpdf(y[i]), rel=1e-9)
        assert (held_out.mean[i], held_out.sd[i]) == pytest.approx((d.mean(), d.std()), rel=1e-7)
        assert (held_out.lower[i], held_out.upper[i]) == pytest.approx(d.interval(0.9), rel=1e-9)
        assert held_out.crps[i] == pytest.approx(crps_by_integration(d, y[i]), rel=1e-6)


def test_without_a_warp_every_row_is_the_normal_of_predict(plain):
    model, X, y = plain
    mean, sd = model.predict(X, return_std=True)
    agrees(HeldOut.of(model, X, y, 0.9), map(stats.norm, mean, sd), y)


def test_under_the_logarithm_every_row_is_lognormal(logged):
    model, X, y = logged
    # Two quantiles determine a lognormal.
    median, high = model.predict_quantiles(X, [0.5, stats.norm.cdf(1.0)]).T
    sigma = np.log(high / median)
    agrees(
        HeldOut.of(model, X, y, 0.9),
        [stats.lognorm(s, scale=m) for s, m in zip(sigma, median, strict=True)],
        y,
    )


def test_scores_by_hand():
    h = made_up()
    n, alpha = len(h), 1 - h.level
    inside, miss, squares = 0, 0.0, 0.0
    for y, m, low, high in zip(h.y, h.mean, h.lower, h.upper, strict=True):
        inside += low <= y <= high
        miss += max(low - y, 0, y - high)
        squares += (y - m) ** 2
    scores = h.scores()
    width = float(np.mean(h.upper - h.lower))
    assert scores["coverage"] == pytest.approx(inside / n)
    assert scores["width"] == pytest.approx(width)
    assert scores["interval_score"] == pytest.approx(width + 2 / alpha * miss / n)
    assert scores["rmse"] == pytest.approx((squares / n) ** 0.5)
    assert scores["r2"] == pytest.approx(1 - squares / n / h.y.var())
    assert scores["nll"] == pytest.approx(-h.log_density.mean())
    assert scores["pit_distance"] == pytest.approx(stats.kstest(h.pit, "uniform").statistic)


def test_scaled_scores_do_not_depend_on_the_unit(plain):
    model, X, y = plain
    one = HeldOut.of(model, X, y).scores()
    train_X, train_y = table(80, 0)
    other = WideGPRegressor.plain(**model.get_params()).fit(train_X, 10 + 1000 * train_y)
    two = HeldOut.of(other, X, 10 + 1000 * y).scores()
    for name in ("rmse_z", "mae_z", "crps_z", "nll_z", "width_z", "interval_score_z", "coverage", "r2"):
        assert two[name] == pytest.approx(one[name], rel=1e-5)
    assert two["rmse"] == pytest.approx(1000 * one["rmse"], rel=1e-5)


def test_a_value_that_the_warp_excludes_has_infinite_score(logged):
    model, X, y = logged
    y = y.copy()
    y[2] = -1.0
    h = HeldOut.of(model, X, y)
    assert h.log_density[2] == -np.inf and h.pit[2] == 0
    assert h.scores()["nll"] == np.inf
    assert np.isfinite(h.scores()["crps"])


def test_a_constant_target_has_no_r2():
    assert "r2" not in made_up(y=np.ones(40)).scores()


@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 5))
def test_thinning_keeps_distinct_rows_in_order(n, rows, seed):
    h = made_up(n)
    few = h.thinned(rows, seed)
    assert len(few) == min(n, rows)
    places = [int(np.flatnonzero(h.y == y)[0]) for y in few.y]
    assert places == sorted(set(places))
    assert np.array_equal(few.upper, h.upper[places]) and few.level == h.level


def test_arrays_there_and_back():
    h = made_up()
    again = HeldOut.from_arrays({name: np.array(a) for name, a in h.to_arrays().items()})
    assert again.scores() == h.scores()
    assert isinstance(again.level, float) and again.level == h.level
    assert "calibrated_depth" not in h.to_arrays() and again.calibrated_depth is None
    np.testing.assert_array_equal(again.depth, np.abs(2 * h.pit - 1))
    deep = made_up(calibrated_depth=np.arange(40) / 40)
    np.testing.assert_array_equal(HeldOut.from_arrays(deep.to_arrays()).depth, deep.depth)
    assert len(deep.thinned(7).depth) == 7
    with pytest.raises(ValueError, match="lack crps"):
        HeldOut.from_arrays({name: a for name, a in h.to_arrays().items() if name != "crps"})


@pytest.mark.parametrize(
    ("y", "level", "says"),
    [
        (np.array([1.0, np.nan]), 0.9, "nan in row 1"),
        (np.ones((2, 1)), 0.9, "shape"),
        (np.ones(3), 0.9, "7 rows and y has 3"),
        (np.ones(7), 1.0, "strictly between"),
    ],
)
def test_what_cannot_be_scored_is_refused(plain, y, level, says):
    model, X, _ = plain
    with pytest.raises(ValueError, match=says):
        HeldOut.of(model, X, y, level)
