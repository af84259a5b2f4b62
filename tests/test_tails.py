"""Tails learned from left-out rows: against SciPy's normals, quadrature, and simulated rows of known law."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import kstest, norm

from widegp import WideGPRegressor, load
from widegp.data.preprocessing import TargetScaler
from widegp.fitted_warp import FittedWarp
from widegp.predictive import Tailed, WarpedGaussian
from widegp.tails import NORMAL, Tails, judged_tails, tails_together

LAW = Tails(np.array([0.7, 0.25, 0.05]), np.array([0.4, 1.5, 6.0]))


def density(t: float) -> float:
    return sum(w * norm.pdf(t, scale=c) for w, c in zip(LAW.weights, LAW.factors, strict=True))


def tailed(name: str = "none", q: int = 5) -> Tailed:
    rng = np.random.default_rng(3)
    warp = FittedWarp.fit(rng.normal(size=200), name, np.zeros(0) if name == "none" else np.array([0.3, 0.8]))
    mean, sd = rng.normal(size=q), rng.uniform(0.2, 0.9, q)
    return Tailed(WarpedGaussian(mean, sd, sd / 2, TargetScaler(2.0, 3.0), warp), LAW)


class TestLaw:
    def test_density_and_sd_are_those_of_the_sum_of_normals(self):
        t = np.linspace(-30, 30, 61)
        np.testing.assert_allclose(np.exp(LAW.log_density(t)), [density(v) for v in t], rtol=1e-12)
        assert LAW.sd == pytest.approx(np.sqrt(quad(lambda t: t * t * density(t), -80, 80, points=[0])[0]))

    @given(st.floats(-30, 30))
    def test_probabilities_of_the_normal_score_are_those_of_the_law(self, t):
        beyond = sum(w * norm.sf(abs(t) / c) for w, c in zip(LAW.weights, LAW.factors, strict=True))
        assert norm.sf(abs(LAW.to_normal(t))) == pytest.approx(beyond, rel=1e-9)

    @given(st.floats(-30, 30))
    def test_the_way_back(self, u):
        assert LAW.to_normal(LAW.from_normal(u)) == pytest.approx(u, rel=1e-12, abs=1e-12)


class TestFit:
    def test_a_normal_needs_no_law_of_its_own(self):
        """Each of ten seeds; a further part must be likelier by two standard errors, so one in 40 errs."""
        found = [judged_tails(np.random.default_rng(seed).normal(size=1000)).tails for seed in range(10)]
        assert sum(law is not None for law in found) <= 1

    def test_few_rows_say_nothing(self):
        assert judged_tails(5 * np.random.default_rng(0).normal(size=199)).tails is None

    def test_a_known_law_is_found(self):
        rng = np.random.default_rng(0)
        scores = LAW.from_normal(rng.normal(size=20_000))
        found = judged_tails(scores).tails
        levels = norm.ppf([0.6, 0.75, 0.9, 0.975, 0.995])
        np.testing.assert_allclose(found.from_normal(levels), LAW.from_normal(levels), rtol=0.08)

    def test_a_model_of_half_the_width_is_put_right(self):
        found = judged_tails(2 * np.random.default_rng(0).normal(size=1000)).tails
        assert found.sd == pytest.approx(2, rel=0.1)


class TestTogether:
    """Two models of unlike sizes whose errors are independent: their average is wider than its errors."""

    @pytest.fixture
    def models(self):
        rng = np.random.default_rng(0)
        errors, sds = rng.normal(size=(2, 4000)) * [[1.0], [2.0]], np.full((2, 4000), [[1.0], [2.0]])
        return errors, sds

    @staticmethod
    def log_density(errors: np.ndarray, sds: np.ndarray, laws: list[Tails]) -> np.ndarray:
        parts = [law.log_density(e / s) - np.log(s) for law, e, s in zip(laws, errors, sds, strict=True)]
        return np.logaddexp(*parts) - np.log(2)

    def test_no_other_factors_are_likelier(self, models):
        errors, sds = models
        laws = tails_together(errors / sds, -np.log(sds), [NORMAL, NORMAL])
        best = self.log_density(errors, sds, laws).mean()
        grid = itertools.product(np.geomspace(0.2, 2, 25), repeat=2)
        others = [[Tails(np.ones(1), np.array([c])) for c in pair] for pair in grid]
        assert max(self.log_density(errors, sds, laws).mean() for laws in others) <= best + 1e-5
        assert self.log_density(errors, sds, [NORMAL, NORMAL]).mean() < best - 0.01

    def test_parts_belong_to_their_model(self, models):
        errors, sds = models
        laws = tails_together(errors / sds, -np.log(sds), [LAW, NORMAL])
        assert [len(law.weights) for law in laws] == [3, 1]
        assert [law.weights.sum() for law in laws] == pytest.approx([1, 1])

    def test_few_rows_leave_the_laws_as_they_are(self, models):
        errors, sds = (part[:, :199] for part in models)
        assert tails_together(errors / sds, -np.log(sds), [LAW, NORMAL]) == [LAW, NORMAL]


class TestPredictive:
    @pytest.mark.parametrize("name", ["none", "sinh-arcsinh"])
    def test_quantiles_probabilities_and_scores_agree(self, name):
        p = tailed(name)
        levels = np.array([0.001, 0.1, 0.5, 0.9, 0.9999])
        at = p.quantile(levels)
        np.testing.assert_allclose(p.cdf(at), np.tile(levels, (len(p), 1)), rtol=1e-9)
        np.testing.assert_allclose(p.normal_score(at[:, 3]), norm.ppf(0.9), rtol=1e-9)
        np.testing.assert_allclose(p.quantile(levels), p._mixture.quantile(levels), rtol=1e-9)

    @pytest.mark.parametrize("name", ["none", "sinh-arcsinh"])
    def test_moments_and_crps_by_integration(self, name):
        p, row, y = tailed(name), 1, 2.5

        def f(t: float) -> float:
            return float(np.exp(p.log_density(np.full(len(p), t))[row]))

        ends = p.quantile([1e-9, 1e-3, 0.5, 1 - 1e-3, 1 - 1e-9])[row]
        mean = sum(quad(lambda t: t * f(t), a, b)[0] for a, b in itertools.pairwise(ends))
        assert p.mean[row] == pytest.approx(mean, rel=1e-5)

        def gap(t: float) -> float:
            return float((p.cdf(np.full(len(p), t))[row] - (t >= y)) ** 2)

        knots = np.sort([*ends, y])
        crps = sum(quad(gap, a, b)[0] for a, b in itertools.pairwise(knots))
        assert p.crps(np.full(len(p), y))[row] == pytest.approx(crps, rel=1e-5)

    def test_draws_have_the_law(self):
        p = tailed()
        draws = p.sample(4000, 0)
        assert kstest(p.cdf(draws)[0], "uniform").pvalue > 1e-3

    def test_the_function_itself_keeps_its_gaussian(self):
        p = tailed()
        np.testing.assert_array_equal(p.latent.sd, p.gaussian.latent.sd)
        np.testing.assert_array_equal(p[2:4].quantile([0.3]), p.quantile([0.3])[2:4])


@pytest.fixture(scope="module")
def fitted():
    """y = sin 2 x1 + eps; eps of sd 0.1, and of 0.6 in a fifth of the rows, which no input tells."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (1000, 2))
    y = np.sin(2 * X[:, 0]) + np.where(rng.random(1000) < 0.8, 0.1, 0.6) * rng.normal(size=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"metric": "iso", "scale_inputs": "standard", "target_transform": None}
        return WideGPRegressor(random_state=0, **settings).fit(X[:600], y[:600]), X[600:], y[600:]


