"""Several outputs of one table: metric, kernel, anchors and neighbours are shared, noise and scale are not.

Inputs and metric are chosen by regression of the first principal component of the standardised outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from widegp.approximations.build import Builder
from widegp.choices.chosen import LEAST_ROWS, choose_on
from widegp.choices.search import Asked
from widegp.choices.trials import Bench
from widegp.data.input_maps import ChainedMaps, fit_scaler
from widegp.data.preprocessing import TargetScaler
from widegp.fitted import FittedGP
from widegp.fitting import builder_of, check_settings, started, training_rows
from widegp.inference.curvature import described
from widegp.inference.fit import Fitted, OptimizerSettings, Run, fit_map
from widegp.inference.objective import Problem
from widegp.inference.parameters import Values
from widegp.inference.priors import resolve_priors
from widegp.inference.several import SeveralProblem
from widegp.inference.watch import Watch
from widegp.progress import Listener, print_line
from widegp.warps import FittedWarp, make_warp

NEEDED = {
    "conformal": False, "target_transform": None, "optimizer": "lbfgs", "noise": "constant", "start": None,
    "batch_rows": None, "checkpoint": None, "likelihood": "gaussian",
}  # fmt: skip


def fit_outputs(
    asked: Any, X: ArrayLike, Y: ArrayLike, progress: Listener | None = None
) -> tuple[FittedGP, ...]:
    """The models of the columns of Y (n, T), which predict from the same anchors and neighbours."""
    check_settings(asked)
    for name, value in NEEDED.items():
        if getattr(asked, name) not in (value, "auto"):
            raise ValueError(f"Several outputs need {name}={value!r}; fit them one by one, or change it.")
    X, Y = validate_data(asked, X, Y, dtype=np.float64, y_numeric=True, multi_output=True)
    X, Y = np.ascontiguousarray(X), np.asarray(Y, float)
    seed = int(check_random_state(asked.random_state).randint(2**31 - 1))
    scaler = fit_scaler(X, "standard" if asked.scale_inputs == "auto" else asked.scale_inputs, None)
    targets = [TargetScaler.fit(y, None) for y in Y.T]
    Z = np.stack([target.transform(y) for target, y in zip(targets, Y.T, strict=True)], axis=1)
    builder = builder_of(asked, scaler.transform(X), seed)
    watch = Watch(tuple(f for f in (progress, print_line if asked.verbose else None) if f is not None))
    with builder.backend.scope():
        fitted, builder, maps, notes = _fitted(asked, builder, Z, watch)
    inputs = ChainedMaps((scaler, *maps)) if maps else scaler
    made = (_output(asked, fitted, builder, target, t) for t, target in enumerate(targets))
    return tuple(replace(one, inputs=inputs).noted(*notes) for one in made)


def _fitted(
    asked: Any, builder: Builder, Z: np.ndarray, watch: Watch
) -> tuple[Fitted, Builder, tuple[Any, ...], tuple[str, ...]]:
    kernel, start = started(asked, builder.X)
    by_input = asked.ard or asked.metric == "ard"
    settings = OptimizerSettings("lbfgs", asked.max_iter, seconds=asked.budget, seed=builder.seed)
    choices = Asked(asked.scale_inputs or "none", "none", asked.metric, "constant")
    maps: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    explore = True
    tried = choices.open and not by_input and len(Z) >= LEAST_ROWS and asked.budget is None
    priors = resolve_priors(asked.priors, kernel, builder.X.shape[1], by_input)
    if tried and "sigma_u2" in start:
        each = resolve_priors(asked.priors, kernel, builder.X.shape[1], True)
        leading = np.linalg.svd(Z, full_matrices=False)[0][:, 0] * np.sqrt(len(Z))
        plain = Problem(kernel, leading, make_warp("none", offset=0.0, scale=1.0), priors)
        none = np.zeros(0, int)
        bench = Bench(
            {"standard" if choices.inputs == "auto" else choices.inputs: builder.X}, plain,
            replace(plain, priors=each), {"offset": 0.0, "scale": 1.0}, none, none, Run(settings),
            builder.backend, builder.seed,
        )  # fmt: skip
        chosen = choose_on(bench, start, choices)
        maps, notes = chosen.maps(chosen.trial.form), (chosen.words,)
        start, explore = chosen.trial.values, False
        rows = builder.X
        for part in maps:
            rows = part.transform(rows)
        builder = replace(builder, X=np.ascontiguousarray(rows))
    values: Values = {**start, "psi": np.zeros(Z.shape[1] - 1)}
    problem: Any = SeveralProblem(kernel, Z, priors)
    settings = replace(settings, explore=explore, parts=True)
    return fit_map(builder, problem, values, Run(settings, watch)), builder, maps, notes


def _output(asked: Any, fitted: Fitted, builder: Builder, target: TargetScaler, t: int) -> FittedGP:
    """The model of the t-th output at the estimates."""
    problem: Any = fitted.objective.problem
    values = fitted.values
    kernel, observed = problem.kernel_at(values), problem.observed(values, t)
    params = {k: float(v) if np.ndim(v) == 0 else v for k, v in values.items() if k != "psi"}
    with builder.backend.scope():
        posterior = fitted.objective.likelihood.posterior(kernel, observed)
    by_input = any(np.ndim(params[name]) for name in kernel.per_input)
    weights = kernel.input_weights(builder.X.shape[1]) if by_input else None
    names = getattr(asked, "feature_names_in_", None)
    return FittedGP(
        inputs=None, target=target, warp=FittedWarp("none"), kernel=kernel,  # type: ignore[arg-type]
        params=params | {"sigma_eps2": observed.noise}, approximation=builder.dials.name, posterior=posterior,
        rows=training_rows(asked, builder, fitted.layout.order, kernel, observed),
        result=described(fitted, builder), seed=builder.seed, n_features=asked.n_features_in_,
        feature_names=None if names is None else tuple(map(str, names)),
        input_importance=None if weights is None else weights / weights.sum(), backend=builder.backend.name,
    )  # fmt: skip
