"""What was chosen, with a prediction of boosted trees beside the inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widegp.choices.chosen import Chosen, GrownTrees, choose_on
from widegp.choices.metric import beside_trees
from widegp.choices.search import Asked, deciding_rows, judged_rows
from widegp.choices.trials import Bench, Form
from widegp.trees import too_few_kinds
from widegp.warps import make_warp

# Fewer rows grow trees that say little.
LEAST_ROWS = 300
# Trees with so many times the error of a process fitted to a part of the rows cannot help it.
HOPELESS = 2.0


def with_trees(bench: Bench, chosen: Chosen, asked: Asked) -> Chosen | None:
    """Metric, warp and noise chosen anew for rows (x, g(x)); inputs stay. None where trees cannot help.

    Small trees and large ones predict the target itself, whose mean squares they are good at, and further
    large ones the warped target, where a warp was chosen; beside g, noise that varies may do as much as a
    warp. Whether they help is not decided here, since g was grown on more rows than the trials see. Fits of
    the whole table decide, by rows that have not grown these trees.
    """
    ((_, scaled),) = bench.tables.items()
    if len(scaled) < LEAST_ROWS or too_few_kinds(scaled):
        return None
    X = scaled if chosen.scaler is None else chosen.scaler.transform(scaled)
    form = chosen.trial.form
    problem = replace(bench.problem, warp=make_warp(form.warp, **bench.scale))
    warped = [] if form.warp == "none" else [problem.warped(chosen.trial.values).value]
    target = np.column_stack([problem.y, problem.y, *warped])
    # As many rows as fits without trees will have seen when they are compared, less those that compare.
    deciding = deciding_rows(len(X), bench.seed)
    grown_trees = GrownTrees(X, target, bench.seed)
    trees = grown_trees.on(np.setdiff1d(deciding, judged_rows(len(X), bench.seed)))
    rows = trees.training(X, deciding)
    errors = np.std(problem.y[deciding] - trees.scale[0] * rows[deciding, X.shape[1]])
    if errors > HOPELESS * np.sqrt(np.mean(chosen.candidate.squares)):
        return None
    bench = replace(bench, tables={form.inputs: rows})
    start = {name: value for name, value in chosen.trial.values.items() if name != "psi"}
    # Metrics of gradients are not tried: with few rows they keep the trees' columns alone.
    again = asked._replace(inputs=form.inputs, briefly=True)
    linear = beside_trees(form.linear, X, trees.columns)
    found = choose_on(bench, start, again, Form(form.inputs, linear=linear))
    return replace(found, trees=trees, grown_trees=grown_trees, scaler=chosen.scaler)
