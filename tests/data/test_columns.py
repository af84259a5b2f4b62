"""The fitted encoding of tables: what each kind of column becomes, against naive loops."""

from __future__ import annotations

import datetime as dt
import statistics
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

from widegp import TableEncoder
from widegp.data.columns import RowsToLearn, TableEncoding
from widegp.data.tables import TableError, TableSource
from widegp.notices import Notice, in_words

N = 12
Y = [float(i) for i in range(N)]
X = [0.5, -1.0, 2.0, 3.5, 8.0, 1.0, 0.0, -4.0, 2.5, 6.0, 7.0, 9.0]


def fit(
    target: str | None = "y", drop: tuple[str, ...] = (), missing: str = "impute", **columns: object
) -> TableEncoding:
    return TableEncoding.fit(pa.table({**columns, "y": Y}), target, drop, missing)


def notes(encoder: TableEncoding) -> dict[str, str]:
    return {row["name"]: row["note"] for row in encoder.summary()}


def test_numbers_and_booleans_pass_through() -> None:
    flags = [i % 3 == 0 for i in range(N)]
    encoder = fit(x=X, flag=flags)
    assert encoder.feature_names == ("x", "flag")
    matrix, said = encoder.transform(pa.table({"flag": flags, "x": X}))
    np.testing.assert_array_equal(matrix, np.column_stack([X, np.array(flags, float)]))
    assert not said and matrix.dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [
        pa.array([Decimal(i) / 4 for i in range(N)], pa.decimal128(10, 2)),
        pa.array([Decimal(i) / 4 for i in range(N)], pa.decimal256(50, 2)),
        pa.array(np.arange(N) / 4, pa.float16()),
        pa.array(np.arange(N) / 4, pa.float32()),
        pa.array([250 * i for i in range(N)], pa.int64()).cast(pa.duration("ms")),
        pa.array([250 * i for i in range(N)], pa.int32()).cast(pa.time32("ms")),
        pa.array([250_000_000 * i for i in range(N)], pa.int64()).cast(pa.time64("ns")),
        pa.array(np.arange(N) / 4).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(pa.array(range(1, N + 1), pa.int32()), pa.array(np.arange(N) / 4)),
    ],
    ids=lambda values: str(values.type),
)  # fmt: skip
def test_every_type_of_number(values: pa.Array) -> None:
    matrix, _ = fit(x=values).transform(pa.table({"x": values}))
    np.testing.assert_array_equal(matrix[:, 0], np.arange(N) / 4)


def test_large_integers_keep_their_size_and_are_noted() -> None:
    values = pa.array([2**63 + 2**40 * i for i in range(N)], pa.uint64())
    encoder = fit(x=values)
    matrix, _ = encoder.transform(pa.table({"x": values}))
    np.testing.assert_array_equal(matrix[:, 0], [float(2**63 + 2**40 * i) for i in range(N)])
    assert "2^53" in notes(encoder)["x"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), "dictionary"]
)
def test_levels_are_scikit_learns(kind: pa.DataType | str) -> None:
    words = ["red", "green", "blue", "green"] * 3
    array = pa.array(words).dictionary_encode() if kind == "dictionary" else pa.array(words, kind)
    encoder = fit(color=array)
    theirs = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(np.array(words)[:, None])
    assert encoder.feature_names == ("color=blue", "color=green", "color=red")
    new = ["green", "pink", "red", "pink"]
    matrix, said = encoder.transform(pa.table({"color": new}))
    np.testing.assert_array_equal(matrix, theirs.transform(np.array(new)[:, None]))
    assert in_words(said) == ["2 values of 'color' not seen when fitting"]


