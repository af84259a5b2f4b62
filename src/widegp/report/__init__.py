"""A fitted model summed up for a person: first a plain dict, then a page or a terminal."""

from widegp.report.classes import render_html_classes, render_terminal_classes, summarise_classes
from widegp.report.html import render_html
from widegp.report.summary import summarise
from widegp.report.terminal import render_terminal

__all__ = [
    "render_html", "render_html_classes", "render_terminal", "render_terminal_classes", "summarise",
    "summarise_classes",
]  # fmt: skip
