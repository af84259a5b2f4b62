"""The published tables agree with each other: a slip of transcription would break one of these identities."""

from __future__ import annotations

import re

import pytest

from widegp.budget import best_within, largest_within
from widegp.paper import published as p

CASES = [row for row, _ in p.SCENARIO_METRICS.rows.items()]


def test_there_are_twelve_tables_with_cells_that_are_numbers_or_designs():
    assert len(p.TABLES) == 12
    for table in p.TABLES.values():
        assert re.fullmatch(r"tab:[\w-]+", table.label)
        for row, column, cell in table.cells():
            if column == "design":
                assert cell in ("uniform", "stratified")
            else:
                assert float(cell) > 0, (table.label, row, column)


def test_every_row_has_every_column():
    sizes = {label: len(table.rows) for label, table in p.TABLES.items()}
    assert sizes["tab:map_params_50eps_anchors"] == sizes["tab:test_metrics_50eps_anchors"] == 16
    assert sizes["tab:year_full_metrics_gridN"] == sizes["tab:year_full_map_params_gridN"] == 9
    assert sizes["tab:C1_reps_summary_50eps"] == 12


@pytest.mark.parametrize("case", [f"C{k}" for k in range(1, 9)])
def test_noise_is_four_per_cent_of_k_bar(case):
    row = (case,)
    noise = p.SCENARIOS.value(row, "sigma_eps2")
    assert noise == pytest.approx(0.04 * p.SCENARIOS.value(row, "kbar"), abs=1e-6)
    assert noise == pytest.approx(p.SCENARIOS.value(row, "noise_sd") ** 2, abs=1e-6)


@pytest.mark.parametrize("row", CASES, ids=" ".join)
def test_rmse_is_the_root_of_mse_and_mese_adds_a_variance(row):
    mse = p.SCENARIO_METRICS.value(row, "mse")
    assert p.SCENARIO_METRICS.value(row, "rmse") ** 2 == pytest.approx(mse, abs=2e-6)
    assert mse < p.SCENARIO_METRICS.value(row, "mese")


def test_the_row_c1_is_the_best_of_the_replications():
    for name in ("mae", "rmse", "sdese"):
        single = p.SCENARIO_METRICS.value(("C1", "kmeans"), name)
        assert single == p.REPLICATIONS.value((name,), "min")


@pytest.mark.parametrize("scaled, plain", [(p.REAL_SCALED, p.REAL_METRICS), (p.RANK_SCALED, p.RANK_METRICS)])
def test_scaled_scores_are_scores_over_the_training_sd(scaled, plain):
    for row in scaled.rows:
        sd = scaled.value(row, "train_sd")
        for name in ("mae", "rmse"):
            unscaled = scaled.value(row, f"{name}_z") * sd
            assert unscaled == pytest.approx(plain.value(row, name), abs=5.1e-4 * sd)
        noise = scaled.value(row, "sigma_eps2_z") * sd**2
        assert noise == pytest.approx(scaled.value(row, "sigma_eps2"), rel=1e-3)


def test_noise_is_the_same_in_estimates_and_scaled_scores():
    for scaled, estimates in ((p.REAL_SCALED, p.REAL_ESTIMATES), (p.RANK_SCALED, p.RANK_ESTIMATES)):
        for row in scaled.rows:
            assert scaled.value(row, "sigma_eps2") == estimates.value(row, "sigma_eps2")


def test_the_published_choice_of_rank_follows_from_the_published_grid():
    costs = {float(r): p.RANK_METRICS.value((r,), "seconds") for (r,) in p.RANK_METRICS.rows}
    errors = {float(r): p.RANK_METRICS.value((r,), "rmse") for (r,) in p.RANK_METRICS.rows}
    for (budget,) in p.BUDGET.rows:
        assert largest_within(costs, float(budget)) == p.BUDGET.value((budget,), "r_max")
        assert best_within(costs, errors, float(budget)) == p.BUDGET.value((budget,), "r_best")
