"""Pieces of markup that the sections are made of. A user's text goes through ``text`` or ``escape``."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from widegp.report.formatting import clean, short
from widegp.report.svg import inline_svg


def text(value: object) -> str:
    """A user's text, cut to a readable length and made safe."""
    whole, cut = clean(value), short(value)
    return escape(cut) if whole == cut else f'<span title="{escape(whole)}">{escape(cut)}</span>'


def figure(drawn: Any, name: str, description: str, caption: str) -> str:
    """A card with a drawing, its description for screen readers, and a caption for everyone."""
    note = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="card">{inline_svg(drawn, name, description)}{note}</figure>'


def table(caption: str, columns: list[tuple[str, str]], rows: Iterable[list[str]], safe: bool = False) -> str:
    """A table whose first column heads its rows; cells are escaped unless they are ``safe`` markup."""
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(name)}</th>' if name else "<td></td>"
        for name, kind in columns
    )
    lines = []
    for row in rows:
        cells = row if safe else [escape(cell) for cell in row]
        rest = "".join(
            f'<td class="{kind}">{cell}</td>' for cell, (_, kind) in zip(cells[1:], columns[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{cells[0]}</th>{rest}</tr>')
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def bar(share: float) -> str:
    """A horizontal bar; the number it shows stands beside it, so it says nothing to a screen reader."""
    width = 100 * min(max(share, 0.0), 1.0)
    return f'<span class="bar" aria-hidden="true"><span style="width:{width:.1f}%"></span></span>'


def definitions(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values side by side."""
    return '<dl class="facts">' + "".join(
        f"<dt>{escape(clean(name))}</dt><dd>{escape(clean(value))}</dd>" for name, value in facts
    ) + "</dl>"  # fmt: skip
