"""Columns, their inputs, and the values at which their effects are drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from widegp.data.columns import TableEncoding
from widegp.sources import Source, source_columns, states_of


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 400
    return pa.table(
        {
            "size": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.1),
            "town": pa.array(rng.choice(["a", "b=c", "town"], n), mask=rng.random(n) < 0.1),
            "same": np.ones(n),
            "sold": np.datetime64("2019-03-01") + rng.integers(0, 900, n).astype("m8[D]"),
            "new": rng.random(n) < 0.5,
            "price": rng.normal(size=n),
        }
    )


@pytest.fixture(scope="module")
def encoded(table):
    encoder = TableEncoding.fit(table, "price")
    return {source.name: source for source in source_columns(encoder)}, encoder.transform(table)[0], encoder


def test_sources_are_the_columns_of_the_table(encoded):
    sources, _, encoder = encoded
    kinds = {name: source.kind for name, source in sources.items()}
    assert kinds == {"size": "number", "town": "category", "sold": "date", "new": "number"}
    assert [j for s in sources.values() for j in s.inputs] == list(range(len(encoder.feature_names)))
    assert all(encoder.feature_names[j].startswith(s.name) for s in sources.values() for j in s.inputs)
    assert sources["town"].levels == ("a", "b=c", "town")


def test_every_state_is_that_of_a_row(encoded):
    """No row of two levels, none with the season of another day; gaps are a state of a category."""
    sources, X, _ = encoded
    for name in ("town", "sold"):
        states = states_of(sources[name], X)
        there = {tuple(row) for row in X[:, sources[name].inputs]}
        assert {tuple(row) for row in states.inputs} <= there
    assert states_of(sources["town"], X).labels == ["a", "b=c", "town", "(missing)"]


def test_dates_have_their_days(table, encoded):
    """Each label against the column of the table itself, by the row that shows the state."""
    sources, X, _ = encoded
    states = states_of(sources["sold"], X)
    days = table["sold"].to_numpy().astype("M8[D]")
    for x, inputs, label in zip(states.x, states.inputs, states.labels, strict=True):
        row = int(np.flatnonzero((X[:, sources["sold"].inputs] == inputs).all(1))[0])
        assert label == str(days[row]) and x == days[row].astype(int)
    assert not states.discrete and np.all(np.diff(states.x) > 0)


def test_numbers_are_not_missing_on_their_grid(encoded):
    sources, X, _ = encoded
    states = states_of(sources["size"], X)
    assert states.labels is None and np.all(states.inputs[:, 1] == 0)
    known = X[X[:, sources["size"].inputs[1]] == 0, sources["size"].inputs[0]]
    assert states.x[[0, -1]] == pytest.approx(np.quantile(known, [0.02, 0.98]))


def test_an_input_of_few_values_gets_those():
    states = states_of(Source("x", (0,)), np.array([[2.0], [0.0], [2.0], [5.0]]))
    assert states.discrete and states.x.tolist() == [0.0, 2.0, 5.0]


def test_a_category_of_many_levels_is_drawn_at_its_levels():
    """It became the mean of the target by level; its states are the levels that most rows have."""
    codes = {"low": -2.0, "middle": 0.5, "also middle": 0.5, "high": 3.0}
    source = Source("agent", (0, 1), "category", tuple(codes), tuple(codes.values()))
    rows = [(-2.0, 0.0)] * 5 + [(3.0, 0.0)] * 4 + [(0.5, 0.0)] * 3 + [(0.1, 1.0)] * 2 + [(0.2, 0.0)]
    states = states_of(source, np.array(rows))
    assert states.labels == ["low", "(missing)", "(others)", "middle, ...", "high"] and states.discrete
    np.testing.assert_array_equal(states.inputs[:, 0], [-2.0, 0.1, 0.2, 0.5, 3.0])
    many = Source("agent", (0,), "category", tuple(map(str, range(40))), tuple(map(float, range(40))))
    drawn = states_of(many, np.repeat(np.arange(40.0), np.arange(1, 41))[:, None])
    assert drawn.labels == [str(k) for k in range(28, 40)]


def test_columns_of_means_keep_their_levels():
    rng = np.random.default_rng(0)
    words = [f"agent {i % 30}" for i in range(300)]
    frame = pd.DataFrame({"agent": words, "y": rng.normal(size=300)})
    (source,) = source_columns(TableEncoding.fit(frame, "y"))
    assert source.kind == "category" and len(source.levels) == len(source.codes) == 30
