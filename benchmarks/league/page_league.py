"""The part of docs/league.md that compares models, section by section, from rows of the CSV."""

from __future__ import annotations

from typing import Any

import pandas as pd

from benchmarks.league import figures, ranks, standings
from benchmarks.league.distributions import FITTED_LEVELS, RESOLUTION
from benchmarks.league.figures import title
from benchmarks.league.models import MODELS
from benchmarks.league.standings import OWN
from benchmarks.league.tables import TABLES
from benchmarks.league.words import counted, listed, number, table

RANKED = {"crps": "CRPS", "nll": "NLL", "rmse": "RMSE", "interval": "interval score"}
SIZES = {"up to 1,000 rows": (0, 1_000), "1,000 to 10,000 rows": (1_000, 10_000), "more": (10_000, 10**9)}
Figures = dict[str, Any]


class League:
    """Standings of all scores of numbers, over one choice of models and tables."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows
        self.numbers = standings.of_kind(rows, "regression")
        self.models, self.tables = standings.entered(self.numbers)
        self.models.sort(key=list(MODELS).index)
        self.by = {
            score: standings.standing(self.numbers, score, self.models, self.tables)
            for score in (*RANKED, "cover50", "cover80", "cover95", "fit_s", "predict_s", "peak_mib")
        }

    def mean_ranks(self, score: str) -> pd.Series:
        return self.by[score].ranks.mean()


def sections(rows: pd.DataFrame) -> tuple[list[str], Figures]:
    """Markdown of each section, and pictures by name."""
    league = League(rows)
    drawn = {
        "ranks": figures.critical_difference(
            {name: league.mean_ranks(score) for score, name in RANKED.items()}, len(league.tables)
        ),
        "tables": figures.bars({RANKED[s]: league.by[s].scores for s in ("crps", "nll", "rmse")}),
        "time": figures.against_time(league.by["fit_s"].scores, league.by["crps"].scores),
        "coverage": figures.calibration(coverage(league)),
    }
    parts = [
        what_was_run(rows), ranked(league), losses(league), advice(league), pairs(league), by_table(league),
        costs(league), calibrated(league), others(rows), entrants(rows), failures(rows),
    ]  # fmt: skip
    return parts, drawn


def what_was_run(rows: pd.DataFrame) -> str:
    done = standings.run(rows)
    ok = int((done["status"] == "ok").sum())
    dates = sorted(done["date"].unique())
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    tuned = done[done["model"].isin([name for name, model in MODELS.items() if model.tuned])]
    budgets = listed([f"{seconds:g} s" for seconds in sorted(tuned["budget_s"].dropna().unique())])
    machines = "; ".join(sorted(done["machine"].unique()))
    counts = [counted(len(done), "fit"), counted(done["model"].nunique(), "model")]
    return f"""## What was run

{" of ".join(counts)} on {counted(done["table"].nunique(), "table")}, {when}; {ok} of them ended with scores.
Machine: {machines}. Each fit had a process of its own, and cores too where this does not say
otherwise. Models that are tuned had {budgets} for it, each the same; what widegp takes is its own affair, and
is shown beside. Every row, with versions, is in `benchmarks/league/results/league.csv`; `make league` makes
the rows that are missing, and `make league-page` this page from them.

Splits are those of the shared tables: ten folds, or one split with up to three seeds of the model. Models are
compared on splits that all of them were run on, and a table counts as the mean over these. Scores are in
units of the training rows' standard deviation. **NLL** is that of the standardised target, and no density
counts beyond 1 / {RESOLUTION:g}, since targets that repeat would otherwise reward a spike without limit.
Models with a density are scored by it. Boosted trees have quantiles at
{listed([f"{level:g}" for level in FITTED_LEVELS])}: their density is that of a normal variable mapped to
the target by the straight lines through these quantiles, with exponential tails beyond the outermost, so that
Gaussian quantiles give back their Gaussian. **CRPS** is twice the mean pinball loss of 99 quantiles,
**interval score** that of central 95% intervals. Lower is better in all four."""


def ranked(league: League) -> str:
    k, n = len(league.models), len(league.tables)
    means = {score: league.mean_ranks(score) for score in RANKED}
    order = sorted(league.models, key=lambda name: means["crps"][name])
    rows = [[title(name), *(number(means[s][name], 2) for s in RANKED)] for name in order]
    tests = {RANKED[s]: ranks.friedman(league.by[s].ranks.to_numpy()).p_value for s in RANKED}
    told = listed([f"{name} {'below 0.0001' if p < 1e-4 else number(p, 4)}" for name, p in tests.items()])
    first = {s: int((means[s] < means[s][OWN]).sum()) + 1 for s in RANKED} if OWN in means["crps"] else {}
    place = listed([f"{RANKED[s]} {_ordinal(place)}" for s, place in first.items()])
    return f"""## Ranks

