"""A summary on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widegp.report.formatting import (
    held_with_chance,
    number,
    part_range,
    percent,
    seconds,
    short,
)
from widegp.report.targets import drivers
from widegp.yardstick import NAME

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


def render_terminal(summary: dict[str, Any], console: Console | None = None, verbose: bool = False) -> None:
    """The answer, then scores, then warnings with their cures; on ``console``, by default standard output.

    ``verbose`` adds what the answer does not need: how the fit went, parameters, what the data leave open.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = console or Console()
    console.print(Text(summary["verdict"]["headline"], style="bold"))
    console.print(Text(summary["verdict"]["lede"]))
    explained = summary["explanation"]
    if told := drivers(explained.get("ranking", explained["inputs"])):
        console.print(Text(told))
    for table in (_scores(summary), _coverage(summary), _weights(summary)):
        if table.row_count:
            console.print(Padding(table, (1, 0, 0, 0)))
    for notice in summary["notices"]:
        console.print(Text(f"Warning: {notice['text']}", style="yellow"))
        if notice["cure"]:
            console.print(Text(f"  {notice['cure']}"))
    if verbose:
        _render_appendix(summary, console)


def _render_appendix(summary: dict[str, Any], console: Console) -> None:
    """How the fit went: time, what was chosen, parameters, directions that the data leave open."""
    from rich.padding import Padding
    from rich.text import Text

    fit = summary["fit"]
    spent = f"{fit['iterations']} iterations, {seconds(fit['total_seconds'])}"
    console.print(Padding(_parameters(summary), (1, 0, 1, 0)))
    console.print(Text(f"Fit: {fit['reason']}, {spent}."))
    for note in summary["notes"]:
        console.print(Text(note))
    for direction in summary["undetermined"]:
        console.print(Text(f"Left open: {direction['words']}", style="dim"))


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
    beside = summary["yardstick"]
    if beside is not None:
        in_sd = beside["rmse"] * scores["rmse_z"] / scores["rmse"] if scores["rmse"] else None
        table.add_row("boosting", number(beside["rmse"]), number(in_sd), f"rmse of {NAME}, same rows")
    return table


def _coverage(summary: dict[str, Any]) -> Table:
    """A line for all held-out rows and one for each third of the predictions, a column for each level."""
    held_out = summary["held_out"]
    thirds, level = held_out["thirds"], held_out["level"]
    levels = [row["promised"] for row in (thirds[0]["coverage"] if thirds else held_out["coverage"])]
    table = _table(
        "Intervals: share of observed values that they held (range of chance)",
        ("predictions", ""), *((percent(p), "right") for p in levels),
        (f"width of {percent(level)}", "right"),
    )  # fmt: skip
    whole = [row for row in held_out["coverage"] if row["promised"] in levels]
    every = map(held_with_chance, whole)
    table.add_row(f"all {held_out['rows']:,}", *every, number(summary["scores"]["width"]))
    for third in thirds:
        table.add_row(part_range(third), *map(held_with_chance, third["coverage"]), number(third["width"]))
    return table


def _weights(summary: dict[str, Any]) -> Table:
    """Shares of sigma_u2, where there is one per input."""
    from rich.text import Text

    ranked = [item for item in summary["explanation"]["inputs"] if item["weight"] is not None]
    table = _table("Inputs, strongest first", ("input", ""), ("weight (ARD)", "right"))
    for item in ranked[:SHOWN_INPUTS]:
        # Text, not markup: a column may be called [red].
        table.add_row(Text(short(item["name"])), percent(item["weight"], 1))
    if len(ranked) > SHOWN_INPUTS:
        table.add_row(f"and {len(ranked) - SHOWN_INPUTS} more")
    return table


def _parameters(summary: dict[str, Any]) -> Table:
    known = any(entry.get("credible_interval") for entry in summary["parameters"])
    spread = "95% credible" if known else "std. error"
    table = _table("Parameters", ("name", ""), ("estimate", "right"), (spread, "right"), ("meaning", ""))
    for entry in summary["parameters"]:
        value = entry["value"]
        shown = (
            f"{number(min(value), 2)} … {number(max(value), 2)}" if isinstance(value, list) else number(value)
        )
        words = f"{entry['meaning']} {entry['plain']}".strip()
        ends = entry.get("credible_interval")
        told = f"{number(ends[0], 2)} to {number(ends[1], 2)}" if ends else number(entry["standard_error"], 2)
        table.add_row(entry["name"], shown, "" if known and not ends else told, words)
    return table
