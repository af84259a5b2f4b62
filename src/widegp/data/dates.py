"""Dates and times of day as people write them: 01.02.2019, 2/13/2019 3:45 PM, 1 Feb 2019, 2019-02, 13:30.

A date is read by the first of the patterns of its notation that fits all of it; a month without a day is its
first. Months go by their English or German names.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable

_HOURS = (
    r"(?:,?[ T](?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?)?"
)
_YEAR, _WORD = r"(?P<year>[1-9]\d{3})", r"(?P<month>[^\W\d_]{3,9})"
_IN_WORDS = (
    rf"{_YEAR}([./-])(?P<month>\d{{1,2}})\2(?P<day>\d{{1,2}})",
    rf"(?P<day>\d{{1,2}})[ .-]{{1,2}}{_WORD}[ .,-]{{1,2}}{_YEAR}",
    rf"{_WORD}\.? (?P<day>\d{{1,2}}),? {_YEAR}",
    r"(?P<year>1[89]\d\d|20\d\d)-(?P<month>0[1-9]|1[0-2])",
    rf"{_WORD}\.?[ -]{_YEAR}",
)
DATES = {
    "day-first": (rf"(?P<day>\d{{1,2}})([./-])(?P<month>\d{{1,2}})\2{_YEAR}", *_IN_WORDS),
    "month-first": (rf"(?P<month>\d{{1,2}})([/-])(?P<day>\d{{1,2}})\2{_YEAR}", *_IN_WORDS),
}
# Of all that may be a date in a notation, for a first look by the regular expressions of Arrow.
MAYBE = {
    "day-first": r"^(?:\d{1,2}[./ -]|\d{4}[./-]|\p{L}{3,9}\.?[ -]\d).*\d",
    "month-first": r"^(?:\d{1,2}[/ -]|\d{4}[./-]|\p{L}{3,9}\.?[ -]\d).*\d",
}
CLOCK = r"^(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?: ?[AaPp]\.?[Mm]\.?)?$"
_NAMES = (
    "jan january januar", "feb february februar", "mar march mär märz mrz", "apr april", "may mai",
    "jun june juni", "jul july juli", "aug august", "sep sept september", "oct october okt oktober",
    "nov november", "dec december dez dezember",
)  # fmt: skip
MONTHS = {name: month for month, names in enumerate(_NAMES, start=1) for name in names.split()}
_PATTERNS = {
    notation: [re.compile(pattern + _HOURS) for pattern in patterns] for notation, patterns in DATES.items()
}


def moments(words: Iterable[str], notation: str) -> list[dt.datetime | None]:
    """The moment that each word names in the ``notation``, a key of DATES; None where it names none."""
    return [_moment(word, _PATTERNS[notation]) for word in words]


def _moment(word: str, patterns: list[re.Pattern[str]]) -> dt.datetime | None:
    found = next(filter(None, (pattern.fullmatch(word) for pattern in patterns)), None)
    if found is None:
        return None
    parts = found.groupdict()
    month = parts["month"]
    try:
        return dt.datetime(
            int(parts["year"]), int(month) if month.isdigit() else MONTHS[month.lower()],
            int(parts.get("day") or 1), _hour(parts["hour"] or "0", parts["half"]),
            int(parts["minute"] or 0), int(parts["second"] or 0),
        )  # fmt: skip
    except (KeyError, ValueError):
        return None


def _hour(hour: str, half: str | None) -> int:
    """0 to 23; with a.m. or p.m. the hour 12 comes before 1."""
    if half is None:
        return int(hour)
    if not 1 <= int(hour) <= 12:
        raise ValueError(f"{hour} is no hour of a half day.")
    return int(hour) % 12 + (12 if half in "pP" else 0)


def seconds_of_day(words: Iterable[str]) -> list[float]:
    """Seconds since midnight of words that CLOCK matches, as columns of times of day have them."""
    out = []
    for word in words:
        hour, minute, *second = re.findall(r"\d+", word)
        half = re.search("[AaPp]", word)
        hours = _hour(hour, half[0]) if half and int(hour) in range(1, 13) else int(hour)
        out.append(3600.0 * hours + 60.0 * int(minute) + float(second[0] if second else 0))
    return out
