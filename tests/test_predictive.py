"""Predictive distributions against SciPy's, numerical integration and brute force."""

from __future__ import annotations

import itertools
import math
import pickle
import warnings
from dataclasses import FrozenInstanceError, dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from widegp import Predictive, WideGPRegressor, registry
from widegp.conformal import ConformalCalibration
from widegp.data.preprocessing import TargetScaler
from widegp.fitted_warp import FittedWarp
from widegp.predictive import Mixture, WarpedGaussian, generator

SCALER = TargetScaler(5.0, 2.0)
WARPS = ("none", "yeo-johnson", "box-cox", "sqrt", "log", "sinh-arcsinh")
MEANS, SDS = np.array([-0.8, 0.1, 0.9]), np.array([0.3, 0.5, 0.2])
CALIBRATION = ConformalCalibration.from_standard_scores(np.linspace(0.02, 3, 149))


def warp(name: str) -> FittedWarp:
    """Fitted to a skewed target, standardised; in units of y it is positive."""
    y = np.random.default_rng(0).gamma(3.0, size=400)
    y = (y - y.mean()) / y.std()
    return FittedWarp.fit(y, name, offset=SCALER.mean, scale=SCALER.sd)


def gaussian(name="none", mean=MEANS, sd=SDS, **changes) -> WarpedGaussian:
    mean = np.asarray(mean, float)
    sd = np.broadcast_to(np.asarray(sd, float), mean.shape)
    return WarpedGaussian(mean, sd, sd / 2, SCALER, warp(name), **changes)


def mixture(names=("none", "none", "none"), **changes) -> Mixture:
    shifts = zip(names, (0.0, 0.7, 0.2), strict=True)
    parts = [gaussian(name, MEANS + shift, SDS * (1 + shift)) for name, shift in shifts]
    return Mixture(parts, np.array([1.0, 2.0, 5.0]), **changes)


def in_scipy(p: WarpedGaussian):
    """Without a warp, the same distributions in SciPy."""
    return stats.norm(SCALER.mean + SCALER.sd * p.mean_z, SCALER.sd * p.sd_z)


def integral(predictive: Predictive, of, row: int) -> float:
    """int of(t) p(t) dt for one row, its far tails left out."""
    one = predictive[row]
    cuts = one.quantile([1e-13, 1e-4, 0.01, 0.25, 0.5, 0.75, 0.99, 0.9999, 1 - 1e-13])[0]
    f = lambda t: of(t) * math.exp(one.log_density(np.array([t]))[0])  # noqa: E731
    return sum(integrate.quad(f, a, b, limit=200)[0] for a, b in itertools.pairwise(cuts))


def crps_by_integration(predictive: Predictive, y: float, row: int) -> float:
    one = predictive[row]
    cuts = np.sort([*one.quantile([1e-13, 1e-4, 0.01, 0.25, 0.5, 0.75, 0.99, 0.9999, 1 - 1e-13])[0], y])
    f = lambda t: (one.cdf(np.array([t]))[0] - (t >= y)) ** 2  # noqa: E731
    return sum(integrate.quad(f, a, b, limit=200)[0] for a, b in itertools.pairwise(cuts))