@pytest.mark.parametrize("n_levels", [20, 21, 50])
def test_many_levels_keep_the_frequent_ones(n_levels: int) -> None:
    rng = np.random.default_rng(n_levels)
    words = [f"l{i}" for i in range(n_levels)] + [
        f"l{i}" for i in rng.integers(0, n_levels, 500) ** 2 // n_levels
    ]
    table = pa.table({"c": words})
    encoder = TableEncoding.fit(table, None)
    frequent = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    own = sorted(word for word, _ in frequent[: 20 if n_levels <= 20 else 19])
    other = ["c (other)"] if n_levels > 20 else []
    assert list(encoder.feature_names) == [f"c={word}" for word in own] + other
    matrix, said = encoder.transform(table)
    expected = [
        [float(word == level) for level in own] + [float(word not in own)] * len(other) for word in words
    ]
    np.testing.assert_array_equal(matrix, expected)
    assert not said
    matrix, said = encoder.transform(pa.table({"c": ["never", None]}))
    assert matrix[0].sum() == (1.0 if other else 0.0) and not matrix[1].any()
    assert said[Notice("unseen", "c")] == 1


def test_the_order_of_rows_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"c": rng.choice([f"l{i}" for i in range(40)], 200), "x": rng.normal(size=200)})
    shuffled = table.take(pa.array(rng.permutation(200)))
    assert TableEncoding.fit(table, None) == TableEncoding.fit(shuffled, None)


def days(start: dt.datetime, step: dt.timedelta) -> list[dt.datetime]:
    return [start + i * step for i in range(N)]


def test_dates_count_days_from_the_first() -> None:
    times = days(dt.datetime(2023, 5, 1, 6), dt.timedelta(hours=30))
    encoder = fit(when=times)
    assert encoder.feature_names == ("when (days)",)
    matrix, _ = encoder.transform(pa.table({"when": times[::-1]}))
    np.testing.assert_allclose(matrix[::-1, 0], [1.25 * i for i in range(N)], rtol=1e-15)
    assert encoder.summary()[0]["min"] == "2023-05-01T06:00:00"


def test_dates_over_a_year_have_a_season() -> None:
    times = days(dt.datetime(2019, 12, 31, 18), dt.timedelta(days=61, hours=7))
    encoder = fit(when=times)
    matrix, _ = encoder.transform(pa.table({"when": times}))
    for row, time in zip(matrix, times, strict=True):
        elapsed = (time - times[0]) / dt.timedelta(days=1)
        angle = 2 * np.pi * ((time - dt.datetime(time.year, 1, 1)) / dt.timedelta(days=1)) / 365.25
        np.testing.assert_allclose(row, [elapsed, np.sin(angle), np.cos(angle)], atol=1e-12)


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns")])
def test_every_type_of_date(kind: pa.DataType) -> None:
    times = pa.array([dt.date(2020, 1, 1 + i) for i in range(N)]).cast(kind)
    matrix, _ = fit(when=times).transform(pa.table({"when": times}))
    np.testing.assert_array_equal(matrix[:, 0], np.arange(N))


def test_zones_are_moments_and_their_absence_is_counted() -> None:
    times = days(dt.datetime(2023, 5, 1, tzinfo=dt.UTC), dt.timedelta(days=1))
    encoder = fit(when=pa.array(times, pa.timestamp("us", "Asia/Tokyo")))
    same, said = encoder.transform(pa.table({"when": pa.array(times, pa.timestamp("us", "America/Lima"))}))
    np.testing.assert_array_equal(same[:, 0], np.arange(N))
    assert not said
    naive = pa.array([time.replace(tzinfo=None) for time in times])
    again, said = encoder.transform(pa.table({"when": naive}))
    np.testing.assert_array_equal(again, same)
    assert in_words(said) == [f"{N} values of 'when' without a time zone, unlike when fitting, taken in UTC"]


def gaps(values: list, *at: int) -> list:
    return [None if i in at else value for i, value in enumerate(values)]


def test_missing_values_become_the_median_and_an_indicator() -> None:
    holes = gaps(X, 2, 5, 7)
    encoder = fit(x=holes, z=X)
    assert encoder.feature_names == ("x", "x (missing)", "z")
    matrix, said = encoder.transform(pa.table({"x": holes, "z": X}))
    median = statistics.median(x for x in holes if x is not None)
    np.testing.assert_array_equal(matrix[:, 0], [median if x is None else x for x in holes])
    np.testing.assert_array_equal(matrix[:, 1], [x is None for x in holes])
    assert not said and encoder.summary()[0]["missing"] == 3


