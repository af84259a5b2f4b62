"""Docstrings, written to be read as plain text, as Markdown: fields become lists, formulas become code.

    name : text       ->   - `name`: text        in sections such as Parameters, Attributes, Fields
    a = b + c, ...    ->   `a = b + c`, ...      a clause that is a formula
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

FIELD = re.compile(r"^(?P<names>[*\w][\w*.]*(?:, [*\w][\w*.]*)*) : (?P<text>.*)$")
BETWEEN_FIELDS = re.compile(r"\s{3,}(?=\w+ : )")
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
CLAUSE = re.compile(r"(, (?=eq[s]?\. )|, (?=with |for |where |in |up )|[:;] |\.(?=\s|$)|,\s{2,})")
RELATION = re.compile(r" (=|~|<=|>=|->) ")
# Words of four letters or more that belong to formulas; others make a clause a sentence.
MATHEMATICS = {
    "sqrt", "mean", "sigma", "logdet", "argmin", "arcsin", "arccos", "arctan", "tanh", "time", "error",
    "ceil", "level", "beta", "alpha", "median", "scale", "shift", "shape", "theta", "others",
}  # fmt: skip
SPECIAL = re.compile(r"([\\*_\[\]<>])")


def to_markdown(text: str) -> str:
    """The docstring as Markdown; indented blocks stay as they are and show as code."""
    lines = [part for line in text.splitlines() for part in BETWEEN_FIELDS.split(line)]
    return "\n".join(_paragraphs(lines))


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Lines of Markdown: a heading per section, an item per field, prose with its formulas marked."""
    k, in_fields = 0, False
    while k < len(lines):
        line = lines[k]
        if k + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[k + 1].strip()):
            yield from ("", f"**{line.strip()}**", "")
            k, in_fields = k + 2, True
            continue
        field = FIELD.match(line)
        if field:
            text, k = _continued(lines, k + 1, field["text"], "    ")
            names = ", ".join(f"`{name}`" for name in field["names"].split(", "))
            # A blank line before the first item, or Markdown takes the list for a paragraph.
            yield from ([] if in_fields else [""])
            yield f"- {names}: {prose(text)}"
            in_fields = True
        elif line.startswith("    ") or not line.strip():
            yield line
            k += 1
            in_fields = in_fields and not line.strip() and _field_follows(lines, k)
        else:
            yield from ([""] if in_fields else [])
            in_fields = False
            text, k = _continued(lines, k + 1, line, "")
            yield prose(text)


def _continued(lines: list[str], k: int, text: str, indent: str) -> tuple[str, int]:
    """``text`` with the lines that go on with it, and the number of the next line."""
    while k < len(lines) and lines[k].strip() and lines[k].startswith(indent) and not FIELD.match(lines[k]):
        if not indent and (lines[k].startswith("    ") or _underlined(lines, k)):
            break
        text, k = f"{text} {lines[k].strip()}", k + 1
    return text, k


def _underlined(lines: list[str], k: int) -> bool:
    return k + 1 < len(lines) and bool(re.fullmatch(r"-{3,}", lines[k + 1].strip()))


def _field_follows(lines: list[str], k: int) -> bool:
    return k < len(lines) and bool(FIELD.match(lines[k]))


def prose(text: str) -> str:
    """Code spans as they are, clauses that are formulas as code, the rest with Markdown's marks escaped."""
    parts = []
    for part in CODE.split(text):
        if CODE.fullmatch(part):
            # Two backticks are reStructuredText for what Markdown writes with one.
            parts.append(part if "`" in part[2:-2] else f"`{part.strip('`')}`")
        else:
            parts += [_clause(piece) for piece in CLAUSE.split(part)]
    return "".join(parts)


def _clause(text: str) -> str:
    stripped = text.strip()
    if not RELATION.search(text) or not _is_formula(stripped) or stripped.count("(") != stripped.count(")"):
        return SPECIAL.sub(r"\\\1", text)
    return text.replace(stripped, f"`{stripped}`")


def _is_formula(text: str) -> bool:
    words = re.findall(r"(?<![\w.])[A-Za-z]{4,}(?![\w(])", text)
    return all(word.lower() in MATHEMATICS for word in words)


class ReadableDocstrings(griffe.Extension):
    """Griffe: every docstring of the package, once it is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
