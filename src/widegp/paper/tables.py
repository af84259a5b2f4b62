"""From records of fits to the comparisons of each published table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from widegp.budget import best_within, largest_within
from widegp.paper import published as tables
from widegp.paper.comparison import (
    Bound,
    Comparison,
    compared,
    estimate_bound,
    mark,
    noise_bound,
    score_bound,
)
from widegp.paper.published import ESTIMATES, Published

Results = Mapping[str, Any]
"""What the parts of a run returned, by the name of the part; parts that were not run are absent."""

C1_ROWS = 10_000
SOUND_RMSE = 0.3318
COVERAGE = (0.94, 0.96)


def value_of(record: Mapping[str, Any] | None, name: str) -> float | None:
    """A quantity of a published table in the record of a fit."""
    if record is None:
        return None
    if name in ("seconds", "train_sd"):
        return float(record[name])
    if name == "n_rows":
        return float(record["rows"] + record["rows_held_out"])
    found = record["params"].get(name, record["scores"].get(name))
    return None if found is None else float(found)


def _mean(records: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Mean and, from two records on, standard deviation of a quantity."""
    values = [v for v in (value_of(r, name) for r in records) if v is not None]
    if not values:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def kernels(results: Results) -> list[Comparison]:
    """To four digits."""
    table, found = tables.KERNELS, results.get("kernels", {})
    return [
        compared(
            table.label, " x ".join(row), column, cell, found.get(" x ".join(row)),
            bound=Bound(0.5e-4, relative=False),
        )
        for row, column, cell in table.cells()
    ]  # fmt: skip


def scenarios(results: Results) -> list[Comparison]:
    """K-bar and noise at the published number of rows; the time is that of all draws at the plan's rows."""
    table, found = tables.SCENARIOS, results.get("designs", {})
    out = []
    for (case,), column, cell in table.cells():
        about = found.get(case) or results.get(case, {}).get("design")
        if about is None or column not in ("kbar", "noise_sd", "sigma_eps2", "seconds"):
            continue
        timed = column == "seconds"
        out.append(
            compared(
                table.label, case, column, cell, about[column], bound=None if timed else noise_bound(case),
                seeds=str(about["seed"]),
                note=f"{about['draws']} draws of {about['rows']:,} rows" if timed else "",
            )
        )  # fmt: skip
    return out


def _scenario_cells(table: Published, results: Results, bound: Callable[[str, str], Any]) -> list[Comparison]:
    out = []
    for (case, anchors), column, cell in table.cells():
        found = results.get(case)
        if found is None:
            continue
        records, sound, design = found["paper"][anchors], found["sound"], found["design"]
        mean, sd = _mean(records, column)
        smaller = design["rows"] != design["published_rows"]
        timed = column == "seconds"
        out.append(
            compared(
                table.label, f"{case} {anchors}", column, cell, mean, paper_sd=sd,
                bound=None if smaller else bound(case, column),
                sound=value_of(sound, column), seeds=_seeds(records),
                paper_seconds=None if timed else _mean(records, "seconds")[0],
                sound_seconds=None if timed else sound["seconds"],
                note=f"{design['rows']:,} rows" if smaller else "",
            )
        )  # fmt: skip
    return out


def scenario_estimates(results: Results) -> list[Comparison]:
    return _scenario_cells(tables.SCENARIO_ESTIMATES, results, lambda _, name: estimate_bound(name))


def scenario_metrics(results: Results) -> list[Comparison]:
    return _scenario_cells(tables.SCENARIO_METRICS, results, score_bound)


def _seeds(records: Sequence[Mapping[str, Any]]) -> str:
    draws = sorted({int(r["draw"]) for r in records})
    many = f"draws {draws[0]} to {draws[-1]}" if len(draws) > 1 else f"draw {draws[0]}"
    return f"{records[0]['seed']}, {many}"