class TestFitted:
    def test_half_and_nearly_all_intervals_hold_what_they_say(self, fitted):
        model, X, y = fitted
        own = model.predict_distribution(X)
        for level, sd in ((0.5, 0.025), (0.8, 0.02), (0.95, 0.011)):
            lower, upper = own.interval(level)
            assert np.mean((lower <= y) & (y <= upper)) == pytest.approx(level, abs=3 * sd)
        assert np.mean(own.log_density(y)) > np.mean(own.gaussian.log_density(y)) + 0.2
        assert "unlike a Gaussian" in " ".join(model.result_.notes)

    def test_joint_draws_have_the_marginals_of_predict(self, fitted):
        model, X, _ = fitted
        draws = model.sample_y(X[:20], 4000)
        shares = model.predict_distribution(X[:20]).cdf(draws)
        assert min(kstest(row, "uniform").pvalue for row in shares) > 1e-4

    def test_files_keep_them(self, fitted, tmp_path):
        model, X, y = fitted
        model.save(tmp_path / "m.widegp")
        again = load(tmp_path / "m.widegp")
        np.testing.assert_array_equal(again.predict_interval(X, 0.5), model.predict_interval(X, 0.5))

    @pytest.mark.slow
    def test_the_plain_model_and_noise_as_asked_have_none(self, fitted):
        _, X, y = fitted
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = WideGPRegressor(noise="constant", metric="iso", random_state=0)
            for model in (WideGPRegressor.plain(random_state=0), asked):
                assert model.fit(X, y).fitted_.tails is None


def test_scores_that_are_wider_widen_the_law_and_narrower_ones_do_not():
    rng = np.random.default_rng(3)
    t = rng.choice(LAW.factors, 20_000, p=LAW.weights) * rng.standard_normal(20_000)
    assert LAW.widening(1.3 * t) == pytest.approx(1.3, rel=0.03)
    assert LAW.widening(0.8 * t) == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_allclose(LAW.widened(1.3).log_density(t), LAW.log_density(t / 1.3) - np.log(1.3))


def test_rows_unlike_any_seen_cost_few_nats_and_the_others_hardly_any():
    law = Tails(np.array([0.7, 0.3]), np.array([0.5, 1.5]))
    wider = law.with_strays(498)
    # The others lose the share of strays, 1 / 500; far out there is nothing but these.
    near, far, width = np.linspace(-2, 2, 9), 30.0, 5 * law.sd
    assert np.all(law.log_density(near) - wider.log_density(near) < 1 / 499)
    expected = norm.logpdf(far, 0, width) + np.log(1 / 500)
    np.testing.assert_allclose(wider.log_density(far), expected, rtol=1e-9)
    assert law.log_density(far) < expected - 100
    np.testing.assert_allclose(wider.sd**2, law.sd**2 * (1 + 24 / 500), rtol=1e-12)
    np.testing.assert_allclose(wider.weights.sum(), 1, rtol=1e-15)
