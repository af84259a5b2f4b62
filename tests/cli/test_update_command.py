"""``widegp update``: more rows for a model in a file."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from cli.commands import houses, run

from widegp.table_model import TableModel


@pytest.fixture
def copy(model, tmp_path):
    return shutil.copy(model, tmp_path / "houses.widegp")


@pytest.fixture
def more(tmp_path):
    path = tmp_path / "more.csv"
    frame = houses(30, seed=5)
    frame.loc[4, "price"] = np.nan
    frame.to_csv(path, index=False)
    return path


def test_rows_are_added_to_the_file(copy, more):
    before = TableModel.load(copy)
    result = run("update", copy, more, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    # The row without a target tells nothing.
    assert told["rows"] == 29 and told["low"] < told["expected"] < told["high"]
    after = TableModel.load(copy)
    seen = after.provenance["rows_conditioned_on"]
    assert seen == before.provenance["rows_conditioned_on"] + 29
    (update,) = after.provenance["updates"]
    assert update["rows"] == 29 and len(update["sha256"]) == 64
    assert after.regressor.params_ == before.regressor.params_
    assert not np.allclose(after.predict(more), before.predict(more))
    X, y = before.encoder.transform(next(batches_of(more)))[0], houses(30, seed=5)["price"].to_numpy()
    kept = np.arange(30) != 4
    expected = before.regressor.update(X[kept], y[kept]).predict(X)
    np.testing.assert_array_equal(after.predict(more), expected)


def batches_of(path):
    from widegp.data.tables import open_table

    return open_table(path).batches()


def test_words_and_another_file(copy, more, tmp_path):
    before = copy.read_bytes()
    result = run("update", copy, more, "--out", tmp_path / "new.widegp")
    assert result.exit_code == 0, result.stderr
    assert "29 rows were added." in result.stdout
    assert f"The model in {tmp_path / 'new.widegp'} now knows" in result.stdout
    assert copy.read_bytes() == before


def test_what_cannot_be_added_leaves_the_file_alone(copy, tmp_path):
    before, path = copy.read_bytes(), tmp_path / "bad.csv"
    houses(5).drop(columns="price").to_csv(path, index=False)
    result = run("update", copy, path)
    assert result.exit_code == 2 and "'price'" in result.stderr, result.stderr
    houses(5).assign(price=np.nan).to_csv(path, index=False)
    result = run("update", copy, path)
    assert result.exit_code == 2 and "nothing to add" in result.stderr
    assert copy.read_bytes() == before


def test_each_of_several_outputs_says_how_it_went(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=120)})
    for name in ("a", "b"):
        frame[name] = np.sin(frame.x) + 0.1 * rng.normal(size=120)
    table, model, more = tmp_path / "t.csv", tmp_path / "m.widegp", tmp_path / "more.csv"
    frame.to_csv(table, index=False)
    fit = ["fit", table, "--target", "a", "--target", "b", "--out", model, "--plain", "--no-yardstick"]
    assert run(*fit).exit_code == 0
    frame[:40].assign(b=frame.b[:40] + 50).to_csv(more, index=False)
    told = json.loads(run("update", model, more, "--out", tmp_path / "n.widegp", "--json").stdout)
    assert told["outputs"]["b"]["refit_due"] and not told["outputs"]["a"]["refit_due"] and told["refit_due"]
    said = run("update", model, more).stdout
    assert "a: 40 rows were added." in said and "b: 40 rows were added." in said
    assert said.count("a new fit is due") == 1
