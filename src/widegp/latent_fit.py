"""From rows and a likelihood that is not Gaussian to a fitted model: what classifier and regressor share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.approximations.registry import approximation
from widegp.choices.latent import LEAST_ROWS, LatentEstimate, LatentFit
from widegp.choices.search import Asked
from widegp.choices.settled import Settled
from widegp.compute.backend import choose_backend
from widegp.conditioning import TrainingRows
from widegp.data.arrays import is_mapped, take
from widegp.data.input_maps import ChainedMaps, InputMap
from widegp.data.preprocessing import TargetScaler
from widegp.data.value_means import Valued
from widegp.engines.base import backend_for, make_engine
from widegp.fitted import FittedGP, Member
from widegp.fitted_warp import FittedWarp
from widegp.inference.classes import ClassProblem
from widegp.inference.curvature import described
from widegp.inference.latent import LatentProblem
from widegp.inference.objective import start_values
from widegp.inference.priors import resolve_priors
from widegp.inference.run import OptimizerSettings, Run
from widegp.inference.watch import Watch
from widegp.kernels.base import Kernel
from widegp.kernels.registry import named
from widegp.laplace import Response
from widegp.laplace_classes import ClassResponse
from widegp.likelihoods import log_exposure, make_likelihood, refuse_exposure
from widegp.training_table import AboutRows, repeats, training_table

EXACT_ROWS = 500  # up to here "auto" takes all rows at once; a mode is a dozen factorisations
# Anchors, at most, while parameters are estimated: predictions gain by more of them, the estimates hardly.
FIT_RANK = 200
UNSCALED = TargetScaler(0.0, 1.0)


def latent_builder(estimator: Any, rows: np.ndarray, seed: int) -> Builder:
    """Of the scaled ``rows`` (n, I) with the dials, backend and engine that the estimator asks for."""
    name = estimator.approximation
    if name == "auto":
        name = "exact" if len(rows) <= EXACT_ROWS else "full-scale"
    approximation(name)
    engine = make_engine(estimator.engine, estimator.backend)
    backend = choose_backend(_kernel(estimator, rows.shape[1]), backend_for(engine, estimator.backend))
    dials = Dials(
        name, min(estimator.rank, FIT_RANK, len(rows)), estimator.neighbors, estimator.anchors,
        estimator.ordering, estimator.block_rows,
    )  # fmt: skip
    return Builder(rows, dials, backend, seed, engine)


def fit_latent(
    estimator: Any, builder: Builder, response: Response | ClassResponse, seconds: float | None = None,
    watch: Watch | None = None,
) -> LatentEstimate:  # fmt: skip
    """The MAP fit of the responses at the builder's rows, within ``seconds`` if given.

    Inputs and metric are chosen where that is left open, and rows and time allow it.
    """
    asked = Asked(estimator.scale_inputs or "none", "none", estimator.metric, "constant", estimator.trees)
    few = len(response.y) < LEAST_ROWS or seconds is not None or is_mapped(builder.X)
    closed = few or weighs_inputs(estimator) or not asked.open
    valued = None
    if not closed and asked.inputs == "auto":
        weight = np.broadcast_to(np.asarray(response.weight, float), response.y.shape)
        valued = Valued.of(builder.X, response.pseudo_targets(), weight, builder.seed)
        builder = builder if valued is None else replace(builder, X=valued.X)
    settings = OptimizerSettings("lbfgs", estimator.max_iter, seconds=seconds, seed=builder.seed)
    whole = _latent_fit(estimator, builder, response, Run(settings, watch or Watch()))
    found = whole.plain() if closed or "sigma_u2" not in whole.start else whole.chosen(asked)
    if valued is None:
        return found
    words = f"Means of the target by value became inputs, of {len(valued.map.columns)} columns."
    return found.after(valued.map)._replace(notes=(*found.notes, words))


def _latent_fit(estimator: Any, builder: Builder, response: Response | ClassResponse, run: Run) -> LatentFit:
    """Kernel, responses, priors and start at the builder's rows."""
    n_inputs = builder.X.shape[1]
    kernel = _kernel(estimator, n_inputs)
    priors = resolve_priors(estimator.priors, kernel, n_inputs, weighs_inputs(estimator))
    problem: Any
    psi = np.zeros(0)
    if isinstance(response, ClassResponse):
        problem = ClassProblem(kernel, response, priors)
    else:
        problem, psi = LatentProblem(kernel, response, priors), response.likelihood.z
    start = start_values(kernel, 1.0, psi, n_inputs if weighs_inputs(estimator) else None)
    del start["sigma_eps2"]
    by_input = resolve_priors(estimator.priors, kernel, n_inputs, True)
    return LatentFit(builder, problem, by_input, start, run)


def weighs_inputs(settings: Any) -> bool:
    """Whether one sigma_u2 per input is asked for."""
    return bool(settings.ard or settings.metric == "ard")


def _kernel(estimator: Any, n_inputs: int) -> Kernel:
    kernel = estimator.kernel
    return named(kernel).at_start(n_inputs) if isinstance(kernel, str) else kernel


