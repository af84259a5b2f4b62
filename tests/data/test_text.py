"""Columns of text cells: what they are taken for, against Python's own parsers."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from widegp.data.errors import Problems
from widegp.data.text import GAPS, MISSING, NUMBER, Reading, TextSurvey, clean, parse, reads, settle


def column(*cells: str | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells, pa.string())])


def settled(*columns: list[str], typed: bool = False, batch: int = 1000, **reading: str):
    """Notations, values, remarks and problems of columns of text, surveyed in batches of so many rows."""
    surveys = [TextSurvey(f"c{i}", typed) for i in range(len(columns))]
    for survey, cells in zip(surveys, columns, strict=True):
        for start in range(0, len(cells), batch):
            survey.update(clean(column(*cells[start : start + batch])), start)
    problems = Problems()
    found = settle(surveys, Reading(**reading), None, problems)
    values = [parse(clean(column(*cells)), found[f"c{i}"][0]).to_pylist() if f"c{i}" in found else None
              for i, cells in enumerate(columns)]  # fmt: skip
    return [found.get(f"c{i}", (None, ())) for i in range(len(columns))], values, problems.sentences


@pytest.mark.parametrize("spelling", MISSING)
@pytest.mark.parametrize("blanks", ["{}", " {}", "{}\t"])
def test_missing_spellings(spelling: str, blanks: str) -> None:
    assert settled(["1.5", blanks.format(spelling), "2"])[1] == [[1.5, None, 2.0]]


@pytest.mark.parametrize("level", ["Na", "None", "none", "missing", "- -", "nan?", "NaNa"])
def test_words_that_only_resemble_missing(level: str) -> None:
    assert settled(["K", level])[1] == [["K", level]]


@pytest.mark.parametrize(
    ("cells", "notation"),
    [
        (["1", "2"], "plain"),
        (["1", "2.5"], "plain"),
        (["1e3", "-.5", "+7", "5."], "plain"),
        (["9" * 30, "0001"], "plain"),
        (["true", "False", "TRUE"], "truth"),
        (["true", "false", "maybe"], "text"),
        (["true", "1"], "text"),
        (["2024-01-31", ""], "iso"),
        (["2024-01-31 12:00", "2024-01-31T12:00:01.5"], "iso"),
        (["2024-01-31T12:00:00Z", "2024-01-31"], "iso"),
        (["2024-01-31T12:00:00+0530", "2024-01-31T12:00-11:00"], "iso"),
        (["2024-01", "2024-02"], "day-first"),
        (["a", "b"], "text"),
        (["1", "2", "B"], "text"),
        (["", "NA", "?", "-"], "none"),
    ],
)
@pytest.mark.parametrize("batch", [1, 1000])
def test_what_columns_are(cells: list[str], notation: str, batch: int) -> None:
    [(found, _)], _, problems = settled(cells, batch=batch)
    assert found == notation and not problems


DAY = dt.datetime(2019, 2, 1)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,5", "2,25", "7"], [1.5, 2.25, 7.0]),
        (["1.234,5", "12", "-1.000"], [1234.5, 12.0, -1000.0]),
        (["12.345.678", "1.234"], [12345678.0, 1234.0]),
        (["1,234.5", "3"], [1234.5, 3.0]),
        (["1,234,567", "3"], [1234567.0, 3.0]),
        (["1.234", "5.678"], [1.234, 5.678]),
        (["1'234.5", "5"], [1234.5, 5.0]),
        (["1 234,5", "5"], [1234.5, 5.0]),
        (["1\u00a0234", "5"], [1234.0, 5.0]),
        (["83%", "5.5 %"], [83.0, 5.5]),
        (["83%", "5,5%"], [83.0, 5.5]),
        (["$1,234.50", "$5"], [1234.5, 5.0]),
        (["-3,5 €", "1.000 €"], [-3.5, 1000.0]),
        (["-$1,234.50", "$-5", "$7"], [-1234.5, -5.0, 7.0]),
        (["(1,234.50)", "5"], [-1234.5, 5.0]),
        (["1.234,50-", "5"], [-1234.5, 5.0]),
        (["−3,5", "1"], [-3.5, 1.0]),
        (["1234.50 EUR", "EUR 5"], [1234.5, 5.0]),
        (["83%", "5,5%", "1.234,5%"], [83.0, 5.5, 1234.5]),
        (["13:30", "1:30 PM", "00:00:05"], [48600.0, 48600.0, 5.0]),
        (["2/1/2019 3:45 PM", "2/13/2019 12:05 AM"], [DAY.replace(hour=15, minute=45),
                                                     dt.datetime(2019, 2, 13, 0, 5)]),
        (["1. März 2019", "1. Mrz 2019", "1 Dez. 2019"], [dt.datetime(2019, 3, 1)] * 2
         + [dt.datetime(2019, 12, 1)]),
        (["Feb 2019", "2019-02", "Februar 2019"], [DAY] * 3),
        (["01.02.2019", "13.02.2019"], [DAY, dt.datetime(2019, 2, 13)]),
        (["01.02.2019"], [DAY]),
        (["1/2/2019", "13/2/2019"], [DAY, dt.datetime(2019, 2, 13)]),
        (["2/1/2019", "2/13/2019"], [DAY, dt.datetime(2019, 2, 13)]),
        (["01/01/2019", "02/02/2019"], [dt.datetime(2019, 1, 1), dt.datetime(2019, 2, 2)]),
        (["1 Feb 2019", "01-FEB-2019", "1. February 2019"], [DAY] * 3),
        (["Feb 1, 2019", "February 1 2019"], [DAY] * 2),
        (["2019/2/1", "2019.02.01"], [DAY] * 2),
        (["01.02.2019 08:30", "01.02.2019 08:30:15"], [DAY.replace(hour=8, minute=30),
                                                      DAY.replace(hour=8, minute=30, second=15)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("batch", [1, 1000])
def test_other_notations(cells: list[str], values: list, typed: bool, batch: int) -> None:
    _, [found], problems = settled(cells, typed=typed, batch=batch)
    assert not problems and found == values


@pytest.mark.parametrize("word", GAPS)
def test_words_that_are_gaps_among_numbers_and_dates_alone(word: str) -> None:
    assert settled(["1.5", word, "2"])[1] == [[1.5, None, 2.0]]
    assert settled(["01.02.2019", word])[1] == [[DAY, None]]
    assert settled(["K", word])[1] == [["K", word]] and settled([word, word])[1] == [[word, word]]


@pytest.mark.parametrize(
    "cells", [["Marathon 2019", "Junior 2020"], ["13:77", "12:00"], ["(5", "6"], ["--5", "6"]]
)
def test_words_that_only_resemble_numbers_and_dates(cells: list[str]) -> None:
    assert settled(cells)[0][0][0] == "text"


def test_a_mark_in_doubt_is_asked_about_wherever_it_stands() -> None:
    assert "may mean 1234 or 1.234" in settled(["83%", "1,234%"])[2][0]


def test_a_notation_is_remarked_upon() -> None:
    [(_, [notice])], *_ = settled(["1.234,5", "2"])
    assert notice.words() == "written like '1.234,5', read as 1234.5"


def test_codes_that_were_declared_text_stay_text() -> None:
    many = [f"{i:05d}" for i in range(40)]
    assert settled(many, typed=True)[0][0][0] == "text" and settled(many)[0][0][0] == "plain"
    assert settled(["1", "2", "3"], typed=True)[0][0][0] == "text"
    assert settled([str(i) for i in range(40)], typed=True)[0][0][0] == "plain"


def test_doubt_is_asked_about_once_for_each_column() -> None:
    _, _, problems = settled(["1,234", "5"], ["01/02/2019"], ["1.5", "2,5,5"])
    assert len(problems) == 3
    assert "c0' holds numbers written like '1,234', which may mean 1234 or 1.234; say which" in problems[0]
    assert "c1' holds dates written like '01/02/2019', where day and month" in problems[1]
    assert "c2' holds numbers but for '2,5,5' in row 2" in problems[2]


@pytest.mark.parametrize(("reading", "value"), [
    ({"decimal": ","}, 1.234), ({"decimal": "."}, 1234.0),
    ({"thousands": "."}, 1.234), ({"thousands": ","}, 1234.0),
])  # fmt: skip
def test_the_reader_decides(reading: dict, value: float) -> None:
    assert settled(["1,234", "5"], **reading)[1] == [[value, 5.0]]


@pytest.mark.parametrize(("dates", "month"), [("day-first", 2), ("month-first", 1)])
def test_the_reader_decides_about_dates(dates: str, month: int) -> None:
    assert settled(["01/02/2019"], dates=dates)[1] == [[dt.datetime(2019, month, 3 - month)]]


def test_columns_without_doubt_decide_for_others() -> None:
    numbers = ["1,234", "5"], ["1.234", "5"], ["0,5", "7"]
    _, values, problems = settled(*numbers, ["01/02/2019"], ["31/12/2019"])
    assert not problems
    assert values[:2] == [[1.234, 5.0], [1234.0, 5.0]] and values[3] == [DAY]
    # Where they disagree nobody decides.
    assert "may mean" in settled(["1,234"], ["0,5"], ["0.5"])[2][0]


@pytest.mark.parametrize("reading", [
    {"decimal": ";"}, {"thousands": "x"}, {"decimal": ",", "thousands": ","}, {"dates": "first"},
])  # fmt: skip
def test_readings_that_cannot_be(reading: dict) -> None:
    with pytest.raises(ValueError, match="choose one of"):
        Reading(**reading)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1.5", "", "x", "2"], "numbers but for 'x' in row 3"),
        ([str(i) for i in range(40)] + ["err"], "numbers but for 'err' in row 41"),
        (["2024-01-01", "2024-02-31"], "dates but for '2024-02-31' in row 2"),
        (["2024-01-01", "2024-01-02", "soon"], "dates but for 'soon' in row 3"),
        (["01.01.2019", "30.02.2019"], "dates but for '30.02.2019' in row 2"),
        (["1,5", "2,25", "x"], "numbers but for 'x' in row 3"),
        (["$5", "7"], r"different signs \(\$ and none\)"),
        (["5%", "7"], r"different signs \(% and none\)"),
        (["01.02.19", "13.02.19"], "'01.02.19', whose years need four digits"),
    ],
)
@pytest.mark.parametrize("batch", [1, 1000])
def test_what_is_refused(cells: list[str], words: str, batch: int) -> None:
    _, _, [sentence] = settled(cells, batch=batch)
    assert pc.match_substring_regex(pa.scalar(sentence), words).as_py(), sentence


def test_codes_are_levels_with_a_remark() -> None:
    [(notation, [notice])], *_ = settled(["10", "11", "K", "10"])
    assert notation == "text" and "first 'K' in row 3" in notice.words()


numbers = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers().map(str),
    st.from_regex(r"\A[+-]?([0-9]{1,4}\.?[0-9]{0,4}|\.[0-9]{1,4})([eE][+-]?[0-9]{1,3})?\Z"),
)


@given(st.lists(numbers, min_size=1, max_size=8))
def test_numbers_are_pythons(words: list[str]) -> None:
    read = parse(column(*words), "plain")
    assert isinstance(read, pa.ChunkedArray)
    assert read.to_pylist() == [float(word) for word in words]


@given(st.lists(st.text(alphabet="0123456789+-.eE infaINFxX_", max_size=8), min_size=1))
@example(["nan(1)"])
@example(["1e", "1"])
def test_a_position_is_given_where_a_cell_is_no_number(words: list[str]) -> None:
    cells = clean(column(*words))
    read = parse(cells, "plain")
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
    assert reads(pa.array(words), "iso").all()
    read = parse(column(*words), "iso").cast(pa.int64()).to_pylist()
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
    written = {"iso": f"{year}-{month:02d}-{day:02d}", "day-first": f"{day:02d}.{month:02d}.{year}"}
    for notation, word in (written | {"month-first": f"{month}/{day}/{year}"}).items():
        assert reads(pa.array([word]), notation).tolist() == [exists]


@given(
    st.lists(
        st.one_of(st.text(), numbers, st.sampled_from([*MISSING, "true", "2024-02-30", "1,5", "7%"])),
        min_size=1,
    )
)
def test_any_column_settles(words: list[str]) -> None:
    words = [word.encode("utf-8", "replace").decode() for word in words]
    for batch in (2, 1000):
        [(notation, _)], [values], problems = settled(words, batch=batch)
        assert (notation is None) == bool(problems)
        trimmed = clean(column(*words)).to_pylist()
        for word, value in zip(trimmed, values or trimmed, strict=True):
            assert (value is None) == (word is None)
            if notation == "plain" and value is not None:
                assert math.isnan(value) or float(word) == value
