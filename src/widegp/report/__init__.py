"""A fitted model summed up for a person: first a plain dict, then a page or a terminal."""

from widegp.report.html import render_html
from widegp.report.summary import summarise
from widegp.report.terminal import render_terminal

__all__ = ["render_html", "render_terminal", "summarise"]
