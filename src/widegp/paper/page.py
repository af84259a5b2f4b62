"""The report as one HTML file: no script, nothing to load."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from widegp.machine import versions
from widegp.paper import figures, words
from widegp.paper.comparison import MISS, PASS, Comparison
from widegp.paper.published import TABLES
from widegp.report import page as shell
from widegp.report.formatting import DASH, number, percent, seconds
from widegp.report.svg import inline_svg

if TYPE_CHECKING:
    from markupsafe import Markup

    from widegp.paper.run import Report

OPEN_ROWS = 40
COLUMNS = [
    ("", ""), ("quantity", ""), ("published", "n"), ("paper's protocol", "n"), ("difference", "n"),
    ("bound", "n"), ("", ""), ("sound default", "n"), ("", ""), ("seconds", "n"), ("seed and note", "note"),
]  # fmt: skip


def render(report: Report) -> str:
    """The page of a report, whole and self-contained."""
    kept, missed = report.marks()
    tables = [_table(label, rows) for label, rows in report.comparisons.items()]
    drawn = _figures(report.results)
    links = [(t["key"], t["title"]) for t in tables]
    links += [("figures", "Figures")] if drawn else []
    return shell.render(
        "paper.html", "widegp.paper", date=report.date, kept=kept, missed=missed, protocol=words.PROTOCOL,
        notices=[{"text": note, "cure": ""} for note in _notes(report)], tables=tables, figures=drawn,
        links=[*links, ("provenance", "How it was made")], columns=COLUMNS, open_rows=OPEN_ROWS,
        facts=_facts(report),
    )  # fmt: skip


def _table(label: str, rows: Sequence[Comparison]) -> dict[str, Any]:
    marks = [m for row in rows for m in (row.mark, row.sound_mark) if m]
    return {
        "key": label.removeprefix("tab:"),
        "title": f"{TABLES[label].title} ({label})",
        "words": words.TABLES[label],
        "counted": f"{len(rows)} numbers; {marks.count(PASS)} bounds kept, {marks.count(MISS)} missed",
        "rows": [_cells(row) for row in rows],
    }


def _cells(row: Comparison) -> list[Any]:
    """The first cell heads the row; the others have a text or a mark, and perhaps something small beside."""
    spread = f" ± {number(row.paper_sd, 2)}" if row.paper_sd is not None else ""
    times = [seconds(t) for t in (row.paper_seconds, row.sound_seconds) if t is not None]
    about = "; ".join(part for part in (f"seed {row.seeds}" if row.seeds else "", row.note) if part)
    difference = percent(row.difference, 2) if row.difference is not None else DASH
    texts = [
        row.quantity, row.published or DASH, f"{number(row.paper, 5)}{spread}", difference, row.bound or DASH,
        "", number(row.sound, 5), "", " / ".join(times) or DASH, about,
    ]  # fmt: skip
    cells = [{"text": text, "mark": "", "small": ""} for text in texts]
    cells[5]["mark"], cells[6]["small"], cells[7]["mark"] = row.mark, row.sound_bound or "", row.sound_mark
    return [row.row, *cells]


def _figures(results: dict[str, Any]) -> list[tuple[Markup, str]]:
    out = []
    if "fig:kernels" in results:
        out.append(_card("fig:kernels", figures.shapes(results["fig:kernels"]), "Kernel shapes over rho."))
    if "fig:networks" in results:
        found = results["fig:networks"]
        rates = ", ".join(f"{name.replace('_', ' ')} {slope:.2f}" for name, slope in found["slopes"].items())
        note = f" Slopes found: {rates}; {found['draws']} networks per width."
        out.append(_card("fig:networks", figures.networks(found), "Distance from the limit by width.", note))
        out.append(_card("fig:energy", figures.energy(found), "Distance of distributions by width."))
    out += _calibration(results)
    if "fig:cost" in results:
        note = f" {results['fig:cost']['rows']:,} training rows."
        out.append(_card("fig:cost", figures.cost(results["fig:cost"]), "RMSE against seconds.", note))
    if "fig:spectra" in results:
        found = results["fig:spectra"]
        worst = "; ".join(f"{k}: {number(v['condition'], 2)}" for k, v in found["designs"].items())
        note = f" {found['rows']:,} rows. Condition numbers: {worst}."
        out.append(_card("fig:spectra", figures.spectra(found), "Spectra of the information.", note))
    if "fig:profiles" in results:
        found = results["fig:profiles"]
        for name, part in found["profiles"].items():
            note = f" {found['rows']:,} rows of C1."
            out.append(_card("fig:profiles", figures.profile(part), f"Profile of {name}.", note, name))
    return out


def _calibration(results: dict[str, Any]) -> list[tuple[Markup, str]]:
    """Calibration and PIT of both protocols, on C1 and on Superconductivity."""
    pairs = {}
    if "C1" in results:
        pairs["C1"] = (results["C1"]["paper"]["kmeans"][0], results["C1"]["sound"])
    for found in results.get("superconductivity", {}).values():
        pairs["Superconductivity"] = (found["paper"][0], found["sound"])
    out = []
    for case, (paper, sound) in pairs.items():
        both = {"paper's protocol": paper, "sound default": sound}
        held = [percent(r["scores"]["coverage"], 1) for r in both.values()]
        note = f" {case}: 95% intervals hold {held[0]} (paper's protocol) and {held[1]} (sound default)."
        curve, histogram = figures.calibration(both), figures.pit(both)
        out.append(_card("fig:calibration", curve, f"Calibration on {case}.", note, case))
        out.append(_card("fig:pit", histogram, f"PIT on {case}.", f" {case}.", case))
    return out


def _card(key: str, drawn: Any, description: str, note: str = "", part: str = "") -> tuple[Markup, str]:
    """The drawing and its caption."""
    name = "-".join(word for word in (key.removeprefix("fig:"), part.lower()) if word)
    return inline_svg(drawn, name, description), words.FIGURES[key] + note


def _notes(report: Report) -> list[str]:
    plan, results = report.plan, report.results
    notes = []
    if plan.quick:
        sizes = {name: getattr(plan, name) for name in ("rows", "draws", "rank", "neighbors")}
        notes.append(words.QUICK.format(**sizes))
    labels = set(report.comparisons)
    wants_real = any(label.startswith(("tab:real", "tab:year")) for label in labels) or not labels
    if wants_real and "superconductivity" not in results and any(k.startswith("tab:real") for k in labels):
        notes.append(words.NO_SUPERCONDUCTIVITY)
    if plan.year_file is None and wants_real:
        notes.append(words.PART_OF_YEAR if "year" in results or "ranks" in results else words.NO_YEAR)
    return notes


def _facts(report: Report) -> list[tuple[str, str]]:
    plan = report.plan
    return [
        ("date", report.date),
        ("seconds of this run", seconds(report.seconds)),
        ("seed", str(plan.seed)),
        ("sound default", f"full-scale, rank {plan.rank}, {plan.neighbors} neighbours,"
                          f" {plan.predict_neighbors} when predicting"),
        ("machine", f"{platform.machine()}, {os.cpu_count()} cores"),
        ("python", platform.python_version()),
        *versions().items(),
    ]  # fmt: skip
