"""Target warps against SciPy's transforms, finite differences, integrals and Monte Carlo."""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from widegp import metrics
from widegp.data.preprocessing import TargetScaler
from widegp.fitted_warp import FittedWarp
from widegp.predictive import Mixture, Tailed, WarpedGaussian
from widegp.tails import Tails
from widegp.warps import NAMES, Warp, candidates, make_warp, profile_start, standardised

RNG = np.random.default_rng(0)
RAW = RNG.gamma(2.0, 3.0, size=60) + 0.05  # positive and skewed
OFFSET, SCALE = RAW.mean(), RAW.std()
Y = (RAW - OFFSET) / SCALE

TAILS = Tails(np.array([0.7, 0.3]), np.array([0.6, 1.6]))

PSI = {
    "none": [()],
    "sqrt": [()],
    "log": [()],
    "yeo-johnson": [(-1.5,), (0.0,), (1e-9,), (0.6,), (1.0,), (2.0,), (3.7,)],
    "box-cox": [(-0.8,), (0.0,), (-1e-9,), (0.5,), (1.0,), (2.6,)],
    "sinh-arcsinh": [(0.0, 1.0), (-0.7, 0.5), (1.3, 2.2)],
}
CASES = [(name, psi) for name, values in PSI.items() for psi in values]
# Here an end of the range of g lies within a few sd_z of the training rows.
CLIPPED = [("yeo-johnson", (-1.5,)), ("yeo-johnson", (3.7,)), ("box-cox", (-0.8,)), ("box-cox", (2.6,))]
FREE = [(name, psi) for name, psi in CASES if psi]
each_case = pytest.mark.parametrize(("name", "psi"), CASES)
each_free = pytest.mark.parametrize(("name", "psi"), FREE)


def fitted(name: str, psi: tuple[float, ...]) -> FittedWarp:
    return FittedWarp.fit(Y, name, psi, OFFSET, SCALE)


def family(name: str) -> Warp:
    return make_warp(name, OFFSET, SCALE)


def central(f, psi, step: float = 1e-5) -> np.ndarray:
    """df/dpsi by central differences, last axis over psi."""
    shifts = step * np.eye(len(psi))
    return np.stack([(f(psi + h) - f(psi - h)) / (2 * step) for h in shifts], axis=-1)


@pytest.mark.parametrize("lam", [-2.0, -0.5, 0.0, 0.7, 1.0, 2.0, 3.5])
def test_powers_are_scipys(lam):
    psi = np.array([lam])
    np.testing.assert_allclose(make_warp("box-cox").forward(RAW, psi), special.boxcox(RAW, lam), rtol=1e-12)
    np.testing.assert_allclose(make_warp("yeo-johnson").forward(Y, psi), stats.yeojohnson(Y, lam), rtol=1e-12)


def test_sqrt_and_log_are_themselves():
    z = FittedWarp.fit(Y, "sqrt", (), OFFSET, SCALE).forward(Y)
    np.testing.assert_allclose(z, stats.zscore(np.sqrt(RAW)), atol=1e-12)
    z = FittedWarp.fit(Y, "log", (), OFFSET, SCALE).forward(Y)
    np.testing.assert_allclose(z, stats.zscore(np.log(RAW)), atol=1e-12)


@pytest.mark.parametrize("unit", [1e-80, 1.0, 1e80])
def test_the_unit_of_the_target_changes_no_z(unit):
    z = FittedWarp.fit(Y, "box-cox", (2.5,), OFFSET * unit, SCALE * unit).forward(Y)
    np.testing.assert_allclose(z, stats.zscore(special.boxcox(RAW, 2.5)), atol=1e-10)


def test_tiny_lambda_is_smooth_through_zero():
    mp.mp.dps = 40
    y, psi = np.array([-0.9, 1e-3, 2.0, 30.0]), np.array([3e-13])
    exact = []
    for v in y:
        level, lam = mp.log1p(abs(mp.mpf(float(v)))), mp.mpf(3e-13)
        lam, sign = (2 - lam, -1) if v < 0 else (lam, 1)
        slope = (lam * level * mp.exp(lam * level) - mp.expm1(lam * level)) / lam**2
        exact.append([float(sign * mp.expm1(lam * level) / lam), float(slope)])
    warp = make_warp("yeo-johnson")
    np.testing.assert_allclose(warp.forward(y, psi), np.array(exact)[:, 0], rtol=1e-14)
    np.testing.assert_allclose(warp.terms(y, psi).d_value[:, 0], np.array(exact)[:, 1], rtol=1e-13)