def latent_models(
    estimator: Any, estimate: LatentEstimate, scaler: InputMap, levels: ArrayLike,
    target: TargetScaler = UNSCALED,
) -> tuple[FittedGP, ...]:  # fmt: skip
    """The model of each latent function at the estimates, f about its level, added up with those of the fits
    beside.
    """
    several = (estimate, *estimate.beside)
    made = [_models_of_one(estimator, one, scaler, levels, target) for one in several]
    if len(several) == 1:
        return made[0]

    def member(weight: float, model: FittedGP) -> Member:
        return Member(weight, model.inputs, model.params, model.warp, model.posterior, model.rows)

    members = (
        tuple(member(one.weight, model) for one, model in zip(several, same, strict=True))
        for same in zip(*made, strict=True)
    )
    return tuple(replace(model, members=own) for model, own in zip(made[0], members, strict=True))


def _models_of_one(
    estimator: Any, estimate: LatentEstimate, scaler: InputMap, levels: ArrayLike, target: TargetScaler
) -> tuple[FittedGP, ...]:
    """The models of one fit: predictions condition on the pseudo-targets at the mode."""
    fitted, rank = estimate.fitted, min(estimator.rank, len(estimate.builder.X))
    builder = replace(estimate.builder, dials=replace(estimate.builder.dials, rank=rank))
    problem: Any = fitted.objective.problem
    values, objective, layout, _ = Settled.at(builder, problem, fitted.values)
    kernel, likelihood = problem.kernel_at(values), problem.response_at(values).likelihood
    params = {k: float(v) if np.ndim(v) == 0 else v for k, v in values.items() if k != "psi"}
    params |= {p.name: float(v) for p, v in zip(likelihood.parameters, likelihood.psi, strict=True)}
    weights = kernel.input_weights(builder.X.shape[1]) if weighs_inputs(estimator) else None
    names = getattr(estimator, "feature_names_in_", None)
    common: dict[str, Any] = {
        "inputs": ChainedMaps((scaler, *estimate.maps)) if estimate.maps else scaler,
        "target": target, "warp": FittedWarp("none"), "kernel": kernel, "params": params,
        "approximation": builder.dials.name, "result": described(fitted, builder), "seed": builder.seed,
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else tuple(map(str, names)),
        "input_importance": None if weights is None else weights / weights.sum(),
        "backend": builder.backend.name, "likelihood": likelihood,
    }  # fmt: skip
    made = []
    for function, level in enumerate(np.atleast_1d(np.asarray(levels, float)).tolist()):
        observed, rows = objective.problem.observed(values, function), None
        if layout.order is not None:
            stored = observed.of(layout.order)
            count = max(estimator.predict_neighbors, builder.dials.neighbors)
            rows = TrainingRows(take(builder.X, layout.order), stored.y, kernel, count, stored.spread)
        with builder.backend.scope():
            posterior = objective.likelihood.posterior(kernel, observed)
        own = FittedGP(posterior=posterior, rows=rows, level=level, **common)
        made.append(own.with_notes(*estimate.notes))
    return tuple(made)


def fit_response(
    estimator: Any, X: Any, y: Any, exposure: ArrayLike | None, watch: Watch, known: dict[str, Any]
) -> FittedGP:
    """The model of a regressor whose likelihood is not Gaussian; ``known`` is what is known of rows."""
    likelihood = make_likelihood(estimator.likelihood)
    if known["noise_variance"] is not None:
        raise ValueError(f"noise_variance needs likelihood='gaussian'; got {estimator.likelihood!r}.")
    needed = {
        "conformal": False, "target_transform": None, "optimizer": "lbfgs",
        "noise": "constant", "start": None, "batch_rows": None, "checkpoint": None,
    }  # fmt: skip
    for name, value in needed.items():
        if getattr(estimator, name) not in (value, "auto"):
            raise ValueError(
                f"likelihood={estimator.likelihood!r} needs {name}={value!r}; change one of the two settings."
            )
    if exposure is not None and not likelihood.takes_exposure:
        refuse_exposure(estimator.likelihood)
    seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
    offset = log_exposure(exposure, np.size(y))
    table = training_table(estimator, X, y, seed, AboutRows(known["sample_weight"], None, offset))
    likelihood.check(table.y)
    scaler = TargetScaler.fit(table.y, table.weight) if likelihood.scales_target else UNSCALED
    rows, target, offset = table.X, scaler.transform(table.y), offset[table.fitted]
    weight = np.ones(len(target)) if table.weight is None else table.weight
    level = likelihood.level(target, offset, weight)
    builder = latent_builder(estimator, rows, seed)
    response = Response(likelihood, target, offset + level, weight)
    estimate = fit_latent(estimator, builder, response, estimator.budget, watch)
    return latent_models(estimator, estimate, table.scaler, level, scaler)[0]


def merged_rows(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that repeat, target included, as one row with the sum of their weights; rows of weight 0 left out.

    The rows come sorted. So a weight of k gives the very fit that k equal rows give.
    """
    kept = weight > 0
    X, y = X[kept], y[kept]
    first, sums = repeats([X, y], weight[kept])
    return X[first], y[first], sums
