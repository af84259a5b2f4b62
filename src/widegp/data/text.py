"""What a column of text cells holds: numbers, booleans, dates, or words; decided over all rows.

    cell -> blanks trimmed -> missing if spelt like ``MISSING`` -> value in one of the ``NOTATIONS``

A `TextSurvey` counts, batch by batch, the cells that each notation reads; `settle` gives every column one
that reads all its cells. Where two remain ("1,234", "01/02/2019") the reader's word decides, else the columns
that leave no doubt, else it is asked for. A column that is mostly numbers or dates is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widegp.data.dates import CLOCK, DATES, MAYBE, moments, seconds_of_day
from widegp.data.errors import Problems, TableError, quoted
from widegp.notices import Notice

# "Na" is sodium and "None" a level of many tables, so the spellings are exact.
MISSING = (
    "", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "-NaN", "NaT", "NULL", "null", "?",
    "-", "--", "–", "—", ".", "..", "n.a.", "N.A.", "k.A.", "k. A.", "#NV", "#DIV/0!", "#VALUE!", "#WERT!",
    "#REF!", "#BEZUG!", "#NAME?", "#NUM!", "#ZAHL!", "#NULL!",
)  # fmt: skip
# Words for a gap among numbers and dates; among other words they are levels.
GAPS = (
    "None", "none", "NONE", "Null", "nil", "missing", "Missing", "unknown", "Unknown", "(blank)", "(leer)",
)  # fmt: skip
NUMBER = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
SIGNS, BLANKS, MINUS = "$€£¥₹", "'’ \u00a0\u202f", "−-"
_UNIT = rf"(?:[%{SIGNS}]|EUR|USD|GBP|CHF)"
# The digits of a number with whatever marks, first those alone that a number begins with.
_DIGITS = rf"[.,]?\d[\d.,{BLANKS}]*(?:[eE][+-]?\d+)?"
# A minus may stand before the digits or a sign of money, behind all, or be a pair of brackets.
_NEGATIVE = rf"^[^\d.,]*[{MINUS}]|[{MINUS}]$|^\("


def _marked(thousands: str, decimal: str) -> str:
    """The pattern of numbers with these marks, and with signs and units of money."""
    digits = rf"(?:\d{{1,3}}(?:[{thousands}{BLANKS}]\d{{3}})+|\d+)(?:[{decimal}]\d*)?|[{decimal}]\d+"
    plus = rf"[+{MINUS}]"
    number = rf"(?:{digits})(?:[eE][+-]?\d+)?\s?{_UNIT}?"
    before = rf"(?:{plus}?\s?{_UNIT}\s?|{_UNIT}\s?{plus}|{plus}?)"
    return rf"^(?:{before}{number}|{_UNIT}?\s?{number}[{MINUS}]|\({_UNIT}?\s?{number}\))$"


_DAY = r"[1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
_ZONE = r"(?:Z|[+-](?:0\d|1[0-4]):?[0-5]\d)"
PATTERNS = {
    "plain": NUMBER,
    "point": _marked(",", "."),
    "comma": _marked(".", ","),
    "truth": "^(?i:true|false)$",
    "clock": CLOCK,
    "iso": f"^{_DAY}(?:[T ]{_CLOCK}{_ZONE}?)?$",
    # These two let through all that may be a date; each word is then looked at.
    **MAYBE,
    "short year": r"^\d{1,2}[./-]\d{1,2}[./-]\d{2}$",
}
NOTATIONS = tuple(PATTERNS)
NUMBERS, NOT_NUMBERS, OTHER_DATES = NOTATIONS[:3], {*NOTATIONS[3:]}, tuple(DATES)
KINDS = dict.fromkeys((*NUMBERS, "clock"), "numeric") | dict.fromkeys(("iso", *OTHER_DATES), "date")
KINDS |= {"truth": "boolean", "text": "categorical", "none": "empty"}
WHICH_MARK = "say which with --decimal . or --decimal , (decimal= in Python)"
WHICH_DATES = (
    "where day and month may be mixed up; say which comes first with --dates day-first or"
    " --dates month-first (dates= in Python)"
)
# More different numbers than this, or a fraction among them, and a column of numbers and words is a column of
# numbers with mistakes; else it may be a column of codes.
MANY_CODES = 20


class _Unclear(TableError):
    """Cells that can be read in two ways: a question, and where to answer it."""


@dataclass(frozen=True)
class Reading:
    """How a text file is written, where its reader knows better than its cells show; None leaves it to them.

    decimal, thousands : marks of numbers, such as "," and ".".    dates : "day-first" or "month-first".
    encoding : a name that Python knows, such as "cp1252"; by default UTF-8, or what a mark at the start says.
    """

    decimal: str | None = None
    thousands: str | None = None
    dates: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        marks = {"decimal": (*".,",), "thousands": (*".,", *BLANKS), "dates": OTHER_DATES}
        for name, known in marks.items():
            value = getattr(self, name)
            if value is not None and (value not in known or (name == "thousands" and value == self.decimal)):
                raise TableError(f"{name}={value!r} cannot be; choose one of {' '.join(map(repr, known))}.")

    def decimal_mark(self) -> str | None:
        return self.decimal or {".": ",", ",": "."}.get(self.thousands or "")


@dataclass
class TextSurvey:
    """Counts over the cells of one column: how many each notation reads, and the first that it does not.

    typed : the column was declared text, not read from a file of text: whole numbers may then be codes.
    numbers, marked : some of the different words that are numbers, and the first with any mark but a sign.
    order_matters : whether day and month can be mixed up in some word.
    present, gaps : how many cells hold something else than one of GAPS, and how many one of them.
    """

    name: str
    typed: bool = False
    present: int = 0
    gaps: int = 0
    read: Counter[str] = field(default_factory=Counter)
    odd: dict[str, tuple[int, str]] = field(default_factory=dict)
    example: str = ""
    marked: str = ""
    signs: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    order_matters: bool = False

    def update(self, cells: pa.ChunkedArray, first_row: int) -> None:
        """Count cells that are `clean`; ``first_row`` rows stand before them."""
        told = cells.null_count
        cells = without_gaps(cells)
        self.gaps += cells.null_count - told
        before, self.present = self.present, self.present + len(cells) - cells.null_count
        if self.is_measured() and "plain" not in self.odd and self.odd.keys() >= NOT_NUMBERS:
            # Numbers written plainly, the most frequent column by far, leave nothing to be found out.
            try:
                pc.cast(cells, pa.float64() if "comma" in self.odd else pa.int64())
                return
            except pa.ArrowInvalid:
                self.read |= dict.fromkeys(self.alive(NUMBERS), before)
        counts = cells.value_counts()
        words, n = counts.field(0), counts.field(1).to_numpy()
        words, n = words.drop_null(), n[words.is_valid().to_numpy(zero_copy_only=False)]
        good = {notation: reads(words, notation) for notation in NOTATIONS}
        self._look_at(words, words.filter(pa.array(good["point"] | good["comma"])))
        for notation, these in good.items():
            self.read[notation] += int(n[these].sum())
            if notation not in self.odd and not these.all():
                row = _first_odd(cells, words, these)
                self.odd[notation] = first_row + row + 1, cells[row].as_py()

    def _look_at(self, words: pa.Array, numbers: pa.Array) -> None:
        units = pc.replace_substring_regex(pc.replace_substring_regex(numbers, _DIGITS, ""), r"[()+−\s-]", "")
        self.signs |= set(pc.unique(units).to_pylist())
        self.numbers |= set(numbers.slice(0, MANY_CODES + 1).to_pylist())
        doubtful, other = (
            next(iter(numbers.filter(pc.match_substring_regex(numbers, marks)).slice(0, 1).to_pylist()), "")
            for marks in ("[.,]", rf"[(−%{SIGNS}{BLANKS}]|[A-Z]{{3}}|\d-$|^[+-]?0\d")
        )
        # Points and commas are what may be in doubt: a word with one tells more than one without.
        if not re.search("[.,]", self.marked):
            self.marked = doubtful or self.marked or other
        self.example = self.example or next(iter(words.slice(0, 1).to_pylist()), "")
        slashed = words.filter(pc.match_substring_regex(words, r"^\d{1,2}[/-]\d"))
        if not self.order_matters:
            both = zip(*(moments(slashed.to_pylist(), notation) for notation in OTHER_DATES), strict=True)
            self.order_matters = any(a != b for a, b in both if a and b)

    def alive(self, notations: Iterable[str]) -> list[str]:
        """Those that read every cell."""
        return [notation for notation in notations if self.present and notation not in self.odd]

    def is_measured(self) -> bool:
        return len(self.numbers) > MANY_CODES or bool(re.search(r"[.,]\d", self.marked))

    def is_codes(self) -> bool:
        """Whether text that was declared such holds whole numbers that may well be codes."""
        few = not self.marked and not self.is_measured()
        return self.typed and (few or bool(re.match(r"[+-]?0\d+$", self.marked)))

    def decimal_mark(self) -> str | None:
        """Where the cells leave no doubt of it."""
        alive = self.alive(NUMBERS)
        return None if not alive or {"comma", "point"} <= {*alive} else "," if alive == ["comma"] else "."

    def first_part(self) -> str | None:
        """Which of day and month comes first, where the cells leave no doubt of it."""
        alive = self.alive(OTHER_DATES)
        dead = [self.odd[notation][1] for notation in OTHER_DATES if notation in self.odd]
        return alive[0] if alive and dead and re.match(r"\d{1,2}[/-]\d", dead[0]) else None


Settled = tuple[str, tuple[Notice, ...]]


def settle(
    surveys: Iterable[TextSurvey], reading: Reading, target: str | None, problems: Problems
) -> dict[str, Settled]:
    """{column: (notation, remarks)}; what cannot be decided goes to ``problems``."""
    surveys = list(surveys)
    marks = {survey.decimal_mark() for survey in surveys} - {None}
    firsts = {survey.first_part() for survey in surveys} - {None}
    mark = reading.decimal_mark() or (marks.pop() if len(marks) == 1 else None)
    first = reading.dates or (firsts.pop() if len(firsts) == 1 else None)
    settled = {}
    for survey in surveys:
        word, cure = "Column", "leave cells empty that are missing, or drop the column"
        if survey.name == target:
            word, cure = "Target", "or drop such rows"
        try:
            settled[survey.name] = _settled(survey, mark, first)
        except _Unclear as question:
            problems.add(f"{word} {quoted(survey.name)} {question}.")
        except TableError as error:
            problems.add(f"{word} {quoted(survey.name)} {error}; correct that, {cure}.")
    return settled


def typed(table: pa.Table) -> pa.Table:
    """Columns of text in the notations that they settle in; what cannot be decided stays text."""
    surveys = [TextSurvey(name) for name in table.schema.names]
    cells = {survey.name: clean(table.column(survey.name)) for survey in surveys}
    for survey in surveys:
        survey.update(cells[survey.name], 0)
    settled = settle(surveys, Reading(), None, Problems())
    columns = {name: parse(cells[name], settled.get(name, ("text", ()))[0]) for name in cells}
    for name, (notation, _) in settled.items():
        if notation in ("none", "truth"):
            empty = pa.nulls(table.num_rows)
            columns[name] = empty if notation == "none" else pc.cast(columns[name], pa.bool_())
    return pa.table(columns)


def _settled(survey: TextSurvey, mark: str | None, first: str | None) -> Settled:
    if not survey.present:
        return "text" if survey.gaps else "none", ()
    if (numbers := survey.alive(NUMBERS)) and not survey.is_codes():
        if len(survey.signs) > 1:
            signs = " and ".join(sorted(sign or "none" for sign in survey.signs))
            raise TableError(f"holds numbers with different signs ({signs})")
        notation = _number_notation(survey, numbers, mark)
        return notation, () if notation == "plain" else _remark(survey, survey.marked, notation)
    if alive := survey.alive(("truth", "iso")):
        return alive[0], ()
    if survey.alive(("clock",)):
        return "clock", _remark(survey, survey.example, "clock")
    if alive := survey.alive(OTHER_DATES):
        if len(alive) > 1 and survey.order_matters and first is None:
            raise _Unclear(f"holds dates written like {quoted(survey.example)}, {WHICH_DATES}")
        notation = first if first in alive else alive[0]
        return notation, _remark(survey, survey.example, notation)
    if survey.alive(("short year",)):
        raise TableError(f"holds dates written like {quoted(survey.example)}, whose years need four digits")
    for group, word in ((NUMBERS, "numbers"), (("iso", *OTHER_DATES), "dates")):
        best = max(group, key=lambda notation: survey.read[notation])
        nearly = 2 * survey.read[best] >= survey.present and best in survey.odd
        if nearly and (word == "dates" or survey.is_measured()):
            row, cell = survey.odd[best]
            raise TableError(f"holds {word} but for {quoted(cell)} in row {row}")
    if not survey.numbers or "plain" not in survey.odd:
        return "text", ()
    row, cell = survey.odd["plain"]
    return "text", (Notice("mixed", survey.name, (quoted(cell), str(row))),)


def _number_notation(survey: TextSurvey, alive: list[str], mark: str | None) -> str:
    # Without marks, or with blanks alone between the digits, all notations read the same.
    wanted = {",": ["comma"], ".": ["plain", "point"]}.get(mark or "", []) if survey.marked else []
    chosen = [notation for notation in wanted if notation in alive] or alive
    if chosen[0] == "plain" or len(chosen) == 1 or not {".", ","} & {*survey.marked}:
        return chosen[0]
    both = " or ".join(_read_as(survey.marked, notation) for notation in alive)
    raise _Unclear(f"holds numbers written like {quoted(survey.marked)}, which may mean {both}; {WHICH_MARK}")


def _remark(survey: TextSurvey, word: str, notation: str) -> tuple[Notice, ...]:
    return (Notice("notation", survey.name, (quoted(word), _read_as(word, notation))),)


def _read_as(word: str, notation: str) -> str:
    parsed: Any = parse(pa.chunked_array([[word]]), notation)
    value = parsed[0].as_py()
    if notation == "clock":
        return f"{value:g} seconds since midnight"
    return f"{value:g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")


def clean(raw: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """Cells without blanks around them, null where missing."""
    cells = pc.utf8_trim_whitespace(raw)
    gaps = pc.is_in(cells, value_set=pa.array(MISSING, cells.type))
    return pc.if_else(gaps, pa.scalar(None, cells.type), cells)


def reads(words: pa.Array, notation: str) -> np.ndarray:
    """Which words the notation reads, (n,) booleans."""
    good = pc.match_substring_regex(words, PATTERNS[notation]).to_numpy(zero_copy_only=False).astype(bool)
    if notation in DATES:
        these = words.filter(pa.array(good)).to_pylist()
        good[good] = [moment is not None for moment in moments(these, notation)]
    elif notation == "iso" and good.any():
        days = pc.utf8_slice_codeunits(words, 0, 10)
        try:
            pc.cast(pc.unique(days.filter(pa.array(good))), pa.timestamp("us"))
        except pa.ArrowInvalid:
            these = days.filter(pa.array(good)).to_pylist()
            good[good] = [day is not None for day in moments(these, "day-first")]
    return good


def parse(cells: pa.ChunkedArray, notation: str) -> pa.ChunkedArray | int:
    """Cells that are `clean` as values, or the position of the first that the notation does not read."""
    if notation in ("text", "none"):
        return cells
    cells = without_gaps(cells)
    if notation == "plain":
        try:
            return pc.cast(cells, pa.float64())
        except pa.ArrowInvalid:
            return pc.index(pc.match_substring_regex(cells, NUMBER), False).as_py()
    words = pc.unique(cells).drop_null()
    good = reads(words, notation) | (reads(words, "plain") if notation == "truth" else False)
    if not good.all():
        return _first_odd(cells, words, good)
    if notation == "truth":
        # The other spelling of a boolean, 0 and 1, is told apart from other numbers later.
        for word, number in (("^(?i)true$", "1"), ("^(?i)false$", "0")):
            cells = pc.replace_substring_regex(cells, word, number)
        return pc.cast(cells, pa.float64())
    if notation == "iso":
        return _as_times(cells)
    if notation == "clock" or notation in DATES:
        told = words.to_pylist()
        of_words = seconds_of_day(told) if notation == "clock" else moments(told, notation)
        kind = pa.float64() if notation == "clock" else pa.timestamp("us")
        return pa.array(of_words, kind).take(pc.index_in(cells, value_set=words))
    return _numbers(cells, "," if notation == "point" else ".")


def _numbers(cells: pa.ChunkedArray, thousands: str) -> pa.ChunkedArray:
    """Numbers with marks and signs: the digits without what parts thousands, negative where they say so."""
    digits = pc.struct_field(pc.extract_regex(cells, f"(?P<digits>{_DIGITS})"), "digits")
    digits = pc.replace_substring_regex(digits, f"[{BLANKS}{thousands}]", "")
    values = pc.cast(pc.replace_substring(digits, ",", "."), pa.float64())
    return pc.if_else(pc.match_substring_regex(cells, _NEGATIVE), pc.negate(values), values)


def without_gaps(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cells that are `clean`, null where they hold one of GAPS too."""
    gaps = pc.is_in(cells, value_set=pa.array(GAPS, cells.type))
    return pc.if_else(gaps, pa.scalar(None, cells.type), cells) if pc.any(gaps).as_py() else cells


def _first_odd(cells: pa.ChunkedArray, words: pa.Array, good: np.ndarray) -> int:
    """The position of the first cell among the words that are not good."""
    return int(pc.index(pc.is_in(cells, value_set=words.filter(pa.array(~good))), True).as_py())


def _as_times(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """ISO 8601 times as microseconds; where some name a zone, the others are read as UTC."""
    cells = pc.replace_substring_regex(cells, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(cells, f":.*{_ZONE}$")
    if not pc.any(zoned).as_py():
        return pc.cast(cells, pa.timestamp("us"))
    cells = pc.replace_substring_regex(cells, f"^({_DAY})$", r"\1T00:00")
    cells = pc.if_else(zoned, cells, pc.replace_substring_regex(cells, "$", "Z"))
    return pc.cast(cells, pa.timestamp("us", "UTC"))
