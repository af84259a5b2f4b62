"""Awkward but legal tables go from file or frame to model, report, predictions and explanation unasked."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cli.awkward_tables import LEGAL, SAID, N
from cli.commands import run, run_json

from widegp import TableModel
from widegp.data.errors import TableError
from widegp.explain import explain
from widegp.report import render_html, summarise
from widegp.sources import source_columns

FIT = ("--plain", "--approximation", "vfe", "--rank", 4, "--test-fraction", 0.3, "--no-yardstick")
SETTINGS: dict[str, Any] = {
    "metric": "iso", "noise": "constant", "posterior": "map", "target_transform": None,
    "approximation": "vfe", "rank": 4, "test_fraction": 0.3, "yardstick": False,
}  # fmt: skip
# One of each kind; the rest is for `make test-all`.
QUICK = ("German Excel", "a workbook", "a dictionary", "polars categories")


def through_commands(table: Path, folder: Path, said: dict[str, str]) -> None:
    options = [word for name, value in said.items() for word in (f"--{name}", value)]
    suffix = ".parquet" if table.suffix == ".parquet" else ".csv"
    model, page, out = folder / "m.widegp", folder / "r.html", folder / f"p{suffix}"
    fitted = run_json("fit", table, "--target", "y", "--out", model, *FIT, *options)
    assert fitted["scores"]["rmse"] > 0
    assert run("report", model, "--out", page).exit_code == 0 and page.stat().st_size > 10_000
    told = run_json("predict", model, table, "--out", out, *options)
    predicted = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    assert told["rows"] == len(predicted) == N and np.isfinite(predicted[["mean", "sd"]]).all(axis=None)
    explained = run("explain", model)
    assert explained.exit_code == 0 and "What drives y" in explained.stdout, explained.stderr


def through_python(table: Any) -> None:
    model = TableModel.fit(table, "y", **SETTINGS)
    lower, upper = model.predict_interval(table)
    assert len(lower) == N and (lower < upper).all() and np.isfinite(model.score(table))
    found = explain(
        model.regressor, model.inputs_held(), model.encoder.feature_names,
        sources=source_columns(model.encoder), ranking=model.study.ranking,
    )  # fmt: skip
    summary = summarise(
        model.regressor, model.held_out, model.encoder.summary(), model.provenance, explanation=found
    )
    assert len(render_html(summary)) > 10_000 and found["inputs"][0]["name"] == "z"


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LEGAL]
)
def test_awkward_tables_go_all_the_way(name: str, tmp_path: Path) -> None:
    if "workbook" in name and importlib.util.find_spec("openpyxl") is None:
        pytest.skip("openpyxl is not installed")
    table = LEGAL[name](tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(table, Path):
            through_commands(table, tmp_path, SAID.get(name, {}))
        else:
            through_python(table)


def test_there_are_forty_of_them() -> None:
    assert len(LEGAL) >= 40


HALVES = [i + 0.5 for i in range(N)]
ILLEGAL: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a word among numbers": ({"x": [*map(str, HALVES[:-1]), "oops"]}, ("'x'", "'oops' in row 40")),
    "an infinite input": ({"x": [*HALVES[:-1], np.inf]}, ("'x' holds an infinite value in row 40",)),
    "a constant target": ({"y": [3.5] * N}, ("'y' is 3.5 in every row",)),
    "a target of words": ({"y": [f"w{i}" for i in range(N)]}, ("'y'",)),
    "a target of dates": ({"y": pd.date_range("2020", periods=N)}, ("'y' holds timestamp",)),
    "marks in doubt": ({"x": [f"1,{i + 100}" for i in range(N)], "z": [1, 2] * 20, "y": range(N)},
                       ("'x' holds numbers written like '1,100'", "--decimal")),
    "days or months": ({"x": ["01/02/2019", "03/04/2019"] * 20}, ("'x' holds dates", "--dates")),
    "several things": (
        {"x": [*map(str, HALVES[:-1]), "oops"], "w": [1e200, *HALVES[1:]], "y": [np.inf, *HALVES[1:]]},
        ("3 problems", "'x' holds numbers but for 'oops'", "'w' holds 1e+200", "'y' holds an infinite value"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "excel", "pandas", "polars"])
@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_tables_of_every_form_are_refused_in_one_message(
    name: str, form: str, tmp_path: Path
) -> None:
    columns, words = ILLEGAL[name]
    frame = pd.DataFrame({"z": HALVES, "y": HALVES[::-1]} | columns)
    if form in ("pandas", "polars"):
        with pytest.raises(TableError) as error:
            TableModel.fit(frame if form == "pandas" else pl.from_pandas(frame), "y")
        said = str(error.value)
    else:
        if form == "excel" and (importlib.util.find_spec("openpyxl") is None or "infinite" in str(words)):
            pytest.skip("openpyxl is not installed, or holds no infinite number")
        path = tmp_path / ("t.parquet" if form == "parquet" else "t.xlsx")
        frame.to_parquet(path) if form == "parquet" else frame.to_excel(path, index=False)
        result = run("fit", path, "--target", "y", "--out", tmp_path / "m.widegp")
        assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
        said = result.stderr
    assert all(word in said for word in words), said
