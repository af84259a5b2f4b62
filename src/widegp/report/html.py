"""A summary as one HTML file: no script, nothing to load, light and dark, wide and narrow."""

from __future__ import annotations

from typing import Any

from widegp.report import drawings, sections
from widegp.report.formatting import moment
from widegp.report.page import render
from widegp.report.targets import links

Summary = dict[str, Any]


def render_html(summary: Summary) -> str:
    """The page of a summary from `summarise`, whole and self-contained."""
    values: dict[str, Any] = {
        "svg": drawings.of(summary),
        "effects": drawings.effects(summary),
        "kicker": _kicker(summary),
        "tiles": sections.tiles(summary),
        "thinned": sections.thinned(summary),
        "coverage": sections.coverage(summary),
        "deviance": sections.deviance(summary),
        "compatible": sections.compatible(summary),
        "thirds": sections.thirds(summary),
        "ranking": sections.ranking(summary),
        "columns": sections.columns(summary),
        "balance": sections.balance(summary),
        "parameters": sections.parameters(summary),
        "fit_facts": sections.fit_facts(summary),
        "stages": sections.stages(summary),
        "provenance": sections.provenance(summary),
    }
    return render("report.html", s=summary, links=_links(values), **values)


def _links(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Anchor and name of each section that has something to show."""
    there = {"inputs": values["ranking"], "data": values["columns"], "provenance": values["provenance"]}
    keys = ("predictions", "intervals", "inputs", "data", "shape", "parameters", "fit", "provenance")
    return links(keys, there)


def _kicker(summary: Summary) -> list[str]:
    model, when = summary["model"], summary["provenance"].get("date")
    rows = f"{model['rows']:,} training rows" if isinstance(model["rows"], int) else None
    inputs = f"{model['inputs']} input{'s' if model['inputs'] != 1 else ''}"
    parts = ["widegp report", rows, inputs, None if when is None else moment(when)]
    return [part for part in parts if part]