def test_nan_is_missing() -> None:
    holes = [float("nan") if i == 3 else x for i, x in enumerate(X)]
    encoder = fit(x=holes)
    assert encoder == fit(x=gaps(X, 3))


def test_missing_of_every_kind() -> None:
    columns = {
        "flag": gaps([i % 2 == 0 for i in range(N)], 1),
        "color": gaps(["a", "b", "c"] * 4, 2),
        "when": gaps(days(dt.datetime(2020, 1, 1), dt.timedelta(days=1)), 3),
    }
    encoder = fit(**columns)
    matrix, _ = encoder.transform(pa.table(columns))
    at = {name: i for i, name in enumerate(encoder.feature_names)}
    assert [np.flatnonzero(matrix[:, at[f"{name} (missing)"]]).tolist() for name in columns] == [
        [1],
        [2],
        [3],
    ]
    assert not matrix[2, [at["color=a"], at["color=b"], at["color=c"]]].any()
    assert matrix[3, at["when (days)"]] in np.arange(N)


def test_missing_for_the_first_time_is_counted() -> None:
    encoder = fit(x=X, color=["a", "b", "c"] * 4)
    matrix, said = encoder.transform(pa.table({"x": pa.nulls(2), "color": pa.nulls(2)}))
    assert matrix[0, 0] == statistics.median(X) and not matrix[:, 1:].any()
    assert in_words(said) == [
        "2 values of 'x' missing, as none was when fitting, and filled with the median",
        "2 values of 'color' missing, as none was when fitting, and taken as no level",
    ]


def test_missing_refused_by_choice() -> None:
    with pytest.raises(TableError, match="Column 'x' is missing in row 3; fill it in"):
        fit(x=gaps(X, 2, 5), missing="refuse")
    encoder = fit(x=X, missing="refuse")
    with pytest.raises(TableError, match="Column 'x' is missing in row 2; fill"):
        encoder.transform(pa.table({"x": [1.0, None, 2.0]}))


def test_columns_that_say_nothing_are_left_out_with_a_note() -> None:
    words = ["red", "green", "blue", "green"] * 3
    encoder = fit(
        x=X, constant=[7] * N, twin=X, empty=pa.nulls(N), id=[f"id{i}" for i in range(N)], color=words,
        again=words, list=[[i] for i in range(N)], pair=[{"a": i} for i in range(N)],
        bytes=pa.array([bytes([255, i]) for i in range(N)]), half=[i % 2 for i in range(N)],
        flag=[i % 2 == 1 for i in range(N)], when=[dt.date(2020, 1, 1)] * N, word=["same"] * N, out=X,
        drop=("out",),
    )  # fmt: skip
    assert encoder.input_names == ("x", "color", "half")
    assert {name: note for name, note in notes(encoder).items() if note} == {
        "constant": "left out: constant",
        "twin": "left out: the same as 'x'",
        "empty": "left out: no values",
        "id": "left out: 12 texts, all different: an identifier, it seems",
        "again": "left out: the same as 'color'",
        "list": "left out: list values cannot be inputs",
        "pair": "left out: struct values cannot be inputs",
        "bytes": "left out: binary values cannot be inputs",
        "flag": "left out: the same as 'half'",
        "when": "left out: constant",
        "word": "left out: constant",
        "out": "left out: by choice",
    }
    # What is left out is not asked for later, nor is it news when it is there.
    assert not encoder.transform(pa.table({"x": X, "color": words, "half": [1] * N, "id": ["u"] * N}))[1]


