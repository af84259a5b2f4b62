"""Scores against loops, numerical integrals and SciPy's densities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from widegp import metrics

RNG = np.random.default_rng(0)
Y, MEAN, SD = RNG.normal(size=40), RNG.normal(size=40), RNG.uniform(0.3, 2.0, 40)
TRAIN = RNG.normal(3.0, 4.0, size=60)

finite = st.floats(-50, 50)
positive = st.floats(0.05, 20)


def integrated_crps(y: float, mean: float, sd: float) -> float:
    """int (F(t) - 1{t >= y})^2 dt, the definition."""
    below = integrate.quad(lambda t: stats.norm.cdf(t, mean, sd) ** 2, min(y, mean) - 12 * sd, y, limit=200)[
        0
    ]
    above = integrate.quad(lambda t: stats.norm.sf(t, mean, sd) ** 2, y, max(y, mean) + 12 * sd, limit=200)[0]
    return below + above


def test_the_papers_scores_against_loops():
    error = [m - y for m, y in zip(MEAN, Y, strict=True)]
    ese = [e * e + s * s for e, s in zip(error, SD, strict=True)]
    mese = sum(ese) / len(ese)
    assert metrics.mae(Y, MEAN) == pytest.approx(sum(map(abs, error)) / len(error))
    assert metrics.mse(Y, MEAN) == pytest.approx(sum(e * e for e in error) / len(error))
    assert metrics.rmse(Y, MEAN) == pytest.approx(math.sqrt(sum(e * e for e in error) / len(error)))
    assert metrics.mese(Y, MEAN, SD) == pytest.approx(mese)
    assert metrics.sdese(Y, MEAN, SD) == pytest.approx(
        math.sqrt(sum((v - mese) ** 2 for v in ese) / (len(ese) - 1))
    )


def test_mese_is_the_expected_squared_error_of_draws():
    draws = MEAN + SD * np.random.default_rng(1).normal(size=(20_000, Y.size))
    assert metrics.mese(Y, MEAN, SD) == pytest.approx(np.mean((draws - Y) ** 2), rel=0.01)


def test_nlpd_against_scipy():
    assert metrics.nlpd(Y, MEAN, SD) == pytest.approx(-stats.norm.logpdf(Y, MEAN, SD).mean())


@settings(max_examples=25, deadline=None)
@given(y=finite, mean=finite, sd=positive)
def test_crps_is_its_integral(y, mean, sd):
    assert metrics.crps([y], [mean], [sd]) == pytest.approx(integrated_crps(y, mean, sd), rel=1e-6, abs=1e-8)


@settings(max_examples=50, deadline=None)
@given(y=finite, mean=finite, sd=positive)
def test_crps_of_map_agrees_with_the_closed_form(y, mean, sd):
    rows = np.array([y])
    score = metrics.crps_of_map(rows, lambda t: mean + sd * t, (rows - mean) / sd)
    assert score[0] == pytest.approx(metrics.crps([y], [mean], [sd]), rel=1e-9, abs=1e-9)


def test_crps_from_fine_quantiles_approaches_the_closed_form():
    levels = (np.arange(4000) + 0.5) / 4000
    quantiles = stats.norm.ppf(levels[None], MEAN[:, None], SD[:, None])
    assert metrics.crps_from_quantiles(Y, quantiles, levels) == pytest.approx(
        metrics.crps(Y, MEAN, SD), rel=1e-4
    )


def test_uneven_levels_are_weighted_by_their_share():
    levels = stats.norm.cdf(np.linspace(-5, 5, 2001))
    quantiles = stats.norm.ppf(levels[None], MEAN[:, None], SD[:, None])
    assert metrics.crps_from_quantiles(Y, quantiles, levels) == pytest.approx(
        metrics.crps(Y, MEAN, SD), rel=1e-4
    )


@settings(max_examples=40, deadline=None)
@given(y=finite, samples=st.lists(finite, min_size=1, max_size=12))
def test_crps_from_samples_is_the_energy_form(y, samples):
    s = np.array(samples)
    energy = np.mean(np.abs(s - y)) - 0.5 * np.mean(np.abs(s[:, None] - s[None]))
    assert metrics.crps_from_samples([y], s[None]) == pytest.approx(energy, abs=1e-10)


def test_pinball_by_loop():
    levels, q = [0.1, 0.5, 0.8], np.sort(RNG.normal(size=(5, 3)), axis=1)
    width, total = [0.3, 0.35, 0.35], 0.0
    for i in range(5):
        for j, tau in enumerate(levels):
            gap = Y[i] - q[i, j]
            total += 2 * width[j] * (tau * gap if gap >= 0 else (tau - 1) * gap) / 5
    assert metrics.crps_from_quantiles(Y[:5], q, levels) == pytest.approx(total)


def test_coverage_and_interval_score_by_loop():
    lower, upper = MEAN - SD, MEAN + 0.5 * SD
    hits, score = 0, 0.0
    for y, low, high in zip(Y, lower, upper, strict=True):
        hits += low <= y <= high
        score += high - low + 2 / 0.2 * (max(low - y, 0) + max(y - high, 0))
    assert metrics.coverage(Y, lower, upper) == hits / Y.size
    assert metrics.interval_score(Y, lower, upper, level=0.8) == pytest.approx(score / Y.size)
    assert metrics.coverage([1.0, 2.0], [1.0, -np.inf], [1.0, 1.9]) == 0.5


def test_interval_score_is_best_at_the_true_quantiles():
    y = np.random.default_rng(2).normal(size=100_000)
    scores = [
        metrics.interval_score(y, np.full_like(y, -h), np.full_like(y, h), 0.9) for h in (1.4, 1.645, 1.9)
    ]
    assert scores[1] == min(scores)


def test_pit_is_uniform_exactly_when_calibrated():
    y = np.random.default_rng(3).normal(2.0, 3.0, size=4000)
    mean, sd = np.full(4000, 2.0), np.full(4000, 3.0)
    p = metrics.pit(y, mean, sd)
    assert p == pytest.approx(stats.norm.cdf(y, 2.0, 3.0))
    assert metrics.pit_distance(p) == pytest.approx(stats.kstest(p, "uniform").statistic)
    assert metrics.pit_distance(p) < 0.03
    assert metrics.pit_distance(metrics.pit(y, mean, sd / 3)) > 0.1


def test_certain_predictions_take_their_limits():
    assert metrics.crps([1.0, 2.0], [1.0, 5.0], [0.0, 0.0]) == 1.5
    assert metrics.nlpd([1.0, 2.0], [1.0, 5.0], [0.0, 0.0]) == math.inf
    assert metrics.nlpd([1.0, 2.0], [1.0, 5.0], [0.0, 1.0]) == -math.inf
    assert metrics.pit([1.0, 2.0, 3.0], [1.0, 5.0, 0.0], [0.0] * 3).tolist() == [0.5, 0.0, 1.0]
    assert metrics.crps([1e200], [0.0], [1e-100]) == 1e200


def test_scaled_scores_are_scores_of_scaled_targets():
    s = TRAIN.std()
    table = metrics.score_table(Y, MEAN, SD, y_train=TRAIN)
    scaled = metrics.score_table(Y / s, MEAN / s, SD / s)
    for name in ("mae", "mse", "rmse", "mese", "sdese", "nlpd", "crps", "interval_score"):
        assert table[f"{name}_z"] == pytest.approx(scaled[name]), name
    for name in ("coverage", "pit_distance"):
        assert table[name] == pytest.approx(scaled[name])


def test_scaled_functions_match_the_table():
    table = metrics.score_table(Y, MEAN, SD, level=0.5, y_train=TRAIN)
    half = stats.norm.ppf(0.75) * SD
    assert metrics.mae_z(Y, MEAN, TRAIN) == table["mae_z"]
    assert metrics.crps_z(Y, MEAN, SD, TRAIN) == table["crps_z"]
    assert metrics.interval_score_z(Y, MEAN - half, MEAN + half, TRAIN, 0.5) == pytest.approx(
        table["interval_score_z"]
    )


def test_published_scaled_row_follows_from_the_unscaled_one():
    # Superconductivity in the paper: MAE 11.996, RMSE 18.464, sd(y_train) 34.231 -> 0.350, 0.539.
    train = np.array([-34.231, 34.231])
    assert round(metrics.mae_z([0.0], [11.996], train), 3) == 0.350
    assert round(metrics.rmse_z([0.0], [18.464], train), 3) == 0.539


def test_one_row_has_every_score_but_sdese():
    table = metrics.score_table([1.0], [2.0], [3.0], y_train=TRAIN)
    assert "sdese" not in table and "sdese_z" not in table
    assert all(math.isfinite(v) for v in table.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.mae([1.0, 2.0], [1.0]), "differ in length"),
        (lambda: metrics.mae([[1.0], [2.0]], [1.0, 2.0]), r"y has shape \(2, 1\).*ravel"),
        (lambda: metrics.mse([], []), "shape"),
        (lambda: metrics.mse([1.0, np.nan], [1.0, 2.0]), "y is nan in row 1"),
        (lambda: metrics.nlpd([1.0], [np.inf], [1.0]), "mean is inf in row 0"),
        (lambda: metrics.crps([1.0, 1.0], [1.0, 1.0], [1.0, -1.0]), "sd is negative in row 1"),
        (lambda: metrics.sdese([1.0], [1.0], [1.0]), "at least two rows"),
        (lambda: metrics.coverage([1.0], [2.0], [1.0]), "lower exceeds upper in row 0"),
        (lambda: metrics.coverage([1.0], [np.nan], [1.0]), "lower is nan"),
        (lambda: metrics.interval_score([1.0], [0.0], [1.0], level=1.0), "strictly between"),
        (lambda: metrics.score_table([1.0], [0.0], [1.0], level=95), "strictly between"),
        (lambda: metrics.crps_from_quantiles([1.0], [[0.0]], [0.2, 0.5]), "one column per level"),
        (lambda: metrics.crps_from_quantiles([1.0], [[0.0, 1.0]], [0.5, 0.5]), "increase strictly"),
        (lambda: metrics.crps_from_quantiles([1.0], [[0.0, np.nan]], [0.2, 0.5]), "NaN in row 0"),
        (lambda: metrics.crps_from_samples([1.0, 2.0], [[0.0, 1.0]]), "one row per y"),
        (lambda: metrics.pit_distance([0.5, 1.5]), r"\[0, 1\]"),
        (lambda: metrics.mae_z([1.0], [1.0], [np.nan]), "y is nan in row 0"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