Mean ranks over {counted(n, "table")} of numbers ({listed(league.tables)}), 1 is best.
By mean rank widegp is: {place}, of {k} models.

{table(["model", *RANKED.values()], rows)}

Were all models alike, ranks as different as these would come with probability (Friedman): {told}.
Mean ranks that differ by less than {number(ranks.critical_difference(k, n), 2)} may differ by chance
(Nemenyi, 5%); the bars join such models.

![Mean ranks, with bars that join models which do not differ for certain](league/ranks.svg)"""


def losses(league: League) -> str:
    rows = []
    for name in league.tables:
        cells = [name]
        for score in ("crps", "nll", "rmse"):
            here = league.by[score].scores.loc[name]
            best = here.idxmin() if here.notna().any() else None
            if best is None or best == OWN:
                cells.append("**widegp**")
            else:
                cells.append(f"{title(best)} {number(here[best])} (widegp {number(here[OWN])})")
        if any("(" in cell for cell in cells):
            rows.append(cells)
    count = len(league.tables) - len(rows)
    return f"""## Where widegp is not the best

On {counted(count, "table")} of {len(league.tables)} widegp is first in CRPS, NLL and RMSE at once. On the
others the best is:

{table(["table", "CRPS", "NLL", "RMSE"], rows)}"""


def advice(league: League) -> str:
    """By size of table: who has the best mean rank in CRPS, and how far behind widegp is."""
    found = []
    for words, (low, high) in SIZES.items():
        names = [name for name in league.tables if low <= TABLES[name].rows < high]
        if not names:
            continue
        mean = league.by["crps"].ranks.loc[names].mean().sort_values()
        best = [f"{title(str(m))} {number(mean[m], 1)}" for m in mean.index[:3]]
        found.append([words, str(len(names)), *best, number(mean[OWN], 1)])
    wins: dict[str, list[str]] = {}
    for name in league.tables:
        here = league.by["crps"].scores.loc[name].dropna()
        if len(here) and here.idxmin() != OWN:
            wins.setdefault(here.idxmin(), []).append(name)
    take = [f"- **{title(model)}** for tables like {listed(names)}." for model, names in sorted(wins.items())]
    return f"""## What to take then

Mean ranks in CRPS by the size of the table:

{table(["table", "tables", "first", "second", "third", "widegp"], found)}

First in CRPS instead of widegp were

{chr(10).join(take) if take else "- none."}

`widegp compare` runs widegp beside other models on a table of your own: a better guide than any list."""


def pairs(league: League) -> str:
    rows = []
    for peer in MODELS:
        if peer == OWN or peer not in set(league.numbers["model"]):
            continue
        cells = [title(peer)]
        for score in ("crps", "nll", "rmse"):
            both, better, gap = standings.beside(league.numbers, peer, score)
            cells.append(f"{better} of {both}, {number(gap)}" if both else "–")
        rows.append(cells)
    head = ["beside", *(f"{RANKED[s]}: better on, median gap" for s in ("crps", "nll", "rmse"))]
    return f"""## widegp beside each model

Tables on which widegp is better, of those that both were run on, and the median over tables of widegp's score
less the other's.

{table(head, rows)}"""


def by_table(league: League) -> str:
    rows = []
    for name in league.tables:
        here = league.by["crps"].scores.loc[name]
        best = here.min()
        cells = [f"**{number(v)}**" if v == best else number(v) for v in here]
        rows.append([name, f"{TABLES[name].rows:,}", str(league.by["crps"].splits[name]), *cells])
    return f"""## Table by table