def test_a_constant_with_gaps_is_an_indicator() -> None:
    encoder = fit(x=gaps([1.0] * N, 0, 4), c=gaps(["yes"] * N, 1), also=gaps([3] * N, 1), z=gaps(X, 1))
    assert encoder.feature_names == ("x (missing)", "c (missing)", "z")
    assert notes(encoder) == {
        "x": "constant: an input says where it is missing",
        "c": "constant: an input says where it is missing",
        "also": "left out: constant, and missing where 'c' is",
        "z": "missing where 'c' is",
    }
    matrix, _ = encoder.transform(pa.table({"x": gaps([1.0] * 3, 1), "c": ["yes", "yes", None], "z": X[:3]}))
    np.testing.assert_array_equal(matrix, np.column_stack([[0, 1, 0], [0, 0, 1], X[:3]]))


@pytest.mark.parametrize(("missing", "flagged"), [(1, False), (3, False), (4, True), (60, True)])
def test_rare_gaps_have_no_indicator(missing: int, flagged: bool) -> None:
    """Of 200 rows 2% are 4; a column that is constant otherwise keeps its indicator whatever the share."""
    n, rng = 200, np.random.default_rng(0)
    holes = gaps(rng.normal(size=n).tolist(), *range(missing))
    table = pa.table({"x": holes, "c": gaps([1.0] * n, n - 1), "y": rng.normal(size=n)})
    encoder = TableEncoding.fit(table, "y")
    expected = ("x", "x (missing)", "c (missing)") if flagged else ("x", "c (missing)")
    assert encoder.feature_names == expected
    assert notes(encoder)["x"] == ("" if flagged else "too few gaps for an input that marks them")
    matrix, said = encoder.transform(table)
    median = statistics.median(x for x in holes if x is not None)
    np.testing.assert_array_equal(matrix[:, 0], [median if x is None else x for x in holes])
    assert not said


def test_row_numbers_look_like_an_identifier() -> None:
    n, rng = 40, np.random.default_rng(0)
    count, other = np.arange(n), rng.normal(size=n)
    columns = {
        "id": count, "back": -3 * count, "float": count.astype(float), "shuffled": rng.permutation(n),
        "half": count / 2, "twice": np.sort(count % 20), "other": other,
    }  # fmt: skip
    encoder = TableEncoding.fit(pa.table(columns), "other")
    noted = {c.name: [notice.kind for notice in c.notes] for c in encoder.columns if c.notes}
    # Order alone does not make an identifier, and what has the numbers of one stays.
    assert noted == {"id": ["the same"], "back": ["in order"], "float": ["in order"]}
    assert TableEncoding.fit(pa.table({"id": count, "y": other}), "y").feature_names == ("id",)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [("id", True), ("customer_id", True), ("Order No", True), ("row", True), ("ROWID", True), ("key", True),
     ("humid", False), ("count", False), ("day", False), ("year", False), ("amount", False)],
)  # fmt: skip
def test_identifiers_go_by_their_name(name: str, left_out: bool) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.permutation(60), "x": rng.normal(size=60), "y": rng.normal(size=60)})
    assert (name not in TableEncoding.fit(table, "y").feature_names) == left_out


def test_dates_are_no_identifiers_and_nearly_unique_text_is_none_to_learn_from() -> None:
    rng = np.random.default_rng(0)
    days = [f"{1 + i % 28:02d}.{1 + i // 28:02d}.2019" for i in range(100)]
    names = [f"name {i}" for i in range(60)] * 2
    noise = {"x": rng.normal(size=100), "y": rng.normal(size=100)}
    table = pa.table({"date_id": days, "name": names[:100], **noise})
    encoder = TableEncoding.fit(table, "y")
    assert encoder.feature_names == ("date_id (days)", "x")
    assert notes(encoder)["name"] == "left out: 60 different texts in 100 rows"


