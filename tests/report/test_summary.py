"""What the report says, against the model it speaks of."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from widegp.inference.parameters import declared_parameters
from widegp.inference.priors import resolve_priors
from widegp.inference.result import Direction, Reason
from widegp.kernels import Mixed
from widegp.report import own_explanation, render_html, summarise
from widegp.report.calibration import coverage
from widegp.report.formatting import clean, exact, memory, moment, number, percent, plain, seconds, short
from widegp.report.summary import quantile_plot, residual_trend, rmse_error
from widegp.report.svg import tick
from widegp.report.verdict import open_directions

from .conftest import HOSTILE, draw, forecaster


def test_open_directions_in_words():
    declared = declared_parameters(Mixed())
    up_down = Direction({"sigma_a2": 0.8, "sigma_v2": -0.6, "w": 0.1}, sd=1.0)
    alone = Direction({"sigma_eps2": 1.0, "w": 0.0}, sd=np.log(3) / 2)
    spread = Direction({"sigma_u2": 1.0}, sd=2 * np.log(3))
    words = [d["words"] for d in open_directions([alone, up_down, spread], {"sigma_u2": 4}, declared)]
    # The widest first. Four entries move by half as much each; the noise is exp(2 z).
    assert words[0].startswith("The hidden weights (sigma_u2) may change") and "about 3.0" in words[0]
    assert words[1].startswith("The hidden biases (sigma_a2) may rise while output weights (sigma_v2) falls")
    assert f"sigma_a2 open to a factor of about {np.exp(0.8):.1f}" in words[1]
    assert "more than 100" in open_directions([Direction({"w": 1.0}, sd=90.0)], {}, declared)[0]["words"]
    assert words[2].startswith("The noise (sigma_eps2) may change") and "about 3.0" in words[2]


def test_coverage_is_that_of_the_model_s_own_intervals(model, held_out):
    X, y = draw(300, 1)
    for level in (0.3, 0.8, 0.99):
        lower, upper = model.predict_interval(X, level)
        assert coverage(held_out, level).share == pytest.approx(np.mean((lower <= y) & (y <= upper)))


def test_the_band_of_the_quantile_plot_holds_95_percent_of_order_statistics():
    told = quantile_plot(np.random.default_rng(0).uniform(size=50))
    draws = np.sort(np.random.default_rng(1).normal(size=(4000, 50)), axis=1)
    inside = (draws >= told["low"]) & (draws <= told["high"])
    assert len(told["theory"]) == 50
    assert np.allclose(inside.mean(0), 0.95, atol=0.02)


def test_the_quantile_plot_of_many_rows_keeps_both_ends():
    pit = np.random.default_rng(0).uniform(size=40_000)
    told = quantile_plot(np.append(pit, [0.0, 1.0]))
    assert len(told["theory"]) <= 300 and np.all(np.isfinite(told["observed"]))
    assert told["observed"][0] == -told["observed"][-1] < -8


def test_a_bias_shows_in_the_trend():
    h = forecaster(2000)
    shifted = dataclasses.replace(h, y=h.y + np.where(h.mean > 0, 1.0, 0.0))
    trend = residual_trend(shifted)
    expected = (trend["x"] > 0).astype(float)
    assert np.mean(np.abs(trend["mean"] - expected) <= 1.5 * trend["error"]) >= 0.9


def test_the_error_of_the_rmse_is_its_spread_over_repetitions():
    every = [forecaster(200, seed=seed) for seed in range(300)]
    spread = np.std([h.scores()["rmse"] for h in every])
    assert np.mean([rmse_error(h) for h in every]) == pytest.approx(spread, rel=0.15)


def test_parameters_stand_beside_their_priors(model, summary):
    priors = resolve_priors("default", model.kernel_, model.n_features_in_, True)
    entries = {entry["name"]: entry for entry in summary["parameters"]}
    assert set(entries) == {*model.params_, "psi[0]", "psi[1]"}
    for name in ("sigma_a2", "w", "sigma_eps2"):
        curves = entries[name]["curves"]
        x, prior = np.array(curves["x"]), np.array(curves["prior"])
        penalties = np.array([priors[name].penalty(np.array(v)) for v in x])
        shown = prior > 1e-9
        assert np.allclose(np.log(prior[shown]), (penalties.min() - penalties)[shown], atol=1e-8)
        # The approximation peaks at the estimate.
        step = np.abs(np.diff(x)).max()
        assert abs(x[np.argmax(curves["posterior"])] - entries[name]["value"]) <= step
    assert entries["sigma_u2"]["value"] == list(model.params_["sigma_u2"])
    assert entries["psi[0]"]["prior"] is None


def test_the_summary_is_json_and_the_page_a_function_of_it(summary, page):
    again = json.loads(json.dumps(summary, allow_nan=False))
    assert again == summary
    assert render_html(again) == page


def test_a_summary_needs_no_sample_and_the_page_no_finite_interval(model, held_out):
    upper, density = held_out.upper.copy(), held_out.log_density.copy()
    upper[:5], density[3] = np.inf, -np.inf
    endless = dataclasses.replace(held_out, upper=upper, log_density=density)
    told = summarise(model, endless, explanation=own_explanation(model, HOSTILE))
    ranked = [item["index"] for item in told["explanation"]["inputs"]]
    assert ranked == list(np.argsort(-model.params_["sigma_u2"]))
    assert told["scores"]["nll"] is None
    assert "<h1>" in render_html(told)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,230"), (0.012345, "0.0123"), (4.5e-7, "4.50 × 10⁻⁷"), (-2.0, "−2.00"), (0, "0"),
        (9.999, "10.0"), (3.2e9, "3.20 × 10⁹"), (None, "–"), (float("inf"), "∞"), (999_999, "1,000,000"),
    ],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2018.0, "2018"), (10001, "10001"), (7.0, "7"), (-0.25, "−0.25"), (1234567, "1234567"),
        (1 / 3, "0.333333"),
    ],
)  # fmt: skip
def test_values_of_the_table_are_shown_as_they_are(value, text):
    assert exact(value) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (2020, 2018, 2024, "2020"), (200_000, 0, 600_000, "200k"), (0, 0, 600_000, "0"),
        (5e5, 0, 2e6, "0.5M"),
        (-15_000, -20_000, 100, "−15k"), (0.1 + 0.2, 0, 1, "0.3"), (1e-17, -1, 1, "0"),
        (2e-5, 0, 4e-5, "2 × 10⁻⁵"), (3e12, 0, 4e12, "3 × 10¹²"), (2.5e9, 0, 4e9, "2.5bn"),
    ],
)  # fmt: skip
def test_ticks_need_no_power_of_ten_in_the_corner(value, low, high, text):
    assert tick(value, low, high) == text


def test_moments():
    assert moment("2026-01-31T08:58:12+00:00") == "2026-01-31 08:58 UTC"
    assert moment("2026-01-31T08:58:12+02:00") == "2026-01-31 06:58 UTC"
    assert moment("2026-01-31T08:58:12") == "2026-01-31 08:58"
    assert moment("yesterday") == "yesterday"


def test_shares_times_and_sizes():
    assert [percent(p) for p in (0.5, 0.9996, 1.0, 0.0, 0.001, -0.06)] == [
        "50%", "99.96%", "100%", "0%", "< 1%", "−6%",
    ]  # fmt: skip
    assert [seconds(t) for t in (0.0042, 7.123, 42.0, 200.0, 7500.0)] == [
        "4.2 ms", "7.1 s", "42 s", "3 min 20 s", "2 h 5 min",
    ]  # fmt: skip
    assert (memory(3 * 2**20), memory(5 * 2**30)) == ("3.00 MiB", "5.00 GiB")


def test_names_are_cleaned_and_cut_in_the_middle():
    assert clean("a\x00\u202eb\n  c") == "ab c"
    assert clean("\x00") == "(no name)"
    assert len(short("x" * 500 + "end")) <= 48 and short("x" * 500 + "end").endswith("end")


def test_plain_values():
    mixed = {"a": np.arange(2), "b": (np.float64(np.nan), np.int64(3), True), 1: Reason.CONVERGED}
    assert plain(mixed) == {"a": [0, 1], "b": [None, 3, True], "1": "converged"}
