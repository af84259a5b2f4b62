"""A fitted model summed up for a person: first a plain dict, then a page or a terminal.

A summary of classes or of several outputs names its "kind"; that of one number has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widegp.report import classes, html, outputs, terminal
from widegp.report.classes import summarise_classes
from widegp.report.outputs import summarise_outputs
from widegp.report.summary import own_explanation, summarise

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "headline",
    "own_explanation",
    "render_html",
    "render_terminal",
    "summarise",
    "summarise_classes",
    "summarise_outputs",
]

PAGES = {"classes": classes.render_html_classes, "outputs": outputs.render_html_outputs}
SCREENS = {"classes": classes.render_terminal_classes, "outputs": outputs.render_terminal_outputs}
HEADLINES = {"classes": classes.headline, "outputs": outputs.headline}


def render_html(summary: dict[str, Any]) -> str:
    """The page of a summary, whole and self-contained."""
    return PAGES.get(summary.get("kind", ""), html.render_html)(summary)


def render_terminal(summary: dict[str, Any], console: Console | None = None, verbose: bool = False) -> None:
    """The answer, then scores, then warnings; on ``console``, by default standard output."""
    if summary.get("kind") not in SCREENS:
        terminal.render_terminal(summary, console, verbose)
        return
    from rich.console import Console

    SCREENS[summary["kind"]](summary, console or Console(), verbose)


def headline(summary: dict[str, Any]) -> str:
    """The answer in a sentence."""
    kind = summary.get("kind", "")
    return HEADLINES[kind](summary) if kind in HEADLINES else str(summary["verdict"]["headline"])
