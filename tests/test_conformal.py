"""Split-conformal levels: exact ranks, exact coverage by simulation, honest infinities."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from widegp import WideGPRegressor, load, metrics
from widegp.conformal import ConformalCalibration, hold_out, rank, rows_needed
from widegp.fitted_warp import FittedWarp


class TestRank:
    @given(n_rows=st.integers(0, 10_000), percent=st.integers(1, 99))
    def test_is_the_smallest_integer_that_reaches_the_level_in_exact_arithmetic(self, n_rows, percent):
        k = rank(n_rows, percent / 100)
        assert 100 * (k - 1) < percent * (n_rows + 1) <= 100 * k

    def test_floating_point_does_not_add_a_rank(self):
        assert 100 * 0.55 > 55 and rank(99, 0.55) == 55

    @given(percent=st.integers(1, 999))
    def test_rows_needed_is_the_first_count_with_a_finite_interval(self, percent):
        level = percent / 1000
        needed = rows_needed(level)
        assert rank(needed, level) <= needed and rank(needed - 1, level) > needed - 1

    @pytest.mark.parametrize("level", [0.0, 1.0, -0.2, 1.5, math.nan])
    def test_levels_outside_the_unit_interval_are_refused(self, level):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            rank(10, level)


def naive_levels(pit, level):
    """1/2 -+ s_(k) for the scores s = |p - 1/2|."""
    s = sorted(abs(p - 0.5) for p in pit)[math.ceil((len(pit) + 1) * level) - 1]
    return 0.5 - s, 0.5 + s


class TestLevels:
    @given(
        pit=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=40, max_size=60),
        level=st.sampled_from([0.5, 0.8, 0.95]),
    )
    def test_are_those_of_the_distance_from_the_median_in_probability(self, pit, level):
        got = ConformalCalibration.fit(pit).levels(level)
        np.testing.assert_allclose(got, naive_levels(pit, level), rtol=1e-9, atol=1e-12)

    def test_a_calibrated_model_keeps_its_levels(self):
        pit = (np.arange(999) + 1) / 1000
        np.testing.assert_allclose(ConformalCalibration.fit(pit).levels(0.9), (0.05, 0.95), atol=1e-3)

    @given(pit=st.lists(st.floats(0, 1), min_size=30, max_size=60))
    def test_widen_with_the_level(self, pit):
        widths = [ConformalCalibration.fit(pit).half_width(level) for level in (0.1, 0.5, 0.9, 0.95)]
        assert widths == sorted(widths)

    def test_far_out_scores_keep_their_size_where_probabilities_round_to_one(self):
        z = np.concatenate([np.zeros(18), [20.0]])
        calibration = ConformalCalibration.from_standard_scores(z)
        assert calibration.half_width(0.95) == 20.0
        assert ConformalCalibration.fit(stats.norm.cdf(z)).half_width(0.95) == math.inf


class TestFewRows:
    @pytest.mark.parametrize("n_rows", [0, 1, 18])
    def test_too_few_rows_give_the_whole_line_and_say_so(self, n_rows):
        calibration = ConformalCalibration.fit(np.full(n_rows, 0.4))
        with pytest.warns(
            UserWarning, match=f"infinite with {n_rows} calibration rows; calibrate on at least 19"
        ):
            assert calibration.levels(0.95) == (0.0, 1.0)
        assert calibration.coverage(0.95) == 1.0

    def test_the_first_sufficient_count_takes_the_largest_score(self):
        pit = np.linspace(0.01, 0.5, 19)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            levels = ConformalCalibration.fit(pit).levels(0.95)
        np.testing.assert_allclose(levels, (0.01, 0.99), rtol=1e-9)

    def test_an_observation_beyond_all_probability_makes_the_interval_infinite(self):
        pit = np.concatenate([np.linspace(0.1, 0.9, 18), [1.0]])
        assert ConformalCalibration.fit(pit).levels(0.95) == (0.0, 1.0)


class TestCoverage:
    """A predictive N(0, 1) of targets that are N(0.3, 2^2): wrong in location and in noise."""

    location, spread = 0.3, 2.0

    def given_calibration(self, n_rows, level, repetitions, seed=0):
        """Coverage of the interval, exactly, for each of many calibration sets."""
        rng = np.random.default_rng(seed)
        truth = stats.norm(self.location, self.spread)
        levels = np.array([
            ConformalCalibration.fit(stats.norm.cdf(truth.rvs(n_rows, random_state=rng))).levels(level)
            for _ in range(repetitions)
        ])  # fmt: skip
        lower, upper = ndtri(levels).T
        return truth.cdf(upper) - truth.cdf(lower)

    @pytest.mark.parametrize("n_rows", [19, 37, 200])
    @pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
    def test_mean_coverage_lies_between_the_level_and_one_rank_above(self, n_rows, level):
        covered = self.given_calibration(n_rows, level, 1500)
        error = 4 * covered.std() / math.sqrt(len(covered))
        exact = math.ceil(round((n_rows + 1) * level, 9)) / (n_rows + 1)
        assert abs(covered.mean() - exact) < error
        assert level - error < covered.mean() < level + 1 / (n_rows + 1) + error
        assert error < 0.02

    def test_coverage_given_the_calibration_rows_is_a_beta_draw(self):
        covered = self.given_calibration(99, 0.9, 1500)
        assert stats.kstest(covered, stats.beta(90, 10).cdf).pvalue > 0.001

    def test_the_model_alone_does_not_cover(self):
        truth = stats.norm(self.location, self.spread)
        assert truth.cdf(1.96) - truth.cdf(-1.96) < 0.7

    def test_ties_cover_at_least_as_much(self):
        rng = np.random.default_rng(1)
        hits = []
        for _ in range(2000):
            pit = rng.integers(1, 6, size=30) / 6
            lower, upper = ConformalCalibration.fit(pit[:29]).levels(0.8)
            hits.append(lower - 1e-12 <= pit[29] <= upper + 1e-12)
        assert np.mean(hits) > 0.8 - 4 * math.sqrt(0.16 / 2000)

    def test_intervals_through_a_warp_cover_an_asymmetric_target(self):
        """Log-normal predictives of log-normal targets with three times the noise."""
        rng = np.random.default_rng(2)
        warp = FittedWarp("log")
        covered = []
        for _ in range(400):
            mean = rng.normal(size=80)
            y = np.exp(mean + 0.3 * rng.standard_t(4, size=80))
            z = (warp.forward(y) - mean) / 0.1
            # Up to 20 sd away, where levels would round to 1.
            q = ConformalCalibration.from_standard_scores(z[:59]).half_width(0.9)
            lower, upper = (warp.inverse(mean[59:] + sign * q * 0.1) for sign in (-1, 1))
            covered.append(np.mean((lower <= y[59:]) & (y[59:] <= upper)))
            assert np.all(lower > 0)
        error = 4 * np.std(covered) / math.sqrt(len(covered))
        assert 0.9 - error < np.mean(covered) < 0.9 + 1 / 60 + error


class TestPersistence:
    @given(st.lists(st.floats(0, 1), max_size=30))
    def test_json_and_back_changes_no_bit(self, pit):
        before = ConformalCalibration.fit(pit)
        after = ConformalCalibration.from_dict(json.loads(json.dumps(before.to_dict(), allow_nan=False)))
        np.testing.assert_array_equal(after.scores, before.scores)

    @pytest.mark.parametrize(
        ("pit", "message"),
        [
            ([0.1, math.nan], "pit is NaN in row 1"),
            ([0.1, 0.2, 1.2], "pit is 1.2 in row 2"),
            ([[0.1]], r"\(1, 1\)"),
        ],
    )
    def test_bad_probabilities_are_named(self, pit, message):
        with pytest.raises(ValueError, match=message):
            ConformalCalibration.fit(pit)


class TestHoldOut:
    @given(st.integers(1, 60_000), st.integers(0, 5))
    def test_parts_the_rows(self, n_rows, seed):
        kept, held = hold_out(n_rows, seed)
        np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), np.arange(n_rows))
        assert len(kept) >= 2 * n_rows / 3 and len(held) <= 2000

    @pytest.mark.parametrize(("n_rows", "count"), [(2, 0), (60, 20), (300, 99), (5000, 500), (10**5, 2000)])
    def test_counts(self, n_rows, count):
        assert len(hold_out(n_rows, 0)[1]) == count

    def test_rows_are_drawn_at_random_and_again_the_same(self):
        assert hold_out(300, 0)[1].tolist() == hold_out(300, 0)[1].tolist() != hold_out(300, 1)[1].tolist()
        counts = np.bincount(np.concatenate([hold_out(30, seed)[1] for seed in range(600)]), minlength=30)
        assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.skipif(
    "conformal" not in WideGPRegressor.plain().get_params(), reason="the regressor has no conformal="
)
class TestRegressor:
    def table(self, n, seed):
        """Heavy-tailed noise whose size depends on x: no Gaussian model with one nugget is right."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 2))
        return X, np.sin(X[:, 0]) + (0.1 + 0.4 * (X[:, 1] > 0)) * rng.standard_t(2.5, size=n)

    def model(self, **changes):
        settings = {"approximation": "exact", "max_iter": 15, "random_state": 0, "conformal": True}
        return WideGPRegressor.plain(**(settings | changes))

    def fitted(self, n=300, seed=0, **changes):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.model(**changes).fit(*self.table(n, seed))

    @pytest.mark.slow
    def test_covers_what_it_says_on_average_although_the_noise_is_wrong(self):
        # Every start at wrong fixed parameters: the fit must not be what makes the coverage right.
        wrong = {"start": {"sigma_u2": 0.5, "sigma_eps2": 1e-3}, "max_iter": 0}
        covered = {True: [], False: []}
        for seed in range(30):
            X_new, y_new = self.table(200, 1000 + seed)
            for conformal, shares in covered.items():
                model = self.fitted(90, seed, conformal=conformal, **wrong)
                shares.append(metrics.coverage(y_new, *model.predict_interval(X_new, 0.9)))
        exact = 28 / 31  # 30 of 90 rows are held out
        error = 4 * np.std(covered[True]) / math.sqrt(30)
        assert abs(np.mean(covered[True]) - exact) < error < 0.05
        assert np.mean(covered[False]) < 0.85

    def test_intervals_are_the_quantiles_at_the_calibrated_levels(self):
        model = self.fitted(target_transform="sinh-arcsinh")
        assert model.calibration_.n_rows == 99
        X, _ = self.table(20, 1)
        expected = model.predict_quantiles(X, model.calibration_.levels(0.9))
        np.testing.assert_allclose(np.transpose(model.predict_interval(X, 0.9)), expected, rtol=1e-8)

    def test_the_latent_interval_stays_the_models_own(self):
        model = self.fitted()
        X, _ = self.table(20, 1)
        expected = model.predict_quantiles(X, [0.05, 0.95], latent=True)
        np.testing.assert_allclose(np.transpose(model.predict_interval(X, 0.9, latent=True)), expected)

    def test_few_rows_give_infinite_intervals_and_a_warning(self):
        model = self.fitted(30)
        with pytest.warns(UserWarning, match="infinite with 10 calibration rows"):
            lower, upper = model.predict_interval(self.table(3, 1)[0], 0.95)
        assert np.all(lower == -math.inf) and np.all(upper == math.inf)

    def test_saved_models_keep_their_calibration(self, tmp_path):
        model, (X, _) = self.fitted(), self.table(20, 1)
        model.save(tmp_path / "model")
        np.testing.assert_array_equal(load(tmp_path / "model").predict_interval(X), model.predict_interval(X))

    def test_frames_with_names_do_not_warn_while_fitting(self):
        pandas = pytest.importorskip("pandas")
        X, y = self.table(120, 0)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*feature names.*")
            self.model().fit(pandas.DataFrame(X, columns=["a", "b"]), y)
