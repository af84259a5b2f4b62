"""Exact fits of a part of the rows, scored on others: what choices are made by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.dense import Dense, DensePosterior
from widegp.approximations.layout import Dials
from widegp.choices.gradients import mean_gradients
from widegp.choices.left_out import left_out_exactly
from widegp.choices.metric import gradient_moment, weights_as_map
from widegp.compute.backend import Backend
from widegp.fitted_warp import FittedWarp
from widegp.inference.fit import fit_map
from widegp.inference.objective import MapObjective, Problem
from widegp.inference.optimizers import curvature_at
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.run import Run
from widegp.inference.starts import one_per_input, optima
from widegp.noise_model import LeftOut, NoiseModel, fit_noise
from widegp.prediction import make_predictor
from widegp.warps import make_warp

# Iterations that tell models apart, from the optimum of a similar model: where its curvature is known, and
# where it is not.
WARM, COLD = 8, 15
# The same with one sigma_u2 per input: the first time, and from their optimum on other rows.
BY_INPUT, BY_INPUT_AGAIN = 30, 12
# Up to so many rows, those of a fold of a small table, variances by input have starts of their own.
FEW_ROWS = 600


@dataclass(frozen=True)
class Form:
    """What is in front of the kernel and behind it.

    inputs : name of a scaling of the inputs.    warp : name of a warp of the target.
    linear : A (I, q), x -> x A after the scaling, or None.    noise : its model, or None for a constant.
    """

    inputs: str
    warp: str = "none"
    linear: np.ndarray | None = None
    noise: NoiseModel | None = None

    def under(self, linear: np.ndarray | None) -> Self:
        """The same with another map ``linear``; the noise of a row stays what it was."""
        noise = None if self.noise is None else self.noise.under(linear, self.linear)
        return replace(self, linear=linear, noise=noise)


@dataclass(frozen=True)
class Trial:
    """A fit of a form, and its scores on the rows held out.

    values, curvature : estimates and the Hessian per row of the loss there, None where it is not known.
    loss (h,) : minus the log density of each held-out target, standardised.    squares (h,) : squared errors.
    scores (h,) : (z - mean) / sd of the held-out targets, standard normal under a model that is right.
    residual (h,) : z - mean.
    """

    form: Form
    values: Values
    curvature: np.ndarray | None
    objective: MapObjective
    posterior: DensePosterior
    loss: np.ndarray
    squares: np.ndarray
    scores: np.ndarray
    residual: np.ndarray

    @property
    def objective_value(self) -> float:
        """The MAP loss at its estimates."""
        return self.objective(self.objective.space.pack(self.values)).value

    @property
    def X(self) -> np.ndarray:
        """The rows it was fitted to, as its kernel sees them."""
        return self.posterior.X

    @cached_property
    def moment(self) -> np.ndarray:
        """M (I, I), the mean outer product of the gradients by the scaled inputs."""
        return gradient_moment(mean_gradients(self.posterior, self.X), self.form.linear)

    @cached_property
    def left_out(self) -> LeftOut:
        """Its rows, each predicted from the others."""
        observed = self.objective.problem.observed(self.values)
        return left_out_exactly(self.posterior, observed.variances())

    @cached_property
    def noise_model(self) -> NoiseModel | None:
        """Of the residuals of these rows."""
        return fit_noise(self.X, self.left_out)

    def with_curvature(self) -> Self:
        """The same with its curvature, which takes as many evaluations as there are parameters."""
        if self.curvature is not None:
            return self
        z = self.objective.space.pack(self.values)
        H = curvature_at(self.objective, z, self.objective(z).gradient, self.objective.n_rows)
        return replace(self, curvature=H)


@dataclass(frozen=True)
class Bench:
    """Rows to fit and rows to score.

    tables : {scaling: scaled rows (n, I)}.    problem : kernel, standardised targets (n,) and priors; its
    warp and spread are those of forms.    scale : of the targets, as `make_warp` takes it.
    by_input : the same problem with the priors of one sigma_u2 per input.
    fitted, held : which rows; those held out may be none.    run : settings of the optimiser.
    most_rows : that an exact fit may have.
    """

    tables: dict[str, np.ndarray]
    problem: Problem
    by_input: Problem
    scale: dict[str, float]
    fitted: np.ndarray
    held: np.ndarray
    run: Run
    backend: Backend
    seed: int
    most_rows: int = 2000

    def rows(self, form: Form, rows: np.ndarray) -> np.ndarray:
        """Rows as the kernel of a form sees them."""
        X = self.tables[form.inputs][rows]
        return X if form.linear is None else X @ form.linear

    def explored(self, form: Form, start: Values) -> Trial:
        """A fit from several starts, with its curvature."""
        X = self.rows(form, self.fitted)
        builder = Builder(X, Dials("exact", 1, 0, "kmeans", "random", None), self.backend, self.seed)
        settings = replace(self.run.settings, name="lbfgs", max_iter=2 * COLD, explore=True, seconds=None)
        problem, run = self._problem(form, X), replace(self.run, settings=settings)
        if settings.exact:
            fitted = fit_map(builder, problem, start, run)
            return self._scored(form, fitted.objective, fitted.values, fitted.optimum.curvature)
        space = ParameterSpace.of(problem.kernel, start, problem.psi_bounds if "psi" in start else ())
        with self.backend.scope():
            best = optima(run, builder, problem, start, space)[0].values
            objective = problem.on(Dense(X, self.backend), space)
            z = space.pack(best)
            H = curvature_at(objective, z, objective(z).gradient, objective.n_rows)
        return self._descended(form, best, H)

    def warm(self, form: Form, near: Trial, start: Values | None = None) -> Trial:
        """A fit from the optimum of a like form, or from ``start``."""
        values = near.values if start is None else start
        return self._descended(form, values, near.curvature if near.values.keys() == values.keys() else None)

    def by_inputs(self, form: Form, near: Trial, limit: int | None = None) -> Trial:
        """A fit with one sigma_u2 per input, which then become a diagonal map in front of one for all; of so
        many iterations at most.
        """
        X, linear = self.tables[form.inputs][self.fitted], near.form.linear
        shares = np.ones(X.shape[1]) if linear is None else np.diagonal(linear) ** 2
        values = {**near.values, "sigma_u2": near.values["sigma_u2"] * shares}
        limit = limit or (BY_INPUT if linear is None else BY_INPUT_AGAIN)
        found = self._descended(form, values, None, limit)
        curvature, objective = near.curvature, found.objective
        if linear is None and len(X) <= FEW_ROWS:
            # From equal variances: where they went without it, a second input may have taken the blame.
            start = one_per_input(objective, values, X, self.backend)
            other = None if start is None else self._descended(form, start, None, limit)
            if other is not None and other.objective_value < found.objective_value:
                found, curvature = other, None
        linear, sigma_u2 = weights_as_map(found.values["sigma_u2"], X)
        values = {**found.values, "sigma_u2": np.asarray(sigma_u2)}
        return self._descended(replace(form, linear=linear), values, curvature)

    def _descended(
        self, form: Form, values: Values, curvature: np.ndarray | None, limit: int | None = None
    ) -> Trial:
        X = self.rows(form, self.fitted)
        by_input = values["sigma_u2"].ndim > 0
        problem = self._problem(form, X, by_input)
        space = ParameterSpace.of(problem.kernel, values, problem.psi_bounds if "psi" in values else ())
        objective = problem.on(Dense(X, self.backend), space)
        limit = limit or (COLD if curvature is None else WARM)
        with self.backend.scope():
            optimum = self.run.optimise(objective, values, limit, curvature)
        return self._scored(form, objective, space.unpack(optimum.z), optimum.curvature)

    def _problem(self, form: Form, X: np.ndarray, by_input: bool = False) -> Problem:
        problem = (self.by_input if by_input else self.problem).restricted(self.fitted)
        spread = None if form.noise is None else form.noise.spread(X)
        return replace(problem, warp=make_warp(form.warp, **self.scale), spread=spread)

    def _scored(self, form: Form, objective: MapObjective, values: Values, H: np.ndarray | None) -> Trial:
        problem, X = objective.problem, self.rows(form, self.held)
        with self.backend.scope():
            posterior: Any = objective.likelihood.posterior(
                problem.kernel_at(values), problem.observed(values)
            )
        mean, latent = make_predictor(posterior, None, self.backend.name).predict(X)
        sd = np.sqrt(latent + posterior.noise * (1.0 if form.noise is None else form.noise.spread(X)))
        psi = values.get("psi", np.zeros(0))
        warp, y = FittedWarp.fit(problem.y, form.warp, psi, **self.scale), self.problem.y[self.held]
        # A target beyond the support of a warp has density 0; so many nats are enough to refuse the warp.
        loss = np.minimum(-warp.log_density(y, mean, sd), 50.0)
        squares = (y - warp.moments(mean, sd)[0]) ** 2
        residual = warp.forward(y) - mean
        return Trial(form, values, H, objective, posterior, loss, squares, residual / sd, residual)
