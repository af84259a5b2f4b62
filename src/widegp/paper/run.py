"""Which parts a table or figure needs, and a run of them from first to last."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from widegp.files import write_whole
from widegp.paper import real, scenarios, studies
from widegp.paper.comparison import COLUMNS, MISS, PASS, Comparison
from widegp.paper.plan import Plan
from widegp.paper.published import TABLES
from widegp.paper.store import Store
from widegp.paper.tables import BUILDERS
from widegp.progress import Listener

PAGE = "index.html"
SCENARIO_TABLES = (
    "tab:cenarios_simulacao_kmix", "tab:map_params_50eps_anchors", "tab:test_metrics_50eps_anchors",
)  # fmt: skip


def _designs(plan: Plan, store: Store) -> dict[str, Any]:
    return {name: scenarios.design(name, plan, store) for name in scenarios.NAMES}


def _superconductivity(plan: Plan, store: Store) -> dict[str, Any]:
    found = real.superconductivity(plan, store)
    return {} if found is None else {real.SUPER_CASE: found}


def _scenario(name: str) -> Callable[[Plan, Store], Any]:
    return lambda plan, store: scenarios.scenario_records(name, plan, store)


PARTS: dict[str, Callable[[Plan, Store], Any]] = {
    "kernels": studies.shapes,
    "fig:kernels": studies.shape_curves,
    "fig:networks": studies.networks,
    "fig:spectra": studies.spectra,
    **{name: _scenario(name) for name in scenarios.NAMES},
    "designs": _designs,
    "fig:profiles": studies.profiles,
    "fig:cost": studies.cost,
    "superconductivity": _superconductivity,
    "year": real.year_subsamples,
    "ranks": real.rank_records,
    "replications": scenarios.replication_records,
    "times": real.time_records,
}
"""In the order in which they run: what is quick or most looked at first."""

_ALL_SCENARIOS = scenarios.NAMES
NEEDS: dict[str, tuple[str, ...]] = {
    "tab:corr-kernels": ("kernels",),
    "tab:cenarios_simulacao_kmix": ("designs",),
    "tab:map_params_50eps_anchors": _ALL_SCENARIOS,
    "tab:test_metrics_50eps_anchors": _ALL_SCENARIOS,
    "tab:C1_reps_summary_50eps": ("replications",),
    "tab:real_map_params_50eps": ("superconductivity", "year"),
    "tab:real_metrics_50eps": ("superconductivity", "year"),
    "tab:real_metrics_z": ("superconductivity", "year"),
    "tab:year_full_map_params_gridN": ("ranks",),
    "tab:year_full_metrics_gridN": ("ranks", "times"),
    "tab:year_full_metrics_z_gridN": ("ranks",),
    "tab:budget_r_choice": ("ranks", "times"),
    "fig:calibration": ("C1", "superconductivity"),
}
TARGETS = (*scenarios.NAMES, *TABLES, *(name for name in (*PARTS, *NEEDS) if name.startswith("fig:")))


@dataclass(frozen=True)
class Report:
    """What a run found: results by part, comparisons by table, and where the page is."""

    plan: Plan
    results: dict[str, Any]
    comparisons: dict[str, list[Comparison]]
    seconds: float
    date: str
    page: Path

    def marks(self) -> tuple[int, int]:
        """Bounds kept and bounds missed."""
        found = [m for rows in self.comparisons.values() for c in rows for m in (c.mark, c.sound_mark)]
        return found.count(PASS), found.count(MISS)


def parts_of(targets: Sequence[str]) -> list[str]:
    """The parts behind scenarios, tables and figures; all of them where none is named."""
    for target in targets:
        if target not in TARGETS:
            raise ValueError(f"There is no {target!r} in the paper; choose from {', '.join(TARGETS)}.")
    wanted: Iterable[str] = PARTS
    if targets:
        wanted = {part for target in targets for part in NEEDS.get(target, (target,))}
    return [part for part in PARTS if part in wanted]


def run_paper(
    out: str | os.PathLike[str], plan: Plan, targets: Sequence[str] = (),
    progress: Listener = lambda event: None,
) -> Report:  # fmt: skip
    """Run what ``targets`` need, each result kept in ``out``; write a CSV file per table and a page."""
    from widegp.paper.page import render

    began, folder = time.perf_counter(), Path(out)
    parts = parts_of(targets)
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder, progress)
    results: dict[str, Any] = {}
    for part in parts:
        found = PARTS[part](plan, store)
        if found:
            results[part] = found
    comparisons = {label: build(results) for label, build in BUILDERS.items() if _asked(label, targets)}
    comparisons = {label: rows for label, rows in comparisons.items() if rows}
    for label, rows in comparisons.items():
        write_whole(folder / f"{label.removeprefix('tab:')}.csv", as_csv(rows).encode())
    date = datetime.now(UTC).isoformat(timespec="seconds")
    report = Report(plan, results, comparisons, time.perf_counter() - began, date, folder / PAGE)
    write_whole(report.page, render(report).encode())
    return report


def _asked(label: str, targets: Sequence[str]) -> bool:
    """Without targets all tables; a scenario asks for its rows of the tables of scenarios."""
    if not targets or label in targets:
        return True
    return label in SCENARIO_TABLES and any(target in scenarios.NAMES for target in targets)


def as_csv(rows: Sequence[Comparison]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.to_dict() for row in rows)
    return text.getvalue()
