"""A summary as one HTML file: no script, nothing to load, light and dark, wide and narrow."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import Any

from widegp.report import sections
from widegp.report.formatting import moment, percent, short

# Nothing may be fetched and nothing may run, whatever a column is called.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

# Anchor, name in the navigation, heading, content.
PARTS = (
    ("predictions", "Predictions", "Predictions", sections.predictions),
    ("intervals", "Intervals", "Are the intervals honest?", sections.intervals),
    ("inputs", "Inputs", "What drives the prediction", sections.inputs),
    ("shape", "Shape", "The shape of the function", sections.shape),
    ("parameters", "Parameters", "Parameters", sections.parameters),
    ("fit", "Fit", "The fit and its cost", sections.fit),
    ("data", "Data", "The data", sections.data),
    ("provenance", "Provenance", "Where this came from", sections.provenance),
)


def render_html(summary: dict[str, Any]) -> str:
    """The page of a summary from `summarise`, whole and self-contained."""
    style = resources.files("widegp.report").joinpath("style.css").read_text(encoding="utf-8")
    blocks = [(key, name, title, part(summary)) for key, name, title, part in PARTS]
    blocks = [block for block in blocks if block[-1]]
    links = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _, _ in blocks)
    body = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{escape(title)}</h2>'
        f"{content}</section>\n"
        for key, _, title, content in blocks
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{escape(short(summary["target"]))}: widegp report</title>
<style>{style}</style>
</head>
<body>
<header>
<p class="kicker">{_kicker(summary)}</p>
<h1>{escape(summary["verdict"]["headline"])}</h1>
<p class="lede">{escape(summary["verdict"]["lede"])}</p>
{sections.tiles(summary)}
{sections.warnings(summary)}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{body}</main>
<footer>Scores come from {summary["held_out"]["rows"]:,} rows that the fit never saw; intervals are
those of {percent(summary["held_out"]["level"])} unless said otherwise. This page is one file and loads
nothing.</footer>
</body>
</html>
"""


def _kicker(summary: dict[str, Any]) -> str:
    model, when = summary["model"], summary["provenance"].get("date")
    rows = f"{model['rows']:,} training rows" if isinstance(model["rows"], int) else None
    inputs = f"{model['inputs']} input{'s' if model['inputs'] != 1 else ''}"
    parts = ["widegp report", rows, inputs, None if when is None else moment(when)]
    return " · ".join(escape(part) for part in parts if part)