def replications(results: Results) -> list[Comparison]:
    """Mean, sd, min and max over the draws; the sound default has bounds of its own."""
    table, found = tables.REPLICATIONS, results.get("replications")
    if found is None:
        return []
    first = found["paper"][0]
    smaller = first["rows"] + first["rows_held_out"] != C1_ROWS
    note = f"{len(found['paper'])} draws of {first['rows'] + first['rows_held_out']:,} rows"
    shared: dict[str, Any] = {"seeds": _seeds(found["paper"]), "note": note}
    out = []
    for (name,), statistic, cell in table.cells():
        marked = statistic == "mean" and not smaller
        bound = estimate_bound(name) or score_bound("C1", name) if marked else None
        ours, sound = _statistic(found["paper"], name, statistic), _statistic(found["sound"], name, statistic)
        extra: dict[str, Any] = {}
        if name == "rmse" and marked and sound is not None:
            extra = {"sound_bound": f"below {SOUND_RMSE}", "sound_mark": mark(sound < SOUND_RMSE)}
        out.append(
            compared(table.label, name, statistic, cell, ours, bound=bound, sound=sound, **shared, **extra)
        )
    return [*out, _coverage(table.label, found, shared, marked=not smaller)]


def _coverage(label: str, found: Mapping[str, Any], shared: dict[str, Any], marked: bool) -> Comparison:
    ours, sound = (_statistic(found[key], "coverage", "mean") for key in ("paper", "sound"))
    low, high = COVERAGE
    held = sound is not None and low <= sound <= high
    asked: dict[str, Any] = {}
    if marked:
        asked = {"sound_bound": f"{low} to {high}", "sound_mark": mark(held)}
    return compared(label, "coverage of 95% intervals", "mean", "", ours, sound=sound, **asked, **shared)


def _statistic(records: Sequence[Mapping[str, Any]], name: str, statistic: str) -> float | None:
    values = [v for v in (value_of(r, name) for r in records) if v is not None]
    if not values or (statistic == "sd" and len(values) < 2):
        return None
    match statistic:
        case "mean":
            return float(np.mean(values))
        case "sd":
            return float(np.std(values, ddof=1))
        case "min":
            return min(values)
    return max(values)


def _real_cells(table: Published, results: Results, bound: Callable[[str], Any]) -> list[Comparison]:
    """Bounds apply where the rows are the paper's; a part of YearPredictionMSD is shown without."""
    found = {**results.get("superconductivity", {}), **results.get("year", {})}
    out = []
    for (case,), column, cell in table.cells():
        pair = found.get(case)
        if pair is None or column == "n_inputs":
            continue
        paper, sound = pair["paper"], pair["sound"]
        mean, sd = _mean(paper, column)
        value = value_of(sound, column)
        extra: dict[str, Any] = {}
        if case.startswith("S1") and column == "rmse" and value is not None and not _fewer(pair):
            half = float(cell) / 2
            extra = {"sound_bound": f"at most {half:g}", "sound_mark": mark(value <= half)}
        asked = None if pair.get("partial") or column in ("n_rows", "seconds") else bound(column)
        out.append(
            compared(
                table.label, case, column, cell, mean, bound=asked, paper_sd=sd, sound=value,
                seeds=_splits(paper), paper_seconds=_mean(paper, "seconds")[0],
                sound_seconds=sound["seconds"], note=f"{pair['note']}{_fewer(pair)}", **extra,
            )
        )  # fmt: skip
    return out


def _splits(records: Sequence[Mapping[str, Any]]) -> str:
    first, last = records[0]["seed"], records[-1]["seed"]
    return str(first) if first == last else f"{first} to {last}"


def _fewer(pair: Mapping[str, Any]) -> str:
    rows = pair["sound"]["rows"]
    return f"; sound default on {rows:,} training rows" if rows != pair["paper"][0]["rows"] else ""


def real_estimates(results: Results) -> list[Comparison]:
    return _real_cells(tables.REAL_ESTIMATES, results, estimate_bound)


def real_metrics(results: Results) -> list[Comparison]:
    return _real_cells(tables.REAL_METRICS, results, lambda name: Bound(0.05))


def real_scaled(results: Results) -> list[Comparison]:
    return _real_cells(tables.REAL_SCALED, results, lambda name: Bound(0.05))


