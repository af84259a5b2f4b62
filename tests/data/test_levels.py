"""Columns of levels: categories of numbers, and means of several targets and of classes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from widegp import TableEncoder
from widegp.data.columns import RowsToLearn, TableEncoding, learn, survey
from widegp.data.errors import Problems
from widegp.data.tables import TableError, open_table
from widegp.data.target_kinds import coded
from widegp.table_split import TableSettings, split_table


@pytest.mark.parametrize("values", [[3, 1, 2] * 20, ["3", "1", "2"] * 20])
def test_a_category_of_numbers_is_levels_and_numbers_are_read_as_such_later(values: list) -> None:
    frame = pd.DataFrame({"c": pd.Categorical(values), "y": np.arange(60.0)})
    encoder = TableEncoding.fit(pa.Table.from_pandas(frame), "y")
    (column,) = encoder.columns
    assert column.kind == "categorical" and column.levels == ("1", "2", "3")
    encoded, _ = encoder.transform(pa.Table.from_pandas(frame))
    later, noticed = encoder.transform(pa.table({"c": [int(value) for value in values]}))
    np.testing.assert_array_equal(later, encoded)
    assert not noticed


def test_levels_are_told_by_the_mean_of_each_target() -> None:
    """Per target what a table with that target alone has, in training rows (cross-fitted) and in new ones."""
    rng = np.random.default_rng(0)
    n = 300
    level = rng.integers(0, 30, n)
    targets = np.column_stack([rng.normal(size=30)[level] + rng.normal(size=n), 3.0 * level])
    source = open_table(pa.table({"c": [f"L{i}" for i in level]}))

    def encoded(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, TableEncoding]:
        problems = Problems()
        rows = RowsToLearn.of(np.ones(n, bool), y, seed=3)
        found = survey(source, None, (), None, problems)
        encoding, means = learn(source, found, None, "impute", problems, rows)
        (batch,) = source.batches()
        own = {name: one._replace(folds=rows.folds) for name, one in means.items()}
        return encoding.transform(batch, own)[0], encoding.transform(batch)[0], encoding

    together = encoded(targets)
    for t in range(2):
        for both, alone in zip(together[:2], encoded(targets[:, t])[:2], strict=True):
            np.testing.assert_allclose(both[:, [t]], alone, rtol=1e-12)
    assert together[2].feature_names == ("c (mean of target 1)", "c (mean of target 2)")
    again = TableEncoding.from_dict(json.loads(json.dumps(together[2].to_dict())))
    np.testing.assert_array_equal(again.transform(next(iter(source.batches())))[0], together[1])


@pytest.mark.parametrize("name", ["b", "z"])
def test_the_names_of_classes_do_not_matter_to_what_levels_tell(name):
    """Of classes a, b, c the number 1 is that of b, and the mean of a level that is half a, half c."""
    rng = np.random.default_rng(0)
    level, coin = rng.integers(0, 30, 900), rng.uniform(size=900) < 0.5
    y = np.where(level % 2 == 0, name, np.where(coin, "a", "c"))
    frame = pd.DataFrame({"level": [f"L{i}" for i in level], "y": y})
    split = split_table(open_table_of(frame), TableSettings(target="y"))
    assert split.X.shape[1] == 2
    code = {label: k for k, label in enumerate(sorted({"a", name, "c"}))}
    means = {k: split.X[split.y == code[k]].mean(axis=0) for k in code}
    # The middle class of three is told from the other two, whatever it is called.
    assert min(np.abs(means[name] - means[other]).max() for other in "ac") > 0.7


def open_table_of(frame):
    return coded(open_table(frame), "y", sorted(frame["y"].unique()))


def test_an_encoder_takes_one_number_for_each_row_and_arrays_of_mixed_kinds() -> None:
    frame = pd.DataFrame({"c": np.resize(list("abcdefghijklmnop"), 64), "x": np.arange(64.0)})
    for y in (np.zeros((64, 2)), np.zeros(63), np.zeros(128)):
        with pytest.raises(ValueError, match="y has"):
            TableEncoder().fit(frame, y)
    array = frame.astype(object).to_numpy()
    array[3, 0], array[5, 1] = np.nan, None
    with_gaps = TableEncoder().fit(array).encoding_
    assert [column.kind for column in with_gaps.columns] == ["categorical", "numeric"]
    array[7, 1] = "word"
    with pytest.raises(TableError, match="holds numbers but for 'word' in row 8"):
        TableEncoder().fit(array)
    assert TableEncoder().fit(pd.DataFrame({"big": [2**70, 1, 2], "x": [1.0, 2.0, 3.0]})).n_features_in_ == 2


@pytest.mark.parametrize(
    "levels, later",
    [([0, 1, 2], [0.0, 1.0, 2.0]), ([0, 1, 2], [0.0, np.nan, 2.0]), ([True, False], [True, False])],
)
def test_levels_of_numbers_and_booleans_are_known_however_they_are_stored_later(
    levels: list, later: list
) -> None:
    frame = pd.DataFrame({"c": pd.Categorical(levels * 20), "y": np.arange(20.0 * len(levels))})
    encoder = TableEncoding.fit(pa.Table.from_pandas(frame), "y")
    names = [None if value != value else type(levels[0])(value) for value in later]
    known = pd.DataFrame({"c": pd.Categorical(names, categories=sorted(levels))})
    expected, _ = encoder.transform(pa.Table.from_pandas(known))
    found, _ = encoder.transform(pa.table({"c": pa.array(later, from_pandas=True)}))
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found, axis=0)) == len(later)
    as_stored, _ = encoder.transform(pa.table({"c": later}))
    np.testing.assert_array_equal(as_stored, expected)


def test_columns_that_are_not_read_may_hold_anything() -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "y": np.arange(40.0) ** 2})
    encoder = TableEncoding.fit(pa.Table.from_pandas(frame), "y")
    ages = pd.cut(frame.a, [-1, 10, 20, 50])
    odd = frame.assign(ages=ages, parts=[np.array([1, 2]), "a", pd.NA, None] * 10)
    (batch,) = open_table(odd).batches()
    np.testing.assert_array_equal(encoder.transform(batch)[0], encoder.transform(pa.table(frame))[0])