class TestGaussian:
    def test_without_a_warp_it_is_scipys_normal(self):
        p, d = gaussian(), in_scipy(gaussian())
        y = np.array([4.0, 5.5, 9.0])
        np.testing.assert_allclose(p.mean, d.mean(), rtol=1e-14)
        np.testing.assert_allclose(p.sd, d.std(), rtol=1e-14)
        np.testing.assert_allclose(p.cdf(y), d.cdf(y), rtol=1e-13)
        np.testing.assert_allclose(p.log_density(y), d.logpdf(y), rtol=1e-13)
        np.testing.assert_allclose(p.quantile([0.1, 0.7]), np.stack([d.ppf(0.1), d.ppf(0.7)], 1), rtol=1e-13)
        np.testing.assert_allclose(p.interval(0.8), d.interval(0.8), rtol=1e-13)
        np.testing.assert_allclose(p.cdf(6.0), d.cdf(6.0), rtol=1e-13)

    def test_a_table_of_targets_is_row_by_row(self):
        p, y = gaussian("log"), np.array([[4.0, 5.0], [6.0, 7.0], [8.0, 9.0]])
        for j in range(2):
            np.testing.assert_array_equal(p.cdf(y)[:, j], p.cdf(y[:, j]))
            np.testing.assert_array_equal(p.log_density(y)[:, j], p.log_density(y[:, j]))

    @pytest.mark.parametrize("name", WARPS)
    def test_the_density_has_the_moments(self, name):
        p = gaussian(name)
        for row in range(3):
            mean = integral(p, lambda t: t, row)
            variance = integral(p, lambda t, m=mean: (t - m) ** 2, row)
            assert integral(p, lambda t: 1.0, row) == pytest.approx(1, abs=1e-6)
            assert p.mean[row] == pytest.approx(mean, rel=1e-6)
            assert p.sd[row] == pytest.approx(math.sqrt(variance), rel=1e-5)

    @pytest.mark.parametrize("name", WARPS)
    def test_crps_is_the_integral_of_its_definition(self, name):
        p, y = gaussian(name), np.array([3.5, 5.3, 9.0])
        expected = [crps_by_integration(p, y[i], i) for i in range(3)]
        np.testing.assert_allclose(p.crps(y), expected, rtol=1e-6)

    @pytest.mark.parametrize("name", WARPS)
    def test_draws_are_uniform_after_the_distribution_function(self, name):
        p = gaussian(name)
        draws = p.sample(4000, random_state=3)
        for probabilities in p.cdf(draws):
            assert stats.kstest(probabilities, "uniform").pvalue > 1e-3
        np.testing.assert_array_equal(draws, p.sample(4000, np.random.RandomState(3)))
        assert abs(np.corrcoef(draws)[0, 1]) < 0.08

    @given(
        name=st.sampled_from(WARPS),
        mean=st.floats(-1, 1),
        sd=st.floats(0.05, 0.4),
        levels=st.lists(st.floats(0.02, 0.98), min_size=1, max_size=5),
    )
    def test_probability_of_a_quantile_is_its_level(self, name, mean, sd, levels):
        p = gaussian(name, [mean], sd)
        np.testing.assert_allclose(p.cdf(p.quantile(levels)), [levels], rtol=1e-8)
        assert np.all(np.diff(p.quantile(np.sort(levels))[0]) >= 0)

    def test_scores_beyond_the_digits_of_a_probability(self):
        p = gaussian()
        np.testing.assert_allclose(p.normal_score(p.at_normal_score(20.0)), 20.0, rtol=1e-12)

    @pytest.mark.parametrize("name", WARPS)
    def test_the_function_has_the_median_of_y_and_less_spread(self, name):
        p = gaussian(name, calibration=CALIBRATION)
        np.testing.assert_array_equal(p.latent.quantile(0.5), p.quantile(0.5))
        assert np.all(p.latent.sd < p.sd) and p.latent.calibration is None
        # Monotone maps carry quantiles: the ends are the inverse of the warp at the quantiles of f.
        z = stats.norm(p.mean_z, p.latent_sd_z).interval(0.9)
        for end, expected in zip(p.latent.interval(0.9), z, strict=True):
            np.testing.assert_allclose(end, SCALER.inverse_mean(p.warp.inverse(expected)), rtol=1e-9)

    @pytest.mark.parametrize(("mean", "sd"), [([0.0, np.nan], 1.0), ([0.0, 0.0], [1.0, -1.0])])
    def test_what_is_no_distribution(self, mean, sd):
        with pytest.raises(ValueError, match="in row 1, so that there is no prediction; look for"):
            gaussian(mean=mean, sd=sd)


class TestRows:
    @pytest.mark.parametrize("p", [gaussian("log", calibration=CALIBRATION), mixture()], ids=["one", "three"])
    def test_rows_are_taken_as_from_an_array(self, p):
        y = np.array([4.0, 5.0, 6.0])
        for rows in (slice(1, None), np.array([True, False, True]), np.array([2, 0]), [1], np.s_[::-1]):
            some = p[rows]
            assert type(some) is type(p) and len(some) == len(p.mean[rows])
            np.testing.assert_allclose(some.mean, p.mean[rows])
            np.testing.assert_allclose(some.interval(0.8), np.array(p.interval(0.8))[:, rows])
            np.testing.assert_allclose(some.crps(y[rows]), p.crps(y)[rows])
        assert len(p[1]) == 1 and [float(one.mean[0]) for one in p] == pytest.approx(list(p.mean))

    def test_it_cannot_be_changed(self):
        with pytest.raises(FrozenInstanceError):
            gaussian().mean_z = MEANS
        with pytest.raises(FrozenInstanceError):
            mixture().weights = np.ones(3)

    def test_a_generator_goes_on_where_it_was(self):
        rng = np.random.default_rng(1)
        assert generator(rng) is rng
        p = gaussian()
        assert not np.array_equal(p.sample(2, rng), p.sample(2, rng))


