"""Any bytes and any table: a result that keeps its promises, or a `TableError` in one line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from widegp.data.columns import TableEncoding
from widegp.data.tables import TableError, open_table

ODD = [
    "",
    "NA",
    "1",
    "-2.5",
    "1e999",
    "inf",
    "1,234",
    "12%",
    "true",
    "False",
    "abc",
    "é",
    "2020-01-01",
    "a b",
]
ODD += ["2020-02-31", "2020-01-01T10:00:00Z", "31/12/2020", '"', "\n", ";", "\x00", "9" * 40]
words = st.sampled_from(ODD) | st.text(max_size=4)
csv_text = st.lists(st.lists(words, min_size=1, max_size=4).map(",".join), max_size=8).map("\n".join)
suffixes = st.sampled_from([".csv", ".tsv", ".parquet", ".feather", ""])


def columns_of(n: int) -> st.SearchStrategy[pa.Array]:
    """Arrays of n values, many of them odd, of every type a table may have."""

    def array(kind: pa.DataType, values: st.SearchStrategy) -> st.SearchStrategy[pa.Array]:
        pool = st.lists(values, min_size=1, max_size=4)
        cells = pool.flatmap(lambda few: st.lists(st.sampled_from([*few, None]), min_size=n, max_size=n))
        return cells.map(lambda items: pa.array(items, kind))

    moments = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2 * 10**15)
    return st.one_of(
        array(pa.float64(), st.floats()),
        array(pa.float32(), st.floats(width=32)),
        array(pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        array(pa.uint8(), st.integers(0, 255)),
        array(pa.bool_(), st.booleans()),
        array(pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
        array(pa.binary(), st.binary()),
        array(pa.timestamp("us"), moments),
        array(pa.timestamp("s", "UTC"), moments),
        array(pa.timestamp("ns"), moments),
        array(pa.date32(), st.integers(-(2**31), 2**31 - 1)),
        array(pa.duration("ns"), moments),
        array(pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2)),
        array(pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=2)),
        array(pa.null(), st.none()),
        array(pa.string(), st.text(st.characters(exclude_categories=["Cs"]))).map(
            lambda a: a.dictionary_encode()
        ),
    )


names = st.sampled_from(["a", "b", "c", "d", "a=1", "a (missing)"])
any_tables = (
    st.integers(0, 8).flatmap(lambda n: st.dictionaries(names, columns_of(n), min_size=1)).map(pa.table)
)


def check(error: TableError) -> None:
    text = str(error)
    assert "\n" not in text and text[-1] in ".?" and len(text) < 1000


def use(path: Path) -> None:
    try:
        source = open_table(path)
        table = source.read()
        assert table.schema.names == source.names
        assert table.num_rows == sum(batch.num_rows for batch in source.batches(rows=3)) > 0
        encoder = TableEncoding.fit(source, None)
    except TableError as error:
        check(error)
        return
    # What was fitted must read the rows that it was fitted to, whatever the batches, without a complaint.
    few, many = ([encoder.transform(batch) for batch in source.batches(rows=rows)] for rows in (3, 10**6))
    np.testing.assert_array_equal(*(np.vstack([part for part, _ in parts]) for parts in (few, many)))
    assert not any(other for _, other in (*few, *many))


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=200), suffixes)
def test_any_bytes(data: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        path.write_bytes(data)
        use(path)


@settings(deadline=None, max_examples=300)
@given(csv_text, st.sampled_from([".csv", ".tsv"]))
def test_any_text(text: str, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        path.write_bytes(text.encode("utf-8", "replace"))
        use(path)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(any_tables, st.sampled_from([".parquet", ".feather"]), st.integers(0, 10**6), st.integers(0, 255))
def test_any_table_in_a_file_whole_or_damaged(table: pa.Table, suffix: str, at: int, byte: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        try:
            (pq.write_table if suffix == ".parquet" else feather.write_feather)(table, path)
        except pa.ArrowException:  # a type or a date that the format cannot hold
            return
        use(path)
        data = bytearray(path.read_bytes())
        data[at % len(data)] = byte
        path.write_bytes(data)
        use(path)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(any_tables, any_tables, st.sampled_from(["impute", "refuse"]))
def test_any_table_any_batch(table: pa.Table, later: pa.Table, missing: str) -> None:
    try:
        encoder = TableEncoding.fit(table, None, missing=missing)
    except TableError as error:
        check(error)
        return
    again = TableEncoding.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    matrix, said = encoder.transform(table)
    assert matrix.shape == (table.num_rows, len(encoder.feature_names)) and np.isfinite(matrix).all()
    assert not said
    # A feature that was kept tells training rows apart; a season need not, where all dates are of one day.
    kept = [i for i, name in enumerate(encoder.feature_names) if "of year" not in name]
    assert (np.ptp(matrix[:, kept], axis=0) > 0).all()
    for batch in (later, table.slice(0, 1)):
        try:
            matrix, said = again.transform(batch)
        except TableError as error:
            check(error)
            continue
        assert matrix.shape == (batch.num_rows, len(encoder.feature_names)) and np.isfinite(matrix).all()
        assert all(count > 0 for count in said.values())
