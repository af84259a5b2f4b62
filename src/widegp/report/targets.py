"""What reports of classes and of several outputs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from widegp.report.formatting import listed, memory, moment, number, percent, seconds, short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Summary = dict[str, Any]
# Columns that are named as those that matter most.
NAMED_INPUTS = 4


def fit_of(results: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """How the fits of all processes ended: reasons, the most iterations, seconds of the whole command."""
    return {
        "reason": ", ".join(dict.fromkeys(str(one.reason) for one in results)),
        "converged": all(one.converged for one in results),
        "iterations": max(one.n_iter for one in results), "processes": len(results),
        "seconds": given.get("seconds"), "backend": results[0].backend,
    }  # fmt: skip


def fit_facts(summary: Summary) -> list[tuple[str, str]]:
    fit, told = summary["fit"], summary["provenance"]
    chosen = told.get("chosen") or {}
    facts = [
        ("ended", f"{fit['reason']}, after at most {fit['iterations']} iterations"),
        ("processes", f"{fit['processes']}"),
        ("approximation", ", ".join(f"{key} {value}" for key, value in chosen.items())),
        ("training rows", f"{told['rows']:,}" if "rows" in told else ""),
        ("backend", fit["backend"]),
        ("time", seconds(fit["seconds"])),
        ("peak memory", memory(told.get("peak_memory"))),
    ]
    return [(name, value) for name, value in facts if value]


def drivers(ranking: Iterable[Mapping[str, Any]], what: str = "share of the variation lost") -> str:
    """The columns whose shuffling costs most, as far as that is beyond chance; ``what`` is counted."""
    known = [item for item in ranking if item.get("importance") is not None]
    sure = [item for item in known if item["importance"] > 2 * item["importance_se"]]
    ranked = sorted(sure, key=lambda item: -item["importance"])[:NAMED_INPUTS]
    if not ranked:
        return ""
    named = listed([f"{short(item['name'])} ({percent(item['importance'])})" for item in ranked])
    return f"What matters most: {named} ({what} when the column is shuffled)."


def print_fit(summary: Summary, console: Console, verbose: bool) -> None:
    """How the fit ended, what it chose where ``verbose``, and warnings."""
    from rich.text import Text

    fit = summary["fit"]
    console.print(Text(f"Fit: {fit['reason']}, {fit['iterations']} iterations, {seconds(fit['seconds'])}."))
    for text in summary["notes"] if verbose else ():
        console.print(Text(text))
    for text in summary["warnings"]:
        console.print(Text(text))


def kicker(summary: Summary) -> list[str]:
    when = summary["provenance"].get("date")
    parts = ["widegp report", f"{summary['rows']:,} held-out rows", "" if when is None else moment(when)]
    return [part for part in parts if part]


def links(keys: Iterable[str], there: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Anchor and name of each section that has something to show."""
    return [(key, key.capitalize()) for key in keys if there.get(key, True)]


def boosted(beside: Mapping[str, Any], key: str) -> str:
    """What gradient boosting got, for the note of a card."""
    if beside.get(key) is None:
        return ""
    return f"; gradient boosting {percent(beside[key], 1) if key == 'accuracy' else number(beside[key])}"


def text_table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()
) -> Table:
    """A table of a terminal; the columns in ``numbers`` stand to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.pad_edge = False
    for k, name in enumerate(heads):
        table.add_column(name, justify="right" if k in right else "left")
    for row in rows:
        # Text, not markup: a class may be called [red].
        table.add_row(*map(Text, row))
    return table