class TestCalibration:
    @pytest.mark.parametrize("p", [gaussian("log"), mixture()], ids=["one", "three"])
    def test_it_changes_the_interval_and_nothing_else(self, p):
        c, y = replace(p, calibration=CALIBRATION), np.array([4.0, 5.0, 6.0])
        half = CALIBRATION.half_width(0.9)
        expected = p.quantile(stats.norm.cdf([-half, half])).T
        np.testing.assert_allclose(c.interval(0.9), expected, rtol=1e-9)
        assert not np.allclose(c.interval(0.9), p.interval(0.9))
        np.testing.assert_array_equal(c.quantile([0.05, 0.95]), p.quantile([0.05, 0.95]))
        for name in ("cdf", "log_density", "crps"):
            np.testing.assert_array_equal(getattr(c, name)(y), getattr(p, name)(y))

    @given(y=st.floats(1.0, 12.0), percent=st.integers(1, 98))
    def test_depth_is_the_smallest_level_whose_interval_holds(self, y, percent):
        lower, upper = gaussian().interval(percent / 100)
        held, depth = (lower <= y) & (y <= upper), gaussian().depth(y)
        clear = np.abs(depth - percent / 100) > 1e-9
        np.testing.assert_array_equal(held[clear], (depth <= percent / 100)[clear])

    @given(z=st.floats(-4, 4), percent=st.integers(1, 99), rows=st.integers(1, 199))
    def test_depth_is_exact_where_levels_are_shares_of_the_calibration_rows(self, z, percent, rows):
        calibration = ConformalCalibration.from_standard_scores(np.linspace(0.02, 3, rows))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = abs(z) <= calibration.half_width(percent / 100)
        assert held == (calibration.depth(z) <= percent / 100)

    def test_where_too_few_rows_were_held_out_the_interval_is_the_whole_line(self):
        few = ConformalCalibration.from_standard_scores(np.arange(5.0))
        with pytest.warns(UserWarning, match="infinite with 5 calibration rows"):
            lower, upper = gaussian(calibration=few).interval(0.95)
        assert np.all(lower == -np.inf) and np.all(upper == np.inf)

    def test_a_mixture_with_scores_beyond_its_digits_gets_no_end_there(self):
        far = ConformalCalibration.from_standard_scores(np.full(40, 20.0))
        assert np.all(mixture(calibration=far).interval(0.9)[1] == np.inf)

    @pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan])
    def test_levels_that_are_none(self, level):
        for p in (gaussian(), gaussian(calibration=CALIBRATION), mixture()):
            with pytest.raises(ValueError, match="strictly between 0 and 1"):
                p.interval(level)


