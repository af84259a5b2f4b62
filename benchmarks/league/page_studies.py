"""The parts of docs/league.md on dials, parts of the model, and clusters, from the rows of their CSVs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.league import ablation, figures, metric, scaling, sensitivity
from benchmarks.league.words import counted, listed, number, table
from widegp import budget

# Nats a row: a dial is turned far enough where more would gain less than this.
NEAR = 0.01
EXTRAPOLATED = (1e6, 1e7, 1e8)
CLUSTERS = (16, 128)
COLUMNS_OF_METRICS = ("default", *metric.METRICS)
Section = tuple[str, dict[str, Any]]


def not_run(heading: str, study: str) -> Section:
    return f"## {heading}\n\nNot run yet: `python -m benchmarks.league.run {study}`.", {}


def _settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that ended, with a column for each setting."""
    done = rows[rows["status"] == "ok"].reset_index(drop=True)
    settings = pd.DataFrame([json.loads(text) for text in done["settings"]])
    return done.join(settings[[name for name in settings if name not in done]])


def dials(rows: pd.DataFrame) -> Section:
    """Along each dial through the centre: NLL less that of the centre, table by table."""
    heading = "Sensitivity: anchors, rank, neighbours"
    if rows.empty:
        return not_run(heading, "sensitivity")
    found, centre = _settings(rows), sensitivity.CENTRE
    along: dict[str, dict[str, pd.Series]] = {}
    for dial in centre:
        fixed = [name for name in centre if name != dial]
        here = found[np.logical_and.reduce([found[name] == centre[name] for name in fixed])]
        lines = {}
        for name in sensitivity.TABLES:
            line = here[here["table"] == name].groupby(dial)["nll"].mean()
            if centre[dial] in line.index and len(line) > 1:
                lines[name] = line - line[centre[dial]]
        if lines:
            along[dial] = lines
    text = f"""## {heading}

Plain fits, full-scale, with one dial turned about the centre:
{listed([f"{k} {v}" for k, v in centre.items()])}.
NLL of test rows less that of the centre; these rows chose nothing.

{_dial_tables(along)}

{_rule(along)}

{_time_rules(found)}

![NLL against each dial, table by table](league/dials.svg)"""
    return text, {"dials": figures.curves(along)} if along else {}


def _dial_tables(along: dict[str, dict[str, pd.Series]]) -> str:
    parts = []
    for dial, lines in along.items():
        values = sorted({v for line in lines.values() for v in line.index})
        cells = [[name, *(number(line.get(v, np.nan)) for v in values)] for name, line in lines.items()]
        parts.append(table([f"`{dial}`", *map(str, values)], cells))
    return "\n\n".join(parts)


def _rule(along: dict[str, dict[str, pd.Series]]) -> str:
    """For numeric dials: the smallest value within NEAR of the best, table by table."""
    told = []
    for dial, lines in along.items():
        if dial == "anchors":
            mean = pd.DataFrame(lines).mean(axis=1).sort_values()
            apart = number(mean.iloc[-1] - mean.iloc[0])
            told.append(
                f"- `anchors`: on average best `{mean.index[0]}`, worst `{mean.index[-1]}` ({apart})."
            )
            continue
        enough = [int(line.index[line <= line.min() + NEAR].min()) for line in lines.values()]
        told.append(
            f"- `{dial}`: {int(np.median(enough))} is enough on half of the tables and {max(enough)} on all"
            f" {len(enough)}; the centre is {sensitivity.CENTRE[dial]}."
        )
    return (
        f"Rule of thumb: the smallest value whose NLL is within {NEAR:g} of the best along the dial.\n\n"
        + "\n".join(told)
    )


def _time_rules(found: pd.DataFrame) -> str:
    """The paper's two rules for a budget of time, on the ranks that were run."""
    centre, cells = sensitivity.CENTRE, []
    fixed = [name for name in centre if name != "rank"]
    here = found[np.logical_and.reduce([found[name] == centre[name] for name in fixed])]
    for name in sensitivity.TABLES:
        line = here[here["table"] == name].groupby("rank")[["fit_s", "rmse"]].mean()
        if len(line) < 2:
            continue
        allowed = float(line["fit_s"].median())
        costs, errors = line["fit_s"].to_dict(), line["rmse"].to_dict()
        largest, best = budget.largest_within(costs, allowed), budget.best_within(costs, errors, allowed)
        cells.append(
            [name, number(allowed, 1), *(f"{int(r)}, {number(errors[r], 4)}" for r in (largest, best))]
        )
    if not cells:
        return ""
    head = ["table", "budget s", "largest rank within it, RMSE", "best rank within it, RMSE"]
    return "The paper's rules for a budget of time, at the median of the measured times:\n\n" + table(
        head, cells
    )


