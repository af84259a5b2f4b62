"""Formulas as MathML, which browsers draw themselves: the site needs no script from elsewhere.

GitHub's notation, so that a page reads the same there: $`...`$ in a line, a block fenced as ``math``, and
$$...$$ on lines of its own.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

FENCED = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
DISPLAYED = re.compile(r"^\$\$\s*(.*?)\s*\$\$$", re.MULTILINE | re.DOTALL)
# Before code spans, whose backticks it shares.
PRIORITY = 195


class InlineMath(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:  # type: ignore[override]
        return self.md.htmlStash.store(convert(m[1])), m.start(0), m.end(0)


class MathML(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.register(InlineMath(r"\$`([^`]+)`\$", md), "mathml", PRIORITY)


def displayed(found: re.Match[str]) -> str:
    """A block of HTML on one line, which Markdown leaves as it is."""
    formula = ElementTree.fromstring(convert(found[1], display="block"))
    return f'<div class="math">{ElementTree.tostring(formula, encoding="unicode")}</div>'


def on_config(config: Any) -> Any:
    """MkDocs: read formulas on every page and in every docstring."""
    config["markdown_extensions"].append(MathML())
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs: formulas on lines of their own."""
    return DISPLAYED.sub(displayed, FENCED.sub(displayed, markdown))