class TestMixture:
    def test_against_the_sum_of_scipys_normals(self):
        m, y = mixture(), np.array([3.0, 5.5, 9.0])
        parts, weights = [in_scipy(part) for part in m.parts], np.array([1, 2, 5]) / 8
        pdf = sum(w * d.pdf(y) for w, d in zip(weights, parts, strict=True))
        cdf = sum(w * d.cdf(y) for w, d in zip(weights, parts, strict=True))
        mean = sum(w * d.mean() for w, d in zip(weights, parts, strict=True))
        second = sum(w * (d.var() + d.mean() ** 2) for w, d in zip(weights, parts, strict=True))
        np.testing.assert_allclose(m.log_density(y), np.log(pdf), rtol=1e-12)
        np.testing.assert_allclose(m.cdf(y), cdf, rtol=1e-12)
        np.testing.assert_allclose(m.mean, mean, rtol=1e-13)
        np.testing.assert_allclose(m.sd, np.sqrt(second - mean**2), rtol=1e-10)

    def test_crps_against_the_closed_form_of_mixed_normals(self):
        """sum w A(y - m, s^2) - sum sum w w' A(m - m', s^2 + s'^2) / 2 with A(m, s^2) = E|N(m, s^2)|."""
        m, y = mixture(), np.array([3.0, 5.5, 9.0])
        distance = lambda a, s: a * (2 * stats.norm.cdf(a / s) - 1) + 2 * s * stats.norm.pdf(a / s)  # noqa: E731
        parts = [(w, d.mean(), d.std()) for w, d in zip(m.weights, map(in_scipy, m.parts), strict=True)]
        expected = sum(w * distance(y - a, s) for w, a, s in parts)
        expected -= sum(w * v * distance(a - b, np.hypot(s, t)) for w, a, s in parts for v, b, t in parts) / 2
        np.testing.assert_allclose(m.crps(y), expected, rtol=1e-9)

    def test_crps_of_warped_and_of_distant_parts_is_the_integral(self):
        for m in (
            mixture(("log", "sinh-arcsinh", "none")),
            Mixture([gaussian(sd=0.01), gaussian(mean=MEANS + 2)], np.ones(2)),
        ):
            y = np.array([3.5, 5.3, 9.0])
            expected = [crps_by_integration(m, y[i], i) for i in range(3)]
            np.testing.assert_allclose(m.crps(y), expected, rtol=2e-6)

    @settings(max_examples=30)
    @given(
        shifts=st.lists(st.floats(-1, 1), min_size=1, max_size=4),
        levels=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=1, max_size=4),
        name=st.sampled_from(["none", "log", "sinh-arcsinh"]),
    )
    def test_probability_of_a_quantile_is_its_level(self, shifts, levels, name):
        m = Mixture([gaussian(name, MEANS / 2 + s, SDS) for s in shifts], np.ones(len(shifts)))
        np.testing.assert_allclose(m.cdf(m.quantile(levels)), np.tile(levels, (3, 1)), rtol=1e-9, atol=1e-13)

    def test_draws_share_their_part_across_rows(self):
        m = mixture(("log", "none", "none"))
        draws = m.sample(6000, random_state=0)
        for probabilities in m.cdf(draws):
            assert stats.kstest(probabilities, "uniform").pvalue > 1e-3
        apart = Mixture([gaussian(mean=MEANS - 9), gaussian(mean=MEANS + 9)], np.ones(2)).sample(200)
        assert np.all((apart > 5).all(0) | (apart < 5).all(0)) and 60 < (apart[0] > 5).sum() < 140

    def test_one_part_is_that_part(self):
        p = gaussian("log")
        m, y = Mixture([p], np.array([3.0])), np.array([4.0, 5.0, 6.0])
        np.testing.assert_allclose(m.interval(0.9), p.interval(0.9), rtol=1e-12)
        np.testing.assert_allclose(m.crps(y), p.crps(y), rtol=1e-12)
        np.testing.assert_allclose(m.latent.sd, p.latent.sd, rtol=1e-12)

    def test_a_target_that_one_part_excludes(self):
        m = Mixture([gaussian("log"), gaussian()], np.ones(2))
        expected = gaussian().log_density(np.full(3, -1.0)) - math.log(2)
        np.testing.assert_allclose(m.log_density(np.full(3, -1.0)), expected, rtol=1e-13)

    @pytest.mark.parametrize(
        ("parts", "weights", "says"),
        [
            ([], [], "at least one part"),
            ([gaussian()], [1.0, 1.0], "one weight for each"),
            ([gaussian(), gaussian()], [1.0, 0.0], "positive weight"),
            ([gaussian(), gaussian()[:2]], [1.0, 1.0], r"\[3, 2\] rows"),
        ],
    )
    def test_what_makes_no_mixture(self, parts, weights, says):
        with pytest.raises(ValueError, match=says):
            Mixture(parts, np.array(weights))


