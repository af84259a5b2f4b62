"""The stages of a fit that chooses on held-out rows, as `widegp.inference.plan` has those of a plain one."""

from __future__ import annotations

from dataclasses import replace

from widegp.choices.chosen import LEAST_ROWS
from widegp.choices.left_out import NEIGHBORS
from widegp.choices.search import DECIDING, POWERS, folds
from widegp.choices.trials import Bench
from widegp.choices.whole import GRADIENT_ROWS, LEFT_OUT_ROWS, WORTHWHILE
from widegp.cost import Calibration, Size, Stage, evaluation_seconds, prediction_seconds
from widegp.inference.plan import EVALUATIONS_NEXT, fit_plan

# What the trials on one part of the rows take, in evaluations of that part: fits, forests, gradients and
# predictions of the others. Three tables of 300 to 4,000 rows took 235 to 510.
TRIALS = 300
# Fits of a large table: under what was chosen, beside trees, with each metric and with the noise of all its
# rows, and the best of them once more, to its end. Of a very large one only a part is fitted so often.
FITS = 4 + len(POWERS)


def chosen_plan(size: Size, rates: Calibration, max_iter: int = 100) -> tuple[Stage, ...]:
    """Choices, coarse stages, whole, posterior, curvature; where rows are few the plain plan."""
    if size.n_rows < LEAST_ROWS:
        return fit_plan(size, rates, max_iter=max_iter)
    count, rows = folds(size.n_rows)
    each = evaluation_seconds(Size("exact", rows, size.n_inputs, 0, 0), rates)
    choices = Stage("choices", size.n_rows, 0.0, each, TRIALS * count)
    seen = rows if count == 1 else min(size.n_rows, Bench.most_rows)
    large = size.n_rows >= WORTHWHILE * seen
    plan = fit_plan(size, rates, explores=False, max_iter=max_iter, parts=large)
    again = GRADIENT_ROWS + FITS * LEFT_OUT_ROWS
    judged = again * prediction_seconds(size, NEIGHBORS, rates) if large else 0.0
    most, deciding = DECIDING
    often = FITS if size.n_rows <= most else 2 + FITS * deciding / size.n_rows
    evaluations = round(often * EVALUATIONS_NEXT) if large else EVALUATIONS_NEXT
    return (
        choices,
        *(
            replace(stage, before=stage.before + judged, evaluations=evaluations)
            if stage.name == "whole"
            else stage
            for stage in plan
        ),
    )