CRPS in units of the target's standard deviation.

{table(["table", "rows", "splits", *map(title, league.models)], rows)}

![Scores of every table as differences from its best model](league/tables.svg)"""


def costs(league: League) -> str:
    rows = []
    for model in league.models:
        cells = [title(model)]
        for score, digits in (("fit_s", 1), ("predict_s", 2), ("peak_mib", 0)):
            here = league.by[score].scores[model]
            cells += [number(here.median(), digits), number(here.max(), digits)]
        rows.append(cells)
    head = ["model", "fit s: median", "most", "predict s: median", "most", "memory MiB: median", "most"]
    return f"""## Time and memory

Over the same tables: seconds to tune and fit, seconds to predict the test rows, and memory above the table
and the libraries.

{table(head, rows)}

![Accuracy against the seconds of fitting](league/time.svg)"""


def coverage(league: League) -> pd.DataFrame:
    """Per cent of test targets inside, models x levels, means over tables."""
    by_level = {level: 100 * league.by[f"cover{level}"].scores.mean() for level in (50, 80, 95)}
    return pd.DataFrame(by_level).reindex(league.models)


def calibrated(league: League) -> str:
    found = coverage(league)
    off = {level: (100 * league.by[f"cover{level}"].scores - level).abs().mean() for level in found.columns}
    rows = []
    for model in league.models:
        cells = [f"{number(found.loc[model, level], 1)} ({number(off[level][model], 1)})" for level in found]
        rows.append([title(model), *cells])
    return f"""## Calibration

Per cent of test targets inside central intervals, mean over tables, and in brackets the mean distance from
the level, to which few test rows alone contribute some.

{table(["model", *(f"{level}%" for level in found)], rows)}

![Shares of test targets inside central intervals](league/coverage.svg)"""


def others(rows: pd.DataFrame) -> str:
    """Classes and counts: too few tables for ranks."""
    parts = ["## Classes and counts"]
    for kind, names in (
        ("classes", ("log_loss", "brier", "auc")),
        ("counts", ("log_score", "deviance", "crps")),
    ):
        here = standings.of_kind(rows, kind)
        for name in sorted(here["table"].unique()):
            mean = here[here["table"] == name].groupby("model")[[*names, "fit_s"]].mean()
            mean = mean.sort_values(names[0])
            cells = [
                [
                    title(str(m)),
                    *(number(v) for v in mean.loc[m, list(names)]),
                    number(mean.loc[m, "fit_s"], 0),
                ]
                for m in mean.index
            ]
            parts.append(f"{name} ({kind}):\n\n" + table(["model", *names, "fit s"], cells))
    return "\n\n".join(parts) if len(parts) > 1 else parts[0] + "\n\nNot run yet."


def entrants(rows: pd.DataFrame) -> str:
    done = standings.run(rows)
    cells = []
    for name, model in MODELS.items():
        here = done[done["model"] == name]
        version = ", ".join(sorted(here["versions"].unique())) if len(here) else "not run"
        cells.append([model.title, model.said, version, str(here["table"].nunique())])
    return f"""## The models

{table(["model", "what it is, and how it is tuned", "versions", "tables"], cells)}

Text and dates: LightGBM, XGBoost and CatBoost get categories as they are and dates as days; all others the
encoding of `widegp.TableEncoder`, which looks at training rows alone. Counts: a model without a likelihood
for counts predicts a number that is rounded. Outputs of tables with several are fitted one by one, with the
tuning time shared among them, but for widegp, which fits them together."""


def failures(rows: pd.DataFrame) -> str:
    bad = rows[rows["status"] != "ok"]
    grouped = bad.fillna({"detail": ""}).groupby(["model", "status", "detail"], sort=True)["table"]
    cells = [
        [title(str(model)), str(status), str(detail).replace("|", "/"), listed(sorted(set(names)))]
        for (model, status, detail), names in grouped
    ]
    if not cells:
        return "## Failures\n\nNone."
    return "## Failures\n\nA model without a score on a table comes last there.\n\n" + table(
        ["model", "what", "said", "tables"], cells
    )


def _ordinal(place: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(place, f"{place}th")