def table(n, seed, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.exp(np.sin(X[:, 0]) + noise * rng.normal(size=n))


def fit(**changes):
    given = {"approximation": "exact", "max_iter": 15, "random_state": 0, "target_transform": "log"} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WideGPRegressor.plain(**given).fit(*table(80, 0))


@pytest.fixture(scope="module")
def model():
    return fit()


class TestEstimator:
    def test_the_methods_are_views_of_one_distribution(self, model):
        X, y = table(6, 1)
        p = model.predict_distribution(X)
        assert isinstance(p, Predictive) and len(p) == 6
        np.testing.assert_array_equal(model.predict(X, return_std=True), (p.mean, p.sd))
        np.testing.assert_array_equal(model.predict_quantiles(X, [0.2, 0.4]), p.quantile([0.2, 0.4]))
        np.testing.assert_array_equal(model.predict_interval(X, 0.7), p.interval(0.7))
        np.testing.assert_array_equal(model.predict_interval(X, 0.7, latent=True), p.latent.interval(0.7))
        np.testing.assert_array_equal(model.log_density(X, y), p.log_density(y))

    def test_leaving_out_the_noise_changes_the_spread_and_not_the_mean(self, model):
        X, _ = table(6, 1)
        (mean, sd), (same, less) = (model.predict(X, True, latent=latent) for latent in (False, True))
        np.testing.assert_array_equal(mean, same)
        np.testing.assert_array_equal(model.predict(X, latent=True), mean)
        assert np.all(less < sd)
        # A lognormal's mean exceeds its median by half the whole variance, noise included.
        median, high = model.predict_quantiles(X, [0.5, stats.norm.cdf(1.0)]).T
        np.testing.assert_allclose(same, median * np.exp(np.log(high / median) ** 2 / 2), rtol=1e-9)

    def test_nothing_is_there_before_the_fit(self):
        for name in ("params_", "kernel_", "anchors_", "result_", "calibration_", "input_importance_"):
            assert not hasattr(WideGPRegressor.plain(), name)
        with pytest.raises(NotFittedError):
            WideGPRegressor.plain().predict_distribution(np.ones((1, 2)))

    def test_importance_is_there_with_ard_alone(self, model):
        assert not hasattr(model, "input_importance_")
        assert fit(ard=True, max_iter=2).input_importance_.sum() == pytest.approx(1)

    def test_the_fitted_model_stands_alone(self, model):
        X, _ = table(6, 1)
        again = pickle.loads(pickle.dumps(model.fitted_))
        np.testing.assert_array_equal(again.predictive(X).mean, model.predict(X))
        np.testing.assert_array_equal(again.sample(X, 3, 5), model.sample_y(X, 3, 5))
        assert "predictor" not in again.__getstate__()
        assert not hasattr(clone(model), "fitted_")

    def test_other_neighbours_need_no_other_fit(self):
        near = fit(approximation="vecchia", neighbors=5, predict_neighbors=10, predict_cells=False).fitted_
        X, _ = table(6, 1)
        found, K, noise = near.with_neighbors(3).predictive(X), near.kernel, near.params["sigma_eps2"]
        x = near.inputs.transform(X)
        for i, nearest in enumerate(near.rows.nearest(x)[:, :3]):
            rows, own = near.rows.X[nearest], x[i : i + 1]
            weights = np.linalg.solve(K(rows) + noise * np.eye(3), K(rows, own))[:, 0]
            variance = K(own)[0, 0] - weights @ K(rows, own)[:, 0]
            assert found.mean_z[i] == pytest.approx(weights @ near.rows.y[nearest], rel=1e-8)
            assert found.sd_z[i] ** 2 == pytest.approx(variance + noise, rel=1e-8)
            assert found.latent_sd_z[i] ** 2 == pytest.approx(variance, rel=1e-6)
        with pytest.raises(ValueError, match="at least 1"):
            near.with_neighbors(0)

    def test_a_note_says_that_intervals_of_the_usual_level_are_infinite(self):
        X, y = table(60, 0)
        settings = {"approximation": "exact", "max_iter": 2, "random_state": 0, "conformal": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            few, enough = (WideGPRegressor.plain(**settings).fit(X[:n], y[:n]) for n in (30, 57))
        assert few.calibration_.n_rows == 10 and enough.calibration_.n_rows == 19
        (note,) = few.result_.notes
        assert note.startswith("Intervals of level 0.95 are infinite with 10 calibration rows; calibrate on")
        assert enough.result_.notes == () and np.all(np.isfinite(enough.predict_interval(X)))


class TestRegistry:
    def test_a_class_is_found_by_name_and_only_if_it_opened_itself(self):
        @registry.saveable
        @dataclass(frozen=True)
        class OnlyInThisTest:
            x: float = 0.0

        assert registry.saved_class("OnlyInThisTest") is OnlyInThisTest
        assert registry.saveable(OnlyInThisTest) is OnlyInThisTest
        assert registry.is_saveable(OnlyInThisTest())

        class Below(OnlyInThisTest):
            pass

        assert not registry.is_saveable(Below())
        Below.__name__ = "OnlyInThisTest"
        with pytest.raises(ValueError, match="already be saved"):
            registry.saveable(Below)
        with pytest.raises(TypeError, match="not a dataclass"):
            registry.saveable(int)
        with pytest.raises(KeyError):
            registry.saved_class("Popen")