@each_case
def test_log_jacobian_is_the_log_slope(name, psi):
    warp, psi, step = family(name), np.array(psi), 1e-6
    slope = (warp.forward(Y + step, psi) - warp.forward(Y - step, psi)) / (2 * step)
    np.testing.assert_allclose(warp.terms(Y, psi).log_jacobian, np.log(slope), atol=1e-5)


@each_free
def test_derivatives_by_psi(name, psi):
    warp, psi = family(name), np.array(psi)
    for name in ("value", "log_jacobian"):
        numeric = central(lambda p, name=name: getattr(warp.terms(Y, p), name), psi)
        found = getattr(warp.terms(Y, psi), f"d_{name}")
        assert found.shape == (Y.size, psi.size)
        np.testing.assert_allclose(found, numeric, rtol=1e-6, atol=1e-8)


@each_free
def test_derivatives_go_through_mean_and_sd(name, psi):
    warp, psi = family(name), np.array(psi)
    at, mu, s = standardised(warp, Y, psi)
    g = warp.forward(Y, psi)
    assert (mu, s) == (pytest.approx(g.mean()), pytest.approx(g.std()))
    np.testing.assert_allclose((at.value.mean(), at.value.std()), (0, 1), atol=1e-12)
    numeric = central(lambda p: standardised(warp, Y, p)[0].value, psi)
    np.testing.assert_allclose(at.d_value, numeric, rtol=1e-6, atol=1e-7)
    numeric = central(lambda p: standardised(warp, Y, p)[0].log_jacobian, psi)
    np.testing.assert_allclose(at.d_log_jacobian, numeric, rtol=1e-6, atol=1e-7)


def test_the_gradient_recipe_of_a_correlated_likelihood():
    noise = RNG.normal(size=(Y.size, Y.size))
    precision = np.linalg.inv(np.eye(Y.size) + noise @ noise.T / Y.size)
    warp, psi = family("sinh-arcsinh"), np.array([0.4, 0.8])

    def log_density(p):
        at = standardised(warp, Y, p)[0]
        return -0.5 * at.value @ precision @ at.value + at.log_jacobian.sum()

    at = standardised(warp, Y, psi)[0]
    gradient = at.d_value.T @ (-precision @ at.value) + at.d_log_jacobian.sum(axis=0)
    np.testing.assert_allclose(gradient, central(log_density, psi), rtol=1e-6)


names = st.sampled_from(NAMES)
targets = st.floats(-0.9, 6.0)
unit = st.floats(0.0, 1.0)


def any_psi(name: str, where: tuple[float, float]) -> np.ndarray:
    bounds = make_warp(name).bounds
    return np.array([low + u * (high - low) for (low, high), u in zip(bounds, where, strict=False)])


@settings(max_examples=150, deadline=None)
@given(name=names, where=st.tuples(unit, unit), y=targets)
def test_inverse_undoes_forward(name, where, y):
    warp = FittedWarp.fit(Y, name, any_psi(name, where), OFFSET, SCALE)
    if OFFSET + SCALE * y > 0.01:
        assert warp.inverse(warp.forward(y)) == pytest.approx(y, rel=1e-7, abs=1e-7)


@settings(max_examples=100, deadline=None)
@given(name=names, where=st.tuples(unit, unit))
def test_forward_and_inverse_increase(name, where):
    warp = FittedWarp.fit(Y, name, any_psi(name, where), OFFSET, SCALE)
    low = -0.99 * OFFSET / SCALE
    assert np.all(np.diff(warp.forward(np.linspace(low, 6, 200))) > 0)
    assert np.all(np.diff(warp.inverse(np.linspace(-40, 40, 200))) >= 0)


@settings(max_examples=100, deadline=None)
@given(name=names, where=st.tuples(unit, unit), mean=st.floats(-30, 30), sd=st.floats(0, 30))
def test_predictions_are_always_finite(name, where, mean, sd):
    warp = FittedWarp.fit(Y, name, any_psi(name, where), OFFSET, SCALE)
    mean, sd = np.array([mean]), np.array([sd])
    assert np.all(np.isfinite(warp.inverse([-1e300, -50.0, 50.0, 1e300])))
    assert np.all(np.isfinite(warp.moments(mean, sd)))
    assert np.all(np.isfinite(warp.quantile(mean, sd, [0.001, 0.5, 0.999])))
    assert np.all(np.isfinite(warp.crps(Y[:1], mean, sd)))
    p = warp.cdf([-1e6, -3.0, 0.0, 1e6], mean, np.maximum(sd, 0.1))
    assert np.all((p >= 0) & (p <= 1)) and np.all(np.diff(p) >= 0)