def _rank_cells(table: Published, results: Results, names: Sequence[str]) -> list[Comparison]:
    """Times are those of the simulated table where the whole of YearPredictionMSD is not at hand."""
    found, times = results.get("ranks"), results.get("times", {}).get("paper", {})
    out = []
    for (rank,), column, cell in table.cells():
        paper = None if found is None else found["paper"].get(rank)
        timed, whole = times.get(rank), bool(found and found["whole"])
        if column == "seconds" and not whole:
            paper, note = timed, "" if timed is None else f"simulated, {timed['n']:,} rows"
        else:
            note = "" if found is None else found["note"]
        if paper is None or column not in (*names, "seconds"):
            continue
        out.append(
            compared(
                table.label, f"r = {rank}", column, cell, value_of(paper, column),
                bound=(estimate_bound(column) or Bound(0.05)) if whole and column != "seconds" else None,
                sound=None if found is None else value_of(found["sound"], column), seeds=str(paper["seed"]),
                paper_seconds=paper["seconds"],
                sound_seconds=None if found is None else found["sound"]["seconds"], note=note,
            )
        )  # fmt: skip
    return out


def rank_estimates(results: Results) -> list[Comparison]:
    return _rank_cells(tables.RANK_ESTIMATES, results, ESTIMATES)


def rank_metrics(results: Results) -> list[Comparison]:
    return _rank_cells(tables.RANK_METRICS, results, tables.RANK_METRICS.columns)


def rank_scaled(results: Results) -> list[Comparison]:
    return _rank_cells(tables.RANK_SCALED, results, tables.RANK_SCALED.columns)


def budgets(results: Results) -> list[Comparison]:
    """r_max(T) and r_best(T) by `widegp.budget`: first from the published grid, then from our own times."""
    grid = tables.RANK_METRICS
    printed = {float(rank): {c: float(v) for c, v in cells.items()} for (rank,), cells in grid.rows.items()}
    ours = _own_grid(results)
    out = []
    for (budget,), cells in tables.BUDGET.rows.items():
        again = _choices(printed, float(budget))
        own = _choices(ours, float(budget))
        for column, cell in cells.items():
            note = f"from our times: {own[column]:g}" if own else ""
            out.append(
                compared(
                    tables.BUDGET.label, f"T = {budget} s", column, cell, again[column], bound=Bound(1e-9),
                    note=note,
                )
            )  # fmt: skip
    return out


def _own_grid(results: Results) -> dict[float, dict[str, float]]:
    found, times = results.get("ranks"), results.get("times", {}).get("paper", {})
    if found is None:
        return {}
    grid = {}
    for rank, record in found["paper"].items():
        timed = record if found["whole"] else times.get(rank)
        if timed is not None:
            grid[float(rank)] = {**record["scores"], "seconds": float(timed["seconds"])}
    return grid


def _choices(grid: Mapping[float, Mapping[str, float]], budget: float) -> dict[str, float]:
    """The cells of a row of the budget table; none where nothing fits the budget."""
    costs = {rank: cells["seconds"] for rank, cells in grid.items()}
    if not costs or min(costs.values()) > budget:
        return {}
    largest = largest_within(costs, budget)
    best = best_within(costs, {rank: cells["rmse"] for rank, cells in grid.items()}, budget)
    chosen = grid[largest]
    return {
        "r_max": largest, "seconds": chosen["seconds"], "mae": chosen["mae"], "rmse": chosen["rmse"],
        "r_best": best, "rmse_best": grid[best]["rmse"],
    }  # fmt: skip


BUILDERS: dict[str, Callable[[Results], list[Comparison]]] = {
    "tab:corr-kernels": kernels,
    "tab:cenarios_simulacao_kmix": scenarios,
    "tab:map_params_50eps_anchors": scenario_estimates,
    "tab:test_metrics_50eps_anchors": scenario_metrics,
    "tab:C1_reps_summary_50eps": replications,
    "tab:real_map_params_50eps": real_estimates,
    "tab:real_metrics_50eps": real_metrics,
    "tab:real_metrics_z": real_scaled,
    "tab:year_full_map_params_gridN": rank_estimates,
    "tab:year_full_metrics_gridN": rank_metrics,
    "tab:year_full_metrics_z_gridN": rank_scaled,
    "tab:budget_r_choice": budgets,
}
