"""``widegp bench``: figures of this machine as a table or as JSON."""

from __future__ import annotations

import pytest
from cli.commands import run, run_json

SMALL = ("--rows", 200, "--rank", 8, "--full-scale-rank", 5, "--neighbors", 4, "--repeats", 1)
TIMED = ["evaluation, vfe", "search for neighbours", "evaluation, full-scale"]


@pytest.fixture(scope="module")
def told() -> dict:
    return run_json("bench", *SMALL)


def test_figures_of_both_sizes_and_predictions(told):
    named = [(figure["name"], figure["rows"]) for figure in told["figures"]]
    expected = [(name, rows) for rows in (50, 200) for name in TIMED]
    assert named == [*expected, ("prediction, vfe", 200), ("prediction, full-scale", 200)]
    assert (told["rank"], told["full_scale_rank"], told["neighbors"]) == (8, 5, 4)


def test_ratios_and_rates_follow_from_the_seconds(told):
    for figure in told["figures"]:
        assert figure["seconds"] > 0
        assert figure["rows_per_second"] == pytest.approx(figure["rows"] / figure["seconds"])
        if figure["name"].startswith("evaluation"):
            assert figure["times_products"] == pytest.approx(figure["seconds"] / figure["products_seconds"])
        else:
            assert figure["times_products"] is None


def test_the_machine_and_versions_are_told(told):
    from importlib.metadata import version

    assert told["machine"]["versions"]["numpy"] == version("numpy")
    assert 1 <= told["machine"]["threads"] <= told["machine"]["cores"]


def test_a_table_for_people():
    result = run("bench", *SMALL)
    assert result.exit_code == 0, result.stderr
    for words in (*TIMED, "prediction, full-scale", "bare products", "r = 8 (vfe) and 5", "Python", "numpy"):
        assert words in result.stdout


def test_too_few_rows_are_refused():
    result = run("bench", "--rows", 3)
    assert result.exit_code == 2 and "--rows" in result.stderr