def test_many_levels_become_shrunken_means_of_the_target() -> None:
    """Against the posterior means of random effects at the variances that a one-way layout estimates."""
    rng = np.random.default_rng(0)
    words = [f"l{i}" for i in rng.integers(0, 30, 400) ** 2 // 30]
    effects = {word: rng.normal() for word in words}
    y = np.array([effects[word] for word in words]) + 0.7 * rng.normal(size=400) + 1e6
    table = pa.table({"c": words, "y": y})
    encoder = TableEncoding.fit(table, "y")
    assert encoder.feature_names == ("c (mean of target)",)
    groups = {word: np.array([v for w, v in zip(words, y, strict=True) if w == word]) for word in effects}
    within = sum(((g - g.mean()) ** 2).sum() for g in groups.values()) / (400 - len(groups))
    m = within / (y.var() - within)
    X, said = encoder.transform(pa.table({"c": [*groups, None, "never"]}))
    expected = [(g - y.mean()).sum() / (len(g) + max(m, 1)) for g in groups.values()]
    np.testing.assert_allclose(X[:, 0], [*expected, 0, 0], atol=1e-8)
    assert in_words(said) == [
        "1 value of 'c' missing, as none was when fitting, and taken as no level",
        "1 value of 'c' not seen when fitting",
    ]


def test_few_levels_become_means_of_a_target_of_two_classes_where_rows_are_many() -> None:
    rng = np.random.default_rng(0)
    words, x = rng.choice(["a", "b", "c"], 400), rng.normal(size=400)
    classes = (rng.random(400) < np.where(words == "a", 0.9, 0.3)).astype(float)

    def names(y: np.ndarray, rows: int) -> tuple[str, ...]:
        table = pa.table({"c": words[:rows], "x": x[:rows], "y": y[:rows]})
        return TableEncoding.fit(table, "y").feature_names

    each = ("c=a", "c=b", "c=c", "x")
    assert names(classes, 400) == ("c (mean of target)", "x")
    assert names(classes, 200) == each, "too few rows of a level"
    assert names(classes + (x > 1), 400) == each, "three values are no two classes"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 199))
def test_a_rows_own_target_never_enters_its_input(seed: int, row: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"c": [f"l{i}" for i in rng.integers(0, 40, 200)], "x": rng.normal(size=200)})
    y = rng.normal(size=200)
    before = TableEncoder().fit_transform(frame, y)
    y[row] += 1000.0
    after = TableEncoder().fit_transform(frame, y)
    folds = RowsToLearn.of(np.ones(200, bool), y).folds
    # The mean of y, which is taken off, rose by 1000 / 200; nothing else changes for rows of its fold.
    np.testing.assert_allclose((after - before)[folds == folds[row], 0], -5.0, atol=1e-9)


def test_batches_add_up_to_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame({
        "x": rng.normal(size=n), "c": rng.choice([f"l{i}" for i in range(30)], n),
        "d": pd.date_range("2019-01-01", periods=n).strftime("%d/%m/%Y"), "k": rng.choice(["a", "b"], n),
        "gaps": gaps([*range(n)], 4, 9, 77, 80, 81, 82), "twin": rng.integers(0, 9, n),
        "y": rng.normal(size=n),
    }).assign(again=lambda f: f["twin"])  # fmt: skip
    whole = TableEncoding.fit(frame, "y")
    assert len(whole.feature_names) == 8
    batches = TableSource.batches
    monkeypatch.setattr(TableSource, "batches", lambda self, rows=7, columns=None: batches(self, 7, columns))
    parts = TableEncoding.fit(frame, "y")
    for one, other in zip(whole.columns, parts.columns, strict=True):
        means = [getattr(column, "means", ()) for column in (one, other)]
        assert means[0] == pytest.approx(means[1], abs=1e-12)
        assert replace(one, **({"means": means[1]} if means[1] else {})) == other


def test_the_median_of_many_rows_is_that_of_an_even_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widegp.data.statistics.SAMPLED", 500)
    x = np.random.default_rng(0).normal(size=20_000)
    column = TableEncoding.fit(pa.table({"x": x}), None).columns[0]
    assert column.median != np.median(x) and abs(column.median - np.median(x)) < 0.2


def test_feature_names_are_told_apart() -> None:
    encoder = fit(**{"c": ["a", "b", "c"] * 4, "c=a": X})
    assert len(set(encoder.feature_names)) == 4
