"""The mode of f on some rows under a likelihood that is not Gaussian, and what follows from it at others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.layout import Layout
from widegp.choices.gradients import mean_gradients
from widegp.choices.left_out import NEIGHBORS
from widegp.choices.metric import gradient_moment
from widegp.choices.trials import Form
from widegp.conditioning import TrainingRows
from widegp.inference.latent import TOLERANCE, KnownMode, LaplaceObjective, LatentProblem
from widegp.inference.parameters import ParameterSpace, Values
from widegp.laplace import Mode
from widegp.prediction import Moments, make_predictor


class Settled(NamedTuple):
    """The mode of f at ``values``. The problem of ``objective`` knows it and observes its pseudo-targets."""

    values: Values
    objective: LaplaceObjective
    layout: Layout
    mode: Mode

    @classmethod
    def at(
        cls, builder: Builder, problem: LatentProblem, values: Values, near: np.ndarray | None = None,
        tolerance: float = TOLERANCE,
    ) -> Settled:  # fmt: skip
        """On the rows of ``builder``, its layout made for these values; Newton's method begins at ``near``,
        by default at the mode found last.
        """
        own: Any = replace(problem, known=KnownMode(problem.known.f if near is None else near))
        space = ParameterSpace.of(own.kernel, values, own.psi_bounds if "psi" in values else ())
        with builder.backend.scope():
            layout = builder.layout(own.kernel_at(values))
            objective = own.on(builder.likelihood(layout), space)
            mode = objective.mode(values, tolerance)
        if mode.problem is not None:
            raise ArithmeticError(f"The fit gives no prediction: {mode.problem}; use fewer anchors.")
        return cls(values, objective, layout, mode)


def given(builder: Builder, settled: Settled) -> list[tuple[Any, TrainingRows | None]]:
    """Of each latent function the posterior, and the rows that its predictions condition on, if any."""
    values, objective = settled.values, settled.objective
    kernel, made = objective.problem.kernel_at(values), []
    for function in range(objective.problem.functions):
        observed = objective.problem.observed(values, function)
        with builder.backend.scope():
            posterior = objective.likelihood.posterior(kernel, observed)
        rows = TrainingRows(builder.X, observed.y, kernel, NEIGHBORS, observed.spread)
        made.append((posterior, None if settled.layout.order is None else rows))
    return made


def moments_at(builder: Builder, settled: Settled, X: np.ndarray) -> Moments:
    """Those of f at new rows, (q, functions)."""
    each = [make_predictor(*one, builder.backend.name).predict(X) for one in given(builder, settled)]
    return Moments(*(np.stack(parts, axis=1) for parts in zip(*each, strict=True)))


@dataclass(frozen=True)
class Sampled:
    """A form on a sample of the rows, at given values; of rows held out log p(y_i | sample), (h,)."""

    form: Form
    builder: Builder
    settled: Settled
    log_score: np.ndarray

    def moment(self, rows: int) -> np.ndarray:
        """M (I, I) of the gradients of E[f | y] at the first rows of the sample, by the inputs as scaled."""
        X, linear = self.builder.X[:rows], self.form.linear
        parts = given(self.builder, self.settled)
        each = (gradient_moment(mean_gradients(posterior, X, near), linear) for posterior, near in parts)
        return np.mean(list(each), axis=0)
