"""What a reader should know about a table: typed while it is counted, words only where it is shown.

A `Notice` says what was noticed and where. How often is counted beside it, in a ``Counter[Notice]``, so that
the notices of batches add up; `in_words` renders the counts, `Notice.words` a single notice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from widegp.data.errors import quoted

# More columns than this with values out of range share one line.
MOST_OUTSIDE = 3
# The noun that is counted, if any, and the words after it; {0}, {1} stand for the details.
COUNTED = {
    "unseen": ("value", "of {column} not seen when fitting"),
    "outside": ("value", "of {column} outside the training range, {0} to {1}"),
    "outside many": ("value", "of {0} and {1} more columns outside the training range"),
    "newly missing": ("value", "of {column} missing, as none was when fitting, and {0}"),
    "zone": ("value", "of {column} {0} a time zone, unlike when fitting, taken in UTC"),
    "unknown column": ("row", "with the column {column}, which the model does not know and ignores"),
    "no target": ("row", "without the target {0} left out"),
}
# About a column as a whole. Those of LEFT_OUT are reasons why it gives no inputs.
LEFT_OUT = {
    "by choice": "by choice",
    "no type": "{0} values cannot be inputs",
    "no values": "no values",
    "the same": "the same as {0}",
    "all different": "{0} texts, all different: an identifier, it seems",
    "nearly unique": "{0} different texts in {1} rows",
    "identifier": "whole numbers, all different, under the name of an identifier",
    "row numbers": "it has no name and counts the rows",
    "constant": "constant",
    "constant gaps": "constant, and missing where {0} is",
}
REMARKS = {
    "said": "{0}",
    "held groups": "{0} of its {1} values were held out whole",
    "large": "whole numbers beyond 2^53 lose their last digits",
    "mixed": "numbers and words, first {0} in row {1}, taken as levels",
    "notation": "written like {0}, read as {1}",
    "rare levels": "{0} rare levels taken as one",
    "means": "{0} levels, each replaced by the mean of the target there",
    "rare gaps": "too few gaps for an input that marks them",
    "same gaps": "missing where {0} is",
    "gaps alone": "constant: an input says where it is missing",
    "in order": "whole numbers in order, all different: if they identify rows, drop the column",
}


@dataclass(frozen=True)
class Notice:
    """One thing noticed: ``kind`` is a key of the tables above, ``detail`` fills in their places."""

    kind: str
    column: str = ""
    detail: tuple[str, ...] = ()

    @property
    def is_left_out(self) -> bool:
        return self.kind in LEFT_OUT

    def words(self, count: int | None = None) -> str:
        """ "3 values of 'color' not seen when fitting", or what is said about the column as a whole."""
        if self.kind in COUNTED:
            noun, rest = COUNTED[self.kind]
            return f"{counted(count or 0, noun)} {rest.format(*self.detail, column=quoted(self.column))}"
        return (LEFT_OUT | REMARKS)[self.kind].format(*self.detail)


def counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def in_words(noticed: Counter[Notice]) -> list[str]:
    """One line per notice, the most frequent first; many columns out of range share one."""
    outside = [notice for notice, _ in noticed.most_common() if notice.kind == "outside"]
    if len(outside) > MOST_OUTSIDE:
        named = ", ".join(quoted(notice.column) for notice in outside[:MOST_OUTSIDE])
        rest = Counter({notice: n for notice, n in noticed.items() if notice.kind != "outside"})
        shared = Notice("outside many", detail=(named, str(len(outside) - MOST_OUTSIDE)))
        noticed = rest + Counter({shared: sum(noticed[notice] for notice in outside)})
    return [notice.words(n) for notice, n in noticed.most_common()]
