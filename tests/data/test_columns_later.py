"""Tables that come after the fit, targets, and choices: the right features, or a clear word."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.tables import FOLDER

from widegp.data.columns import TableEncoding
from widegp.data.tables import TableError, TableSource, open_table
from widegp.notices import Notice, in_words

N = 12
Y = [float(i) for i in range(N)]
X = [0.5, -1.0, 2.0, 3.5, 8.0, 1.0, 0.0, -4.0, 2.5, 6.0, 7.0, 9.0]


def fit(
    target: str | None = "y", drop: tuple[str, ...] = (), missing: str = "impute", **columns: object
) -> TableEncoding:
    return TableEncoding.fit(pa.table({**columns, "y": Y}), target, drop, missing)


def csv_table(folder: Path, text: str) -> TableSource:
    path = folder / "t.csv"
    path.write_text(text)
    return open_table(path)


def one_batch(folder: Path, text: str, rows: int = 65536) -> list[pa.RecordBatch]:
    path = folder / "new.csv"
    path.write_text(text)
    return list(open_table(path).batches(rows=rows))


def gaps(values: list, *at: int) -> list:
    return [None if i in at else value for i, value in enumerate(values)]


FITTED = {"x": X, "flag": [i % 3 == 0 for i in range(N)], "color": ["a", "b", "c"] * 4,
          "when": [dt.date(2020, 1, 1 + i) for i in range(N)]}  # fmt: skip
CHANGED = {
    "number to text": ("x", ["big"], "'x' held numbers when fitting, and row 1 holds 'big'; write it like"),
    "number to date": ("x", [dt.date(2020, 1, 1)], "'x' held numbers when fitting and is date32"),
    "number to list": ("x", [[1.0]], "'x' held numbers when fitting and is list now"),
    "number to bytes": ("x", [b"\xff"], "'x' held numbers when fitting and is binary now"),
    "infinite": ("x", [float("-inf")], "'x' holds an infinite value in row 1; correct"),
    "enormous": ("x", [2e150], r"'x' holds 2e\+150, beyond 1e\+150, in row 1"),
    "boolean to text": ("flag", ["yes"], "'flag' held booleans when fitting, and row 1 holds 'yes'"),
    "boolean to number": ("flag", [2], "'flag' held booleans when fitting, and row 1 holds 2; write"),
    "text to number": ("color", [1], "'color' held text when fitting and is int64 now; write it as text"),
    "text to boolean": ("color", [True], "'color' held text when fitting and is bool"),
    "date to number": ("when", [18262], "'when' held dates when fitting and is int64"),
    "date to text": ("when", ["soon"], "'when' held dates when fitting, and row 1 holds 'soon'"),
    "date too far": ("when", pa.array([2**60], pa.timestamp("us")), "outside the years 1 to 9999 in row 1"),
    "date overflow": ("when", pa.array([2**62], pa.timestamp("s")), "'when' cannot be converted"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_changed_columns_get_a_clear_word(case: str) -> None:
    name, values, words = CHANGED[case]
    new = {key: value[:1] for key, value in FITTED.items()} | {name: values}
    with pytest.raises(TableError, match=words) as caught:
        fit(**FITTED).transform(pa.table(new))
    assert "\n" not in str(caught.value)


def test_booleans_and_their_numbers_stand_for_each_other() -> None:
    encoder = fit(bit=[i % 2 for i in range(N)], flag=[i % 3 == 0 for i in range(N)])
    matrix, said = encoder.transform(pa.table({"bit": [True, False], "flag": [0, 1]}))
    np.testing.assert_array_equal(matrix, [[1.0, 0.0], [0.0, 1.0]])
    assert not said


def test_missing_and_extra_columns() -> None:
    encoder = fit(**FITTED)
    new = {key: value[:2] for key, value in FITTED.items() if key != "color"}
    with pytest.raises(TableError, match=r"lacks the column 'color' of the .*did you mean 'Color'\?"):
        encoder.transform(pa.table(new | {"Color": ["a", "b"]}))
    with pytest.raises(TableError, match=r"lacks the column 'x' and 3 more .* does not know are 'a'\."):
        encoder.transform(pa.table({"a": [1]}))
    _, said = encoder.transform(pa.table(new | {"color": ["a", "b"], "zip": [1, 2], "y": [1, 2]}))
    assert in_words(said) == ["2 rows with the column 'zip', which the model does not know and ignores"]


def test_values_out_of_range_are_counted_and_add_up_over_batches() -> None:
    encoder = fit(**FITTED)
    new = {
        "x": [-5.5, 10.5, -5.0],
        "flag": [True] * 3,
        "color": ["a"] * 3,
        "when": [dt.date(2019, 12, 30)] * 3,
    }
    table = pa.table(new)
    total: Counter[Notice] = Counter()
    for batch in table.to_batches(max_chunksize=1):
        total += encoder.transform(batch)[1]
    assert in_words(total) == [
        "3 values of 'when' outside the training range, 2020-01-01 to 2020-01-12",
        "2 values of 'x' outside the training range, -4 to 9",
    ]
    assert total == encoder.transform(table)[1]


def test_values_just_out_of_range_are_no_news() -> None:
    """x spans -4 to 9 and the dates 11 days: a tenth more is not far."""
    new = {"x": [-5.2, 10.2], "flag": [True] * 2, "color": ["a"] * 2}
    _, said = fit(**FITTED).transform(pa.table(new | {"when": [dt.date(2019, 12, 31), dt.date(2020, 1, 13)]}))
    assert not said


def test_many_columns_out_of_range_share_a_line() -> None:
    powers = {name: [float(i**k) for i in range(12)] for k, name in enumerate("abcde", start=1)}
    encoder = fit(**powers, color=["u", "v", "w"] * 4)
    _, said = encoder.transform(pa.table({name: [-1e6, 1e6] for name in powers} | {"color": ["new", "u"]}))
    assert in_words(said) == [
        "10 values of 'a', 'b', 'c' and 2 more columns outside the training range",
        "1 value of 'color' not seen when fitting",
    ]


def test_csv_is_parsed_with_the_types_of_the_fit(tmp_path: Path) -> None:
    header = "x,code,flag,when,y\n"
    fitted = header + "".join(
        f"{i}.5,{'AB1'[i % 3]},{'true' if i % 2 else 'FALSE'},2020-01-{i + 1:02d},{i}\n" for i in range(N)
    )
    encoder = TableEncoding.fit(csv_table(tmp_path, fitted), "y")
    assert [row["kind"] for row in encoder.summary()] == ["numeric", "categorical", "boolean", "date"]
    # On its own this batch would be read as integers, integers, integers, and nothing.
    [batch] = one_batch(tmp_path, header + "7,1,1,,0\n8,1,0,NA,0\n")
    matrix, _ = encoder.transform(batch)
    at = {name: i for i, name in enumerate(encoder.feature_names)}
    np.testing.assert_array_equal(matrix[:, at["x"]], [7, 8])
    np.testing.assert_array_equal(matrix[:, at["code=1"]], [1, 1])
    np.testing.assert_array_equal(matrix[:, at["flag"]], [1, 0])
    np.testing.assert_array_equal(encoder.target(batch), [0, 0])
    source = open_table(tmp_path / "new.csv")
    with pytest.raises(TableError, match="'code' held text when fitting and is double now"):
        encoder.transform(source.read())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("abc,A,true,2020-01-01", "'x' held numbers when fitting, and row 8 holds 'abc'; write it like 12.5"),
        ('"1,234",A,true,2020-01-01', "'x' held numbers .* row 8 holds '1,234'"),
        ("inf,A,true,2020-01-01", "'x' holds an infinite value in row 8"),
        ("1e400,A,true,2020-01-01", "'x' holds an infinite value in row 8"),
        ("1e200,A,true,2020-01-01", r"'x' holds 1e\+200, beyond"),
        ("1,A,yes,2020-01-01", "'flag' held booleans .* row 8 holds 'yes'; write it like true or false"),
        ("1,A,2,2020-01-01", "'flag' held booleans .* row 8 holds 2"),
        ("1,A,true,31/12/2020", "'when' held dates .* row 8 holds '31/12/2020'; write it like 2024-12-31"),
        ("1,A,true,2020-02-30", "'when' held dates .* row 8 holds '2020-02-30'"),
    ],
)
def test_rows_are_numbered_through_all_batches(tmp_path: Path, row: str, words: str) -> None:
    header = "x,code,flag,when\n"
    good = "".join(
        f"{i}.5,{'AB1'[i % 3]},{'true' if i % 2 else 'FALSE'},2020-01-{i + 1:02d}\n" for i in range(7)
    )
    encoder = TableEncoding.fit(csv_table(tmp_path, header + good), None)
    with pytest.raises(TableError, match=words):
        for batch in one_batch(tmp_path, f"{header}{good}{row}\n{good}", rows=3):
            encoder.transform(batch)


def test_a_refused_column_keeps_the_row_of_the_file_and_may_be_dropped(tmp_path: Path) -> None:
    text = "x,z,y\n" + "".join(f"{i if i != 30 else 'err'},{i}.25,{i}\n" for i in range(40))
    part = csv_table(tmp_path, text)
    with pytest.raises(TableError, match="Column 'x' holds numbers but for 'err' in row 31; correct that"):
        TableEncoding.fit(part, "y")
    assert TableEncoding.fit(part, "y", drop=["x"]).feature_names == ("z",)
    with pytest.raises(TableError, match="Target 'x' holds numbers but for 'err' in row 31; correct"):
        TableEncoding.fit(part, "x", drop=["y"])
    # Both at once, and what else is wrong: one message says it all.
    with pytest.raises(TableError, match=r"2 problems: \(1\) .*has no target 'Y'.* \(2\) Column 'x' holds"):
        TableEncoding.fit(part, "Y")


TARGETS = {
    "text": (["a"] * N, "Target 't' holds 'a' in row 1, which is no number; correct"),
    "boolean": ([True] * N, "Target 't' holds bool values; write them as 0 and 1"),
    "written booleans": (["true"] * N, "Target 't' holds 'true' in row 1, which is no number"),
    "date": ([dt.date(2020, 1, 1)] * N, "Target 't' holds date32 values; write numbers"),
    "list": ([[1]] * N, "Target 't' holds list values"),
    "nan": ([float("nan")] * N, "has 0 rows; a fit needs at least 2"),
    "empty": (pa.nulls(N), "has 0 rows; a fit needs at least 2"),
    "infinite": (
        [*Y[:-1], float("inf")],
        "Target 't' holds an infinite value in row 12; correct it, or drop",
    ),
    "enormous": ([*Y[:-1], -1e151], r"Target 't' holds -1e\+151, beyond"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_bad_targets(case: str) -> None:
    values, words = TARGETS[case]
    table = pa.table({"x": X, "t": values})
    with pytest.raises(TableError, match=words):
        TableEncoding.fit(table, "t").target(table)


def test_good_targets(tmp_path: Path) -> None:
    table = pa.table({"x": X, "t": pa.array([Decimal(i) for i in range(N)])})
    np.testing.assert_array_equal(TableEncoding.fit(table, "t").target(table), np.arange(N))
    batches = one_batch(tmp_path, "x,t\n1,2\n3,x\n", rows=1)
    encoder = TableEncoding.fit(pa.table({"x": [1, 2], "t": [1, 2]}), "t")
    np.testing.assert_array_equal(encoder.target(batches[0]), [2.0])
    with pytest.raises(TableError, match="Target 't' holds 'x' in row 2, which is no number"):
        encoder.target(batches[1])
    with pytest.raises(TableError, match="no target 't'; did you mean 'T'"):
        encoder.target(pa.table({"T": [1.0]}))
    with pytest.raises(TableError, match="No target was named"):
        TableEncoding.fit(table, None).target(table)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "prise"}, "no target 'prise'; did you mean 'price'"),
        ({"target": "zzzzzz"}, "no target 'zzzzzz'; the columns are 'x', 'price', 'y'"),
        ({"target": "y", "drop": ["pricé"]}, "no column 'pricé' to drop; did you mean 'price'"),
        ({"target": "y", "drop": ["y"]}, "'y' is the target and cannot be dropped"),
        ({"target": "y", "drop": "x"}, "pass a list of names"),
        ({"target": "y", "missing": "ignore"}, "choose 'impute' or 'refuse'"),
        ({"target": "y", "drop": ["x", "price"]}, "No column of the table can be used .*left out: by choice"),
    ],
)
def test_wrong_choices(arguments: dict, words: str) -> None:
    with pytest.raises(TableError, match=words):
        TableEncoding.fit(pa.table({"x": X, "price": Y, "y": X[::-1]}), **arguments)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"x": [1.0], "y": [1.0]}), "has 1 row; a fit needs at least 2"),
        (pa.table({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}), "but no rows"),
        (pa.table({"y": [1.0, 2.0]}), "it is the target alone"),
        (pa.table({"x": [1.0, 1.0], "y": [1.0, 2.0]}), "'x': left out: constant"),
        (pa.table([[1, 2], [3, 4], [5, 6]], names=["x", "x", "y"]), "columns 1 and 2 alike, 'x'"),
        ({"x": [1, 2], "y": [1, 2]}, "A table is needed, not dict"),
    ],
)
def test_tables_that_cannot_be_fitted(table: pa.Table, words: str) -> None:
    with pytest.raises(TableError, match=words):
        TableEncoding.fit(table, "y")


def test_no_rows_give_no_rows() -> None:
    encoder = fit(**FITTED)
    empty = pa.table({key: pa.array(value)[:0] for key, value in FITTED.items()})
    assert encoder.transform(empty)[0].shape == (0, len(encoder.feature_names))
    assert (
        encoder.transform(
            pa.table({key: pa.chunked_array([], pa.array(v).type) for key, v in FITTED.items()})
        )[0].size
        == 0
    )


def test_description_goes_through_json_unchanged() -> None:
    encoder = fit(**FITTED, holes=gaps(X, 3), constant=[1] * N)
    state = encoder.to_dict()
    again = TableEncoding.from_dict(json.loads(json.dumps(state)))
    assert again == encoder and again.to_dict() == state == json.loads(json.dumps(state))
    new = pa.table({key: value[:3] for key, value in FITTED.items()} | {"holes": [0.1, None, 2.0]})
    np.testing.assert_array_equal(again.transform(new)[0], encoder.transform(new)[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("columns"),
        lambda state: state.update(format=99),
        lambda state: state.update(missing="x"),
        lambda state: state.update(target=3),
        lambda state: state["columns"][0].pop("median"),
        lambda state: state["columns"][0].update(median="1"),
        lambda state: state["columns"][0].update(median=float("nan")),
        lambda state: state["columns"][0].update(kind="date"),
        lambda state: state["columns"][0].update({"class": "object"}),
        lambda state: state["columns"][2].update(levels="abc"),
        lambda state: state["columns"][3].update(low=10**30),
        lambda state: state.update(columns=3),
    ],
)  # fmt: skip
def test_descriptions_of_nothing_fitted(change) -> None:
    state = fit(**FITTED).to_dict()
    change(state)
    with pytest.raises(TableError, match="describes no fitted table"):
        TableEncoding.from_dict(state)


@pytest.mark.skipif(
    not (FOLDER / "elevators.parquet").exists(),
    reason=f"elevators.parquet is not in {FOLDER.name}; set WIDEGP_DATA to its folder",
)
def test_a_real_table_comes_out_as_its_columns(tmp_path: Path) -> None:
    path = FOLDER / "elevators.parquet"
    table = pq.read_table(path)
    source = open_table(path)
    encoder = TableEncoding.fit(source.read(), "y", drop=["test"])
    parts = [encoder.transform(batch)[0] for batch in source.batches(rows=5000)]
    expected = np.column_stack([table[name].to_numpy() for name in encoder.feature_names])
    np.testing.assert_array_equal(np.vstack(parts), expected)
    assert encoder.feature_names == tuple(n for n in table.schema.names if n not in ("y", "test"))


def test_descriptions_of_the_first_version_are_read() -> None:
    """As widegp 0.1 wrote them: notes were sentences, and text had no notation."""
    common = {"missing": 0, "indicator": False}
    columns = [
        {"class": "Column", "name": "id", "kind": "categorical", "note": "left out: constant", **common},
        {"class": "NumericColumn", "name": "x", "kind": "numeric", "note": "", **common,
         "low": 0.0, "high": 2.0, "median": 1.0, "varies": True},
        {"class": "CategoricalColumn", "name": "c", "kind": "categorical", "note": "1 rare level", **common,
         "levels": ["a", "b"], "rare": ["z"], "other": True, "n_levels": 3},
    ]  # fmt: skip
    state = {"format": 1, "target": "y", "missing": "impute", "n_rows": 9, "columns": columns}
    encoder = TableEncoding.from_dict(json.loads(json.dumps(state)))
    assert [row["note"] for row in encoder.summary()] == ["left out: constant", "", "1 rare level"]
    matrix, said = encoder.transform(pa.table({"x": [0.5, 1.5], "c": ["b", "z"]}))
    np.testing.assert_array_equal(matrix, [[0.5, 0, 1, 0], [1.5, 0, 0, 1]])
    assert not said and TableEncoding.from_dict(encoder.to_dict()) == encoder


@pytest.mark.parametrize("twin", ["Unnamed: 0", "user_id"])
def test_a_column_stays_though_one_that_goes_is_the_same(twin: str) -> None:
    """A frame with t = 0, 1, ... that is written with its index has the numbers of t twice."""
    t = np.arange(60.0)
    encoder = TableEncoding.fit(pa.table({twin: t, "t": t, "y": t**2}), "y")
    assert encoder.feature_names == ("t",)


def test_gaps_that_tell_are_kept_though_an_identifier_has_them_too() -> None:
    x = np.where(np.arange(60) % 3 == 0, np.nan, np.random.default_rng(0).normal(size=60))
    table = pd.DataFrame({"user_id": np.where(np.isnan(x), np.nan, np.arange(60.0)), "x": x, "y": range(60)})
    assert TableEncoding.fit(pa.Table.from_pandas(table), "y").feature_names == ("x", "x (missing)")
