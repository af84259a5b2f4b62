"""A summary on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widegp.report.formatting import number, percent, seconds, short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SHOWN_INPUTS = 10
SCORES = {
    "rmse": "typical error of the mean",
    "mae": "mean absolute error",
    "crps": "distance from forecast to observed",
    "nll": "mean -log density at the observed",
    "width": "mean width of an interval",
}


def render_terminal(summary: dict[str, Any], console: Console | None = None) -> None:
    """Verdict, scores, coverage, inputs, parameters, warnings; on ``console``, by default standard output."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = console or Console()
    console.print(Text(summary["verdict"]["headline"], style="bold"))
    console.print(Text(summary["verdict"]["lede"]))
    tables = (_scores(summary), _coverage(summary), _inputs(summary), _parameters(summary))
    for table in tables:
        if table.row_count:
            console.print(Padding(table, (1, 0, 0, 0)))
    fit = summary["fit"]
    console.print(
        Text(f"\nFit: {fit['reason']}, {fit['iterations']} iterations, {seconds(fit['total_seconds'])}.")
    )
    for direction in summary["undetermined"]:
        console.print(Text(f"Left open: {direction['words']}", style="dim"))
    for warning in summary["warnings"]:
        console.print(Text(f"Warning: {warning}", style="yellow"))


def _table(title: str, *columns: tuple[str, str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "right" else "left")
    return table


def _scores(summary: dict[str, Any]) -> Table:
    rows = summary["held_out"]["rows"]
    table = _table(
        f"Scores on {rows:,} held-out rows", ("score", ""), ("value", "right"), ("in sd of target", "right"),
        ("what it is", ""),
    )  # fmt: skip
    scores = summary["scores"]
    for name, meaning in SCORES.items():
        table.add_row(name, number(scores[name]), number(scores[f"{name}_z"]), meaning)
    table.add_row("R²", percent(scores.get("r2"), 1), "", "share of the variation explained")
    return table


def _coverage(summary: dict[str, Any]) -> Table:
    table = _table("Intervals", ("promised", "right"), ("held", "right"), ("range of chance", "right"))
    for row in summary["held_out"]["coverage"]:
        chance = f"{percent(row['low'], 1)} to {percent(row['high'], 1)}"
        table.add_row(percent(row["promised"]), percent(row["held"], 1), chance)
    return table


def _inputs(summary: dict[str, Any]) -> Table:
    from rich.text import Text

    ranked = summary["explanation"]["inputs"]
    table = _table("Inputs", ("input", ""), ("effect", "right"), ("share of sigma_u2", "right"))
    for item in ranked[:SHOWN_INPUTS]:
        # Text, not markup: a column may be called [red].
        table.add_row(Text(short(item["name"])), percent(item["effect"], 1), percent(item["weight"], 1))
    if len(ranked) > SHOWN_INPUTS:
        table.add_row(f"and {len(ranked) - SHOWN_INPUTS} more", "", "")
    return table


def _parameters(summary: dict[str, Any]) -> Table:
    table = _table(
        "Parameters", ("name", ""), ("estimate", "right"), ("std. error", "right"), ("meaning", "")
    )
    for entry in summary["parameters"]:
        value = entry["value"]
        shown = (
            f"{number(min(value), 2)} … {number(max(value), 2)}" if isinstance(value, list) else number(value)
        )
        words = f"{entry['meaning']} {entry['plain']}".strip()
        table.add_row(entry["name"], shown, number(entry["standard_error"], 2), words)
    return table
