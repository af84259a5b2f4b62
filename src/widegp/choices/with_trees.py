"""What was chosen, with a prediction of boosted trees beside the inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widegp.choices.chosen import Chosen, Growth, choose_on
from widegp.choices.metric import beside_trees
from widegp.choices.search import Asked, deciding_rows, judged_rows
from widegp.choices.trials import Bench, Form
from widegp.warps import make_warp

# Fewer rows grow trees that say little.
LEAST_ROWS = 300
# Trees whose error is so many times that of a process given 1,000 rows have nothing to tell it.
HOPELESS = 2.0


def with_trees(bench: Bench, chosen: Chosen, asked: Asked) -> list[Chosen]:
    """Metric and noise chosen anew for rows (x, g(x)); inputs stay. None where trees cannot help.

    Trees of the target itself serve its mean squares, trees of the warped target its density. With the former
    a warp is chosen anew as well: beside g, noise that varies may do as much. That trees help, and which, is
    not decided here, since g has been told of more rows than the trials see: fits of the whole table decide,
    by rows that have not grown these trees.
    """
    ((_, scaled),) = bench.tables.items()
    if len(scaled) < LEAST_ROWS:
        return []
    X = scaled if chosen.scaler is None else chosen.scaler.transform(scaled)
    form, growth = chosen.trial.form, Growth(X, bench.problem.y, bench.seed)
    # Rounds of gradients would leave g alone: beside so few rows as trials have, it says most of all.
    asked = asked._replace(inputs=form.inputs, briefly=True)
    found = [_beside(bench, chosen, growth, asked)]
    if form.warp != "none":
        problem = replace(bench.problem, warp=make_warp(form.warp, **bench.scale))
        growth = replace(growth, target=problem.warped(chosen.trial.values).value, warped=True)
        found.append(_beside(bench, chosen, growth, asked._replace(warp=form.warp)))
    return [one for one in found if one is not None]


def _beside(bench: Bench, chosen: Chosen, growth: Growth, asked: Asked) -> Chosen | None:
    """What is chosen beside trees of one target."""
    X, form = growth.X, chosen.trial.form
    # As many rows as fits without trees will have seen when they are compared, less those that compare.
    grows = np.setdiff1d(deciding_rows(len(X), bench.seed), judged_rows(len(X), bench.seed))
    trees = growth.on(grows)
    rows = trees.training(X)
    if np.std(growth.target - trees.scale * rows[:, -1]) > HOPELESS * _error(chosen, growth.warped):
        return None
    bench = replace(bench, tables={form.inputs: rows})
    start = {name: value for name, value in chosen.trial.values.items() if name != "psi"}
    found = choose_on(bench, start, asked, Form(form.inputs, linear=beside_trees(form.linear, X)))
    return replace(found, trees=trees, growth=replace(growth, size=trees.size), scaler=chosen.scaler)


def _error(chosen: Chosen, warped: bool) -> float:
    """Root mean square of the held-out residuals without trees, of the target or of the warped one."""
    trials = chosen.candidate.trials
    squares = [trial.residual**2 if warped else trial.squares for trial in trials]
    return float(np.sqrt(np.mean(np.concatenate(squares))))
