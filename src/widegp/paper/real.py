"""The real tables: Superconductivity, YearPredictionMSD, and a simulated table of the latter's size."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from widegp.data.errors import TableError
from widegp.designs import uniform
from widegp.kernels.closed import Mixed
from widegp.paper.plan import Plan
from widegp.paper.protocol import Split, held_out, paper_fit, record, sound_fit
from widegp.paper.scenarios import Record, sound_dials
from widegp.paper.store import Store
from widegp.simulate import simulate

SUPERCONDUCTIVITY = "superconductivity.parquet"
YEAR_PART = "yearpredictionmsd_8162.parquet"
TARGETS = {SUPERCONDUCTIVITY: "critical_temp", YEAR_PART: "year"}
YEAR_COLUMNS = 91
YEAR_SIZES = {"R1_year_full_10k": 10_000, "R2_year_full_20k": 20_000, "R3_year_full_50k": 50_000}
SUPER_CASE = "S1_super_full_all"


class Rows(NamedTuple):
    """X (n, I), y (n,) and a word on what they are."""

    X: np.ndarray
    y: np.ndarray
    note: str


def read_parquet(folder: Path | None, name: str) -> Rows | None:
    """A table of ``folder``, or None where it is not there."""
    path = None if folder is None else folder / name
    if path is None or not path.exists():
        return None
    from widegp.data.tables import open_table

    frame = open_table(path).read()
    target = TARGETS[name]
    X = np.column_stack([frame[c].to_numpy() for c in frame.column_names if c != target])
    return Rows(X.astype(float), frame[target].to_numpy().astype(float), f"{len(X):,} rows of {name}")


def read_year_file(path: str | os.PathLike[str]) -> Rows:
    """The UCI file YearPredictionMSD.txt: no header, the year first, then 90 inputs, parted by commas."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        frame = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
    except pa.ArrowInvalid as error:
        raise TableError(f"{path} cannot be read as the UCI text file ({error}); unpack it first.") from error
    if frame.num_columns != YEAR_COLUMNS:
        raise TableError(
            f"{path} has {frame.num_columns} columns where YearPredictionMSD.txt has {YEAR_COLUMNS};"
            " pass the file as UCI has it, without a header."
        )
    columns = [column.to_numpy().astype(float) for column in frame.columns]
    return Rows(np.column_stack(columns[1:]), columns[0], f"{frame.num_rows:,} rows of the UCI file")


def superconductivity(plan: Plan, store: Store) -> Record | None:
    """The whole table, k-means anchors; None where it is not there."""
    rows = read_parquet(plan.data, SUPERCONDUCTIVITY)
    return None if rows is None else _both(SUPER_CASE, rows, plan, store)


def year_subsamples(plan: Plan, store: Store) -> dict[str, Record]:
    """R1 to R3 on random rows of the whole file; without it, R1 alone on the rows at hand."""
    if plan.year_file is not None:
        whole = read_year_file(plan.year_file)
        order = np.random.default_rng(plan.seed).permutation(len(whole.y))
        return {
            case: _both(case, Rows(whole.X[order[:n]], whole.y[order[:n]], f"{n:,} random rows"), plan, store)
            for case, n in YEAR_SIZES.items()
        }
    part = read_parquet(plan.data, YEAR_PART)
    if part is None:
        return {}
    case = "R1_year_full_10k"
    return {case: _both(case, part, plan, store) | {"partial": True}}


def _both(case: str, rows: Rows, plan: Plan, store: Store) -> Record:
    """{"paper": records, one per split, "sound": record of the first split, "note"} of one table."""

    def about(seed: int) -> Record:
        return {"case": case, "n": len(rows.y), "seed": seed}

    def paper(seed: int) -> Record:
        split = held_out(rows.X, rows.y, seed)
        return record(paper_fit(split, "kmeans", seed=seed, real=True), split, **about(seed))

    def sound() -> Record:
        part = fewer(held_out(rows.X, rows.y, plan.seed), plan.sound_rows)
        made = sound_fit(part, plan.seed, real=True, **sound_dials(plan))
        return record(made, part, **about(plan.seed))

    seeds = range(plan.seed, plan.seed + plan.splits)
    settings = {**about(plan.seed), **sound_dials(plan), "rows": plan.sound_rows}
    return {
        "paper": [store.result(f"{case}/paper-{s}", about(s), partial(paper, s)) for s in seeds],
        "sound": store.result(f"{case}/sound", settings, sound),
        "note": rows.note,
    }