@each_case
def test_density_integrates_to_the_cdf(name, psi):
    warp, mean, sd = fitted(name, psi), 0.3, 0.7
    low, high = warp.quantile(mean, sd, 0.02), warp.quantile(mean, sd, 0.98)
    mass = integrate.quad(lambda v: np.exp(warp.log_density(v, mean, sd)), low, high, limit=500)[0]
    # What lies at an end of the inverse has no density there.
    below = warp.cdf(np.nextafter(high, low), mean, sd)
    assert mass == pytest.approx(below - warp.cdf(low, mean, sd), abs=1e-6)
    if (name, psi) not in CLIPPED:
        assert mass == pytest.approx(0.96, abs=1e-6)


@pytest.mark.parametrize(("name", "psi"), CLIPPED)
def test_moments_stay_between_the_ends_of_the_range(name, psi):
    warp = fitted(name, psi)
    low, high = warp.inverse([-1e6, 1e6])
    mean, sd = warp.moments(np.linspace(-8, 8, 50), np.full(50, 2.0))
    assert np.all((mean >= low) & (mean <= high)) and np.all(sd <= (high - low) / 2 * (1 + 1e-12))


@pytest.mark.parametrize("name", ["log", "sqrt", "box-cox"])
def test_far_from_all_rows_the_mean_is_not_made_of_tails_that_no_row_has_told_of(name):
    warp = fitted(name, (-0.1,) if name == "box-cox" else ())
    mean, sd = warp.moments(np.array([-1.0, 0.0, 1.0]), np.full(3, 9.0))
    assert np.all((mean > Y.min()) & (mean < Y.max())) and np.all(sd <= np.ptp(Y) / 2)
    # A trend that leaves the range of the targets keeps its median; the room shrinks without a jump.
    beyond = warp.forward([Y.max() + 2 * np.ptp(Y)])
    assert warp.moments(beyond, np.array([3.0]))[0] < warp.inverse(beyond)
    near = [warp.moments(np.zeros(1), np.array([sd]))[0] for sd in (1 - 1e-9, 1 + 1e-9)]
    assert near[0] == pytest.approx(near[1], abs=1e-4 * np.ptp(Y))


def test_sqrt_puts_the_missing_mass_at_zero():
    warp, mean, sd = fitted("sqrt", ()), -1.5, 1.0
    zero = -OFFSET / SCALE
    mass = integrate.quad(lambda v: np.exp(warp.log_density(v, mean, sd)), zero, 20, limit=500)[0]
    draws = warp.inverse(RNG.normal(mean, sd, size=100_000))
    assert 1 - mass == pytest.approx(np.mean(draws <= zero + 1e-12), abs=5e-3)
    assert warp.cdf(zero, mean, sd) == pytest.approx(1 - mass, abs=1e-6)


def test_log_density_of_the_log_warp_is_the_lognormals():
    warp, mean, sd = fitted("log", ()), 0.2, 0.6
    logs = np.log(RAW)
    shape, location = sd * logs.std(), logs.mean() + mean * logs.std()
    expected = stats.lognorm.logpdf(RAW, shape, scale=np.exp(location)) + np.log(SCALE)
    np.testing.assert_allclose(warp.log_density(Y, mean, sd), expected, atol=1e-10)
    m, s = warp.moments(mean, sd)
    exact = stats.lognorm(shape, scale=np.exp(location))
    assert OFFSET + SCALE * m == pytest.approx(exact.mean(), rel=1e-10)
    assert SCALE * s == pytest.approx(exact.std(), rel=1e-10)


@pytest.mark.parametrize("name", ["box-cox", "sqrt", "log"])
def test_outside_the_support_the_density_is_zero(name):
    warp = fitted(name, (0.5,) if name == "box-cox" else ())
    outside = np.array([-OFFSET / SCALE, -OFFSET / SCALE - 1.0])
    assert np.all(np.exp(warp.log_density(outside, 0.0, 1.0)) == 0)
    assert not np.any(np.isnan(warp.forward(outside)))
    assert np.all(np.isfinite(warp.crps(outside, 0.0, 1.0)))