def parts(rows: pd.DataFrame) -> Section:
    """What each part of the default is worth: scores without it less scores with it."""
    heading = "Ablation: what each part is worth"
    if rows.empty:
        return not_run(heading, "ablation")
    found = rows[rows["status"] == "ok"].copy()
    names = {json.dumps(setting, sort_keys=True): name for name, setting in ablation.VARIANTS.items()}
    found["variant"] = found["settings"].map(names)
    blocks = []
    for score, digits in (("nll", 3), ("crps", 4), ("rmse", 4)):
        wide = found.pivot_table(index=["table", "fold", "seed"], columns="variant", values=score)
        if "the default" not in wide:
            continue
        gap = wide.sub(wide["the default"], axis=0).groupby(level="table").mean()
        tables = [name for name in ablation.TABLES if name in gap.index]
        cells = []
        for name in ablation.VARIANTS:
            if name in gap and name != "the default":
                line = gap.loc[tables, name]
                cells.append([name, number(line.mean(), digits), *(number(v, digits) for v in line)])
        blocks.append(f"{score.upper()}:\n\n" + table(["instead", "mean", *tables], cells))
    done = found.groupby("table").size().sum()
    text = f"""## {heading}

One part of the default replaced at a time: score without the part less score with it, so that positive
numbers are what the part is worth. {counted(int(done), "fit")}, means over the splits that both have.

""" + "\n\n".join(blocks)
    return text, {}


def metrics(rows: pd.DataFrame, league: pd.DataFrame) -> Section:
    """The default beside plain fits with one variance for all inputs and with one for each, fold by fold."""
    heading = "One variance for all inputs, or one for each"
    if rows.empty or league.empty:
        return not_run(heading, "metric")
    named = _settings(rows).rename(columns={"metric": "name"})
    default = league[(league["model"] == "widegp") & (league["status"] == "ok")].assign(name="default")
    both = pd.concat([named, default])
    cells = []
    for of in metric.TABLES:
        here = both[both["table"] == of]
        wide = here.pivot_table(index="fold", columns="name", values=["rmse", "nll"]).dropna()
        if len(wide):
            mean = wide.mean()
            told = [f"{number(mean['rmse', k], 4)}, {number(mean['nll', k])}" for k in COLUMNS_OF_METRICS]
            cells.append([of, str(len(wide)), *told])
    head = ["table", "folds", "the default", "one for all", "one for each"]
    text = f"""## {heading}

RMSE/sd and NLL, means over the folds that all three were run on; the last two are plain fits (no warp, one
noise, no averages, no trees). NLL counts densities up to 1,000.

{table(head, cells)}"""
    return text, {}


def clusters(rows: pd.DataFrame) -> Section:
    """The cost model of each part, strong and weak scaling."""
    heading = "Rows by the hundred million: a Dask cluster"
    if rows.empty:
        return not_run(heading, "scaling")
    found = _settings(rows)
    models, strong, weak = [], [], []
    for part in scaling.PARTS:
        here = found[found["part"] == part]
        # Workers that share cores are no measure of a cluster whose workers do not.
        known = here[here["detail"] != scaling.CROWDED]
        if len(known) < 3:
            continue
        model = scaling.cost_model(known["rows"], known["workers"], known["fit_s"])
        ahead = [_seconds(*model.at(n, w)) for n in EXTRAPOLATED for w in CLUSTERS]
        models.append(
            [part, number(model.a, 2), number(1e6 * model.b, 2), number(100 * model.scatter, 0), *ahead]
        )
        t = here.pivot_table(index="rows", columns="workers", values="fit_s")
        strong += [[part, f"{n:,}", *_ratios(t.loc[n])] for n in t.index]
        each = t.index.min()
        steps = [(w, each * w) for w in t.columns if each * w in t.index]
        weak.append([part, f"{each:,}", *(number(t.loc[each, 1] / t.loc[n, w], 2) for w, n in steps)])
    crowded = int((found["detail"] == scaling.CROWDED).sum())
    words = "had more workers than cores; the model leaves them out"
    note = f" {counted(crowded, 'row')} {words}." if crowded else ""
    sizes = [f"{n:,.0f} rows, {w} workers" for n in EXTRAPOLATED for w in CLUSTERS]
    head = ["part", "a, s", "b, µs a row", "scatter, %", *sizes]
    most = int(found["rows"].max())
    columns = [f"{w} worker{'s' * (w > 1)}" for w in scaling.WORKERS]
    text = f"""## {heading}

Seconds of one draw of the targets (a network of {scaling.WIDTH:,} units whose limit is K_mix,
{scaling.INPUTS} inputs), or of one objective with its gradient (rank {scaling.RANK}, {scaling.NEIGHBORS}
neighbours for full-scale), on workers of one thread of one machine, up to {most:,} rows. The model
t = a + b n / W is fitted to these, and carried on with its standard error; a network between machines is not
in it.{note}

{table(head, models)}

Strong scaling, speed against one worker (ideal: the number of workers):

{table(["part", "rows", *columns], strong)}

Weak scaling, so many rows for each worker: seconds of one worker over seconds of several (ideal: 1):

{table(["part", "rows for each", *columns], weak)}"""
    return text, {}


def _ratios(line: pd.Series) -> list[str]:
    return [number(line.get(1, np.nan) / line.get(w, np.nan), 2) for w in scaling.WORKERS]


def _seconds(value: float, error: float) -> str:
    if value >= 100:
        return f"{value:,.0f} ± {error:,.0f} s"
    return f"{value:.3g} ± {error:.2g} s"