def fewer(split: Split, rows: int | None) -> Split:
    """The first of the training rows, which are in random order; the held-out rows stay."""
    return split if rows is None else Split(split.X[:rows], split.y[:rows], split.X_test, split.y_test)


def rank_source(plan: Plan) -> tuple[Rows, bool] | None:
    """The rows on which ranks are compared, and whether they are the whole of YearPredictionMSD."""
    if plan.year_file is not None:
        return read_year_file(plan.year_file), True
    part = read_parquet(plan.data, YEAR_PART)
    return None if part is None else (part, False)


def rank_records(plan: Plan, store: Store) -> Record | None:
    """{"paper": {rank: record}, "sound": record, "whole", "note"}; anchors are the first rows."""
    source = rank_source(plan)
    if source is None:
        return None
    rows, whole = source
    split = held_out(rows.X, rows.y, plan.seed)
    paper = {}
    for rank in plan.ranks:
        about = {"case": "year", "n": len(rows.y), "rank": rank, "seed": plan.seed}

        def compute(rank: int = rank, about: Record = about) -> Record:
            return record(paper_fit(split, "first", rank, plan.seed, real=True), split, **about)

        paper[str(rank)] = store.result(f"year/paper-{rank}", about, compute)
    if whole:
        # The sound default on all rows is timed apart; its scores come from 50,000 of them.
        sound = year_subsamples(plan, store)["R3_year_full_50k"]["sound"]
    else:
        sound = year_subsamples(plan, store)["R1_year_full_10k"]["sound"]
    return {"paper": paper, "sound": sound, "whole": whole, "note": rows.note}


def simulated_whole(plan: Plan) -> Rows:
    """A table of the size of YearPredictionMSD, its target drawn by one wide network."""
    X = uniform(plan.whole_rows, plan.whole_inputs, plan.seed)
    made = simulate(Mixed(), X, method="network", width=plan.whole_width, rng=plan.seed)
    return Rows(X, made.y, f"a simulated table of {plan.whole_rows:,} rows and {plan.whole_inputs} inputs")


def time_records(plan: Plan, store: Store) -> dict[str, dict[str, Record]]:
    """{"paper": {rank: record}, "sound": {rows: record}} on the simulated table: for their seconds."""
    made: list[Rows] = []

    def split(n: int | None = None) -> Split:
        if not made:
            made.append(simulated_whole(plan))
        return held_out(made[0].X[:n], made[0].y[:n], plan.seed)

    size = {"n": plan.whole_rows, "inputs": plan.whole_inputs, "width": plan.whole_width, "seed": plan.seed}
    paper: dict[str, Record] = {}
    for rank in plan.ranks:
        about: dict[str, Any] = {"case": "simulated", **size, "rank": rank}

        def fit_paper(rank: int = rank, about: Record = about) -> Record:
            part = split()
            return record(paper_fit(part, "first", rank, plan.seed), part, **about)

        paper[str(rank)] = store.result(f"times/paper-{rank}", about, fit_paper)
    sound = {}
    for n in plan.sound_sizes:
        about = {"case": "simulated", **size, **sound_dials(plan), "first": n, "budget": plan.sound_budget}

        def fit_sound(n: int = n, about: Record = about) -> Record:
            part = split(n)
            return record(
                sound_fit(part, plan.seed, budget=plan.sound_budget, **sound_dials(plan)), part, **about
            )

        sound[str(n)] = store.result(f"times/sound-{n}", about, fit_sound)
    return {"paper": paper, "sound": sound}