@each_case
def test_moments_quantiles_and_crps_against_draws(name, psi):
    warp = fitted(name, psi)
    narrow = 0.02 if (name, psi) in CLIPPED else 1.0
    y = np.array([-0.2, 0.6])
    mean, sd = warp.forward([-0.3, 0.2]), np.array([0.3, 0.5]) * narrow
    t = stats.norm.ppf((np.arange(40_000) + 0.5) / 40_000)
    draws = warp.inverse(mean[:, None] + sd[:, None] * t)
    m, s = warp.moments(mean, sd)
    np.testing.assert_allclose(m, draws.mean(axis=1), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(s, draws.std(axis=1), rtol=1e-2)
    np.testing.assert_allclose(
        warp.quantile(mean, sd, [0.1, 0.9]), np.quantile(draws, [0.1, 0.9], axis=1).T, atol=1e-3
    )
    energy = [metrics.crps_from_samples(y[i : i + 1], draws[i : i + 1]) for i in range(2)]
    np.testing.assert_allclose(warp.crps(y, mean, sd), energy, rtol=1e-3)


def test_the_identity_is_the_gaussian_itself():
    warp = FittedWarp.fit(Y, "none")
    mean, sd = RNG.normal(size=Y.size), RNG.uniform(0.1, 2, Y.size)
    assert (warp.mu, warp.s) == (0.0, 1.0)
    np.testing.assert_array_equal(warp.forward(Y), Y)
    np.testing.assert_array_equal(warp.moments(mean, sd), (mean, sd))
    np.testing.assert_allclose(warp.log_density(Y, mean, sd), stats.norm.logpdf(Y, mean, sd))
    np.testing.assert_allclose(warp.quantile(mean, sd, 0.9), stats.norm.ppf(0.9, mean, sd))
    np.testing.assert_allclose(warp.cdf(Y, mean, sd), metrics.pit(Y, mean, sd))
    assert warp.crps(Y, mean, sd).mean() == pytest.approx(metrics.crps(Y, mean, sd), rel=1e-10)


@pytest.mark.parametrize("name", ["none", "log"])
def test_a_mean_that_knows_nothing_stays_within_the_training_targets(name):
    warp = fitted(name, ())
    z = warp.forward(np.array([Y.max(), Y.min()])) + np.array([30.0, -30.0])
    lost, _ = warp.moments(z, np.full(2, 100.0))
    assert np.all(lost <= Y.max()) and np.all(lost >= Y.min())
    # What is surer than the training targets themselves may lie anywhere.
    sure, _ = warp.moments(z[:1] / 4, np.full(1, 0.1))
    assert sure > Y.max()
    unbounded = replace(warp, least=-np.inf, most=np.inf)
    assert unbounded.moments(z, np.full(2, 2.5))[0][0] > Y.max()


@pytest.mark.parametrize("name", ["none", "log", "yeo-johnson"])
def test_what_lies_beyond_the_training_targets_is_not_surer_for_it(name):
    warp = fitted(name, (1.0,) if name == "yeo-johnson" else ())
    z = warp.forward(Y.max()) + np.array([0.0, 3.0, 30.0])
    mean, sd = warp.moments(z, np.full(3, 2.5))
    assert np.all(mean[1:] == Y.max()) and np.all(np.diff(sd) >= -1e-12) and sd[-1] >= 1.0


@pytest.mark.parametrize("name", ["none", "log"])
def test_tails_leave_lost_means_within_the_training_targets(name):
    warp = fitted(name, ())
    z, sd_z = warp.forward(np.array([Y.max(), Y.min()])) + np.array([50.0, -50.0]), np.array([3.0, 1.5])
    tailed = Tailed(WarpedGaussian(z, sd_z, sd_z / 2, TargetScaler(0.0, 1.0), warp), TAILS)
    low, high = warp.ends_of_moments(sd_z * min(TAILS.factors))
    assert np.all((tailed.mean >= low) & (tailed.mean <= high))
    if name == "none":
        np.testing.assert_allclose(tailed.sd, sd_z * TAILS.sd, rtol=1e-12)


def test_poles_stop_within_reach_of_the_training_target():
    warp = fitted("yeo-johnson", (-1.5,))
    assert warp.upper == pytest.approx(Y.max() + 10 * np.ptp(Y)) and warp.lower == -np.inf
    assert warp.inverse(1e6) == warp.upper
    assert fitted("yeo-johnson", (3.5,)).inverse(-1e6) == pytest.approx(Y.min() - 10 * np.ptp(Y))
    assert fitted("box-cox", (0.5,)).inverse(-1e6) == pytest.approx(-OFFSET / SCALE)


@pytest.mark.parametrize(
    "name, psi", [("yeo-johnson", (-1.5,)), ("yeo-johnson", (3.5,)), ("box-cox", (-0.5,))]
)
def test_no_probability_lies_beyond_a_pole(name, psi):
    warp = fitted(name, psi)
    low, high = warp.ends
    draws = warp.inverse(3.0 * RNG.standard_normal(20_000))
    for y in (np.clip(low, -99, None), Y.mean(), np.clip(high, None, 99.0), 1e6):
        assert warp.cdf(y, 0.0, 3.0) == pytest.approx(np.mean(draws <= y), abs=0.015)


def test_profile_start_is_scipys_maximum_likelihood():
    raw = np.random.default_rng(5).lognormal(size=3000)
    mean, sd = raw.mean(), raw.std()
    y = (raw - mean) / sd
    assert profile_start(y, "box-cox", mean, sd)[0] == pytest.approx(stats.boxcox(raw)[1], abs=1e-4)
    assert profile_start(raw, "box-cox")[0] == pytest.approx(stats.boxcox(raw)[1], abs=1e-4)
    assert profile_start(y, "yeo-johnson")[0] == pytest.approx(stats.yeojohnson_normmax(y), abs=1e-4)
    assert profile_start(y, "log", mean, sd).size == 0


def test_profile_start_recovers_sinh_arcsinh():
    psi = np.array([0.6, 0.7])
    y = make_warp("sinh-arcsinh").inverse(RNG.normal(size=40_000), psi)
    z = FittedWarp.fit(y, "sinh-arcsinh").forward(y)
    np.testing.assert_allclose(profile_start(y, "sinh-arcsinh"), psi, atol=0.05)
    assert abs(stats.skew(z)) < 0.05 and abs(stats.kurtosis(z)) < 0.1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("y", [[1.0], [2.0, 2.0, 2.0], [1.0, 2.0]])
def test_degenerate_targets_fit_with_finite_numbers(name, y):
    warp = FittedWarp.fit(y, name)
    assert np.all(np.isfinite(warp.forward(y))) and warp.s > 0
    at = standardised(make_warp(name), y, warp.psi)[0]
    assert all(np.all(np.isfinite(part)) for part in at)
    np.testing.assert_allclose(warp.inverse(warp.forward(y)), y)


def test_candidates():
    general = ("yeo-johnson", "sinh-arcsinh", "none")
    assert candidates(RAW) == ("box-cox", *general)
    assert candidates(Y) == general
    assert candidates(np.append(RAW, 0.0)) == general
    assert candidates([0.0, 1.0, 1.0]) == ("none",)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_warp("cube"), "Unknown warp 'cube'"),
        (lambda: make_warp("log", 1.0, 0.0), "positive sd"),
        (lambda: FittedWarp.fit(Y, "box-cox"), "positive target.*yeo-johnson"),
        (
            lambda: profile_start([1.0, 0.0, 2.0], "sqrt"),
            "sqrt warp needs a positive target, and row 1 has 0;",
        ),
        (lambda: make_warp("log").initial(np.array([np.nan])), "positive target"),
        (lambda: FittedWarp.fit(Y, "yeo-johnson", (1.0, 2.0)), "yeo-johnson has 1 parameters"),
        (lambda: fitted("none", ()).quantile(0.0, 1.0, 0.0), "strictly between"),
        (lambda: fitted("none", ()).moments(0.0, -1.0), "sd_z"),
        (lambda: fitted("none", ()).moments(np.nan, 1.0), "mean_z"),
        (lambda: fitted("none", ()).log_density(0.0, 0.0, 0.0), "no density"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def predicted(name, mean, sd):
    """Of three rows, by the warp of that name in the middle of its range."""
    warp = fitted(name, {"none": (), "box-cox": (0.5,)}[name])
    return WarpedGaussian(np.array(mean), np.array(sd), np.array(sd) / 2, TargetScaler(OFFSET, SCALE), warp)


@pytest.mark.parametrize("name", ["none", "box-cox"])
def test_crps_where_one_part_knows_nothing_of_a_row_is_the_integral(name):
    """As at a mistyped input: an sd of 300 where targets have one, and mass at an end of the range."""
    lost = predicted(name, [40.0, -15.0, 0.3], [120.0, 300.0, 0.01])
    m = Mixture([lost, predicted("none", [-0.8, 0.1, 0.9], [0.01] * 3)], np.array([0.2, 0.8]))
    y = np.array([3.5, 5.3, 9.0])
    levels = stats.norm.cdf(np.linspace(-8, 8, 40_001))
    grid = np.sort(np.concatenate([part.quantile(levels) for part in m.parts], axis=1), axis=1)
    for i, edges in enumerate(grid):
        edges = np.sort(np.append(edges, y[i]))
        middle, one = (edges[1:] + edges[:-1]) / 2, m[i : i + 1]
        expected = np.sum(np.diff(edges) * (one.cdf(middle[None, :])[0] - (middle >= y[i])) ** 2)
        assert one.crps(y[i : i + 1])[0] == pytest.approx(expected, rel=1e-3)
