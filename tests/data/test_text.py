"""Columns of text cells: what they are taken for, against Python's own parsers."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from widegp.data.text import MISSING, NUMBER, are_times, as_numbers, as_times, clean, settle_column


def column(*cells: str | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells, pa.string())])


@pytest.mark.parametrize("spelling", MISSING)
@pytest.mark.parametrize("blanks", ["{}", " {}", "{}\t"])
def test_missing_spellings(spelling: str, blanks: str) -> None:
    settled = settle_column(column("1.5", blanks.format(spelling), "2"))
    assert settled.column.to_pylist() == [1.5, None, 2.0]


@pytest.mark.parametrize("level", ["Na", "None", "none", "missing", "-", "nan?", "NaNa"])
def test_words_that_only_resemble_missing(level: str) -> None:
    assert settle_column(column("K", level)).column.to_pylist() == ["K", level]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2"], "double"),
        (["1", "2.5"], "double"),
        (["1e3", "-.5", "+7", "5."], "double"),
        (["9" * 30, "0001"], "double"),
        (["true", "False", "TRUE"], "bool"),
        (["true", "false", "maybe"], "string"),
        (["true", "1"], "string"),
        (["2024-01-31", ""], "timestamp[us]"),
        (["2024-01-31 12:00", "2024-01-31T12:00:01.5"], "timestamp[us]"),
        (["2024-01-31T12:00:00Z", "2024-01-31"], "timestamp[us, tz=UTC]"),
        (["2024-01-31T12:00:00+0530", "2024-01-31T12:00-11:00"], "timestamp[us, tz=UTC]"),
        (["2024-01", "2024-02"], "string"),
        (["a", "b"], "string"),
        (["1", "2", "B"], "string"),
        (["", "NA", "?"], "null"),
    ],
)
def test_what_columns_are(cells: list[str], kind: str) -> None:
    settled = settle_column(column(*cells))
    assert str(settled.column.type) == kind
    assert settled.refused == ""


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1.5", "", "x", "2"], "numbers but for 'x' in row 3"),
        ([str(i) for i in range(40)] + ["err"], "numbers but for 'err' in row 41"),
        (["2024-01-01", "2024-02-31"], "dates but for '2024-02-31' in row 2"),
        (["2024-01-01", "2024-01-02", "soon"], "dates but for 'soon' in row 3"),
        (["1,234", "5"], "'1,234' in row 1, which must be written plainly"),
        (["5", "$1,234.50"], r"'\$1,234.50' in row 2, which must be written plainly"),
        (["1,5", "2,25"], "'1,5' in row 1, which must be written plainly"),
        (["12%", "7%"], "'12%' in row 1"),
        (["1'000", "(5)"], '"1\'000" in row 1'),
        (["31/12/2024", "1.2.2024"], "'31/12/2024' in row 1, where day and month"),
        (["", "2024/12/31"], "'2024/12/31' in row 2, where day and month"),
    ],
)
def test_what_is_refused(cells: list[str], words: str) -> None:
    settled = settle_column(column(*cells))
    assert settled.column.type == pa.string()
    assert pc.match_substring_regex(pa.scalar(settled.refused), words).as_py(), settled.refused


def test_codes_are_levels_with_a_remark() -> None:
    settled = settle_column(column("10", "11", "K", "10"))
    assert settled.refused == "" and "first 'K' in row 3" in settled.remark


numbers = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers().map(str),
    st.from_regex(r"\A[+-]?([0-9]{1,4}\.?[0-9]{0,4}|\.[0-9]{1,4})([eE][+-]?[0-9]{1,3})?\Z"),
)


@given(st.lists(numbers, min_size=1, max_size=8))
def test_numbers_are_pythons(words: list[str]) -> None:
    read = as_numbers(column(*words))
    assert isinstance(read, pa.ChunkedArray)
    assert read.to_pylist() == [float(word) for word in words]


@given(st.lists(st.text(alphabet="0123456789+-.eE infaINFxX_", max_size=8), min_size=1))
@example(["nan(1)"])
@example(["1e", "1"])
def test_a_position_is_given_where_a_cell_is_no_number(words: list[str]) -> None:
    cells = clean(column(*words))
    read = as_numbers(cells)
    if isinstance(read, pa.ChunkedArray):
        return
    assert not pc.match_substring_regex(cells[read], NUMBER).as_py()
    assert cells[read].as_py() is not None


zones = st.sampled_from(
    [None, dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), dt.timezone(dt.timedelta(hours=-11))]
)
moments = st.datetimes(
    min_value=dt.datetime(1000, 1, 2), max_value=dt.datetime(9999, 12, 30), timezones=zones
)


@given(st.lists(moments, min_size=1), st.sampled_from(["T", " "]))
def test_times_are_pythons(times: list[dt.datetime], between: str) -> None:
    words = [time.isoformat(between) for time in times]
    assert pc.all(are_times(pa.array(words))).as_py()
    read = as_times(column(*words)).cast(pa.int64()).to_pylist()
    start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    utc = [time if time.tzinfo else time.replace(tzinfo=dt.UTC) for time in times]
    assert read == [(time - start) // dt.timedelta(microseconds=1) for time in utc]


@given(st.integers(1000, 9999), st.integers(0, 13), st.integers(0, 32))
def test_days_that_exist(year: int, month: int, day: int) -> None:
    try:
        dt.date(year, month, day)
        exists = True
    except ValueError:
        exists = False
    assert are_times(pa.array([f"{year}-{month:02d}-{day:02d}"])).to_pylist() == [exists]


@given(
    st.lists(
        st.one_of(st.text(), numbers, st.sampled_from([*MISSING, "true", "2024-02-30", "1,5"])), min_size=1
    )
)
def test_any_column_settles(words: list[str]) -> None:
    words = [word.encode("utf-8", "replace").decode() for word in words]
    settled = settle_column(column(*words))
    assert len(settled.column) == len(words)
    trimmed = clean(column(*words)).to_pylist()
    for word, value in zip(trimmed, settled.column.to_pylist(), strict=True):
        if isinstance(value, float):
            assert math.isnan(value) or float(word) == value
        else:
            assert (value is None) == (word is None)
