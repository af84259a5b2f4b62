"""Several outputs of one table: what is dear to choose, inputs and metric, is chosen once for all of them.

The metric is the law of the hidden weights, which outputs of one network share. It is chosen and learned by
regression of the first principal component of the standardised outputs. Each output takes it if rows of its
own that are held out, or of few rows left out, are likelier under it than under the plain kernel, and is then
fitted as a table of one target: kernel parameters, warp, noise and tails are its own, for outputs of one
table differ in them as tables do.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from widegp.choices.chosen import LEAST_ROWS, TRIAL_GAIN
from widegp.choices.moves import Scale
from widegp.choices.search import CERTAIN, Search, splits
from widegp.choices.trials import Bench, Form
from widegp.data.input_maps import ChainedMaps, InputMap, fit_scaler
from widegp.data.preprocessing import InputScaler, TargetScaler
from widegp.engines.base import make_engine
from widegp.fitted import FittedGP
from widegp.fitting import builder_of, check_settings, fit_model, started
from widegp.inference.objective import Problem
from widegp.inference.parameters import Values
from widegp.inference.priors import resolve_priors
from widegp.inference.run import OptimizerSettings, Run
from widegp.progress import Listener
from widegp.warps import make_warp

NEEDED = {
    "conformal": False, "optimizer": "lbfgs", "start": None, "batch_rows": None, "checkpoint": None,
    "likelihood": "gaussian",
}  # fmt: skip
NOTHING = {"sample_weight": None, "noise_variance": None}


def fit_outputs(
    settings: Any, X: ArrayLike, Y: ArrayLike, progress: Listener | None = None
) -> tuple[FittedGP, ...]:
    """The models of the columns of Y (n, T)."""
    check_settings(settings)
    for name, value in NEEDED.items():
        if getattr(settings, name) not in (value, "auto"):
            raise ValueError(f"Several outputs need {name}={value!r}; fit them one by one, or change it.")
    X, Y = validate_data(settings, X, Y, dtype=np.float64, y_numeric=True, multi_output=True)
    X, Y = np.ascontiguousarray(X), np.asarray(Y, float)
    each = copy(settings)
    if not isinstance(settings.random_state, int | np.integer):
        # All fits begin with the same draws.
        each.random_state = _seed(settings)
    each.budget = None if settings.budget is None else settings.budget / Y.shape[1]
    learned = not settings.ard and settings.metric in ("auto", "learned")
    shared = None
    if learned and len(Y) >= LEAST_ROWS and settings.budget is None:
        lead = copy(each)
        lead.noise, lead.target_transform, lead.posterior, lead.trees = "constant", None, "map", "none"
        found = fit_model(lead, X, leading(Y), NOTHING, None, progress)
        shared, each.metric = found.inputs, "iso"
    return tuple(_output(each, X, y, shared, progress) for y in Y.T)


def _seed(settings: Any) -> int:
    return int(check_random_state(settings.random_state).randint(2**31 - 1))


def leading(Y: np.ndarray) -> np.ndarray:
    """The first principal component of the standardised columns of Y (n, T), (n,)."""
    sd = Y.std(axis=0)
    Z = (Y - Y.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    return np.asarray(np.linalg.svd(Z, full_matrices=False)[0][:, 0] * np.sqrt(len(Z)))


def _output(
    settings: Any, X: np.ndarray, y: np.ndarray, shared: InputMap | None, progress: Listener | None
) -> FittedGP:
    """The model of one output, with the ``shared`` inputs where they suit it better than the plain ones."""
    own, rows = copy(settings), X
    taken = shared if shared is not None and _suits(settings, X, y, shared) else None
    if taken is not None:
        own.scale_inputs, rows = None, np.ascontiguousarray(taken.transform(X))
    model = fit_model(own, rows, np.ascontiguousarray(y), NOTHING, None, progress)
    names = getattr(settings, "feature_names_in_", None)
    model = replace(model, feature_names=None if names is None else tuple(map(str, names)))
    engine = make_engine(settings.engine, settings.backend)
    if taken is None:
        return model.predicting_on(engine)
    members = tuple(replace(one, inputs=_after(taken, one.inputs)) for one in model.members)
    inputs = _after(taken, model.inputs)
    model = replace(model, inputs=inputs, members=members, n_features=X.shape[1])
    model = model.with_notes("Inputs and metric are those of all outputs together.")
    return model.predicting_on(engine)


def _after(shared: InputMap, own: InputMap) -> ChainedMaps:
    """The ``shared`` map, then what follows it in an output's ``own``, whose rows were scaled no further."""
    first, rest = (part.parts if isinstance(part, ChainedMaps) else (part,) for part in (shared, own))
    return ChainedMaps((*first, *(part for part in rest if not isinstance(part, InputScaler))))


def _suits(settings: Any, X: np.ndarray, y: np.ndarray, shared: InputMap) -> bool:
    """Whether held-out rows are likelier under the kernel on ``shared`` inputs than on standardised ones."""
    base = "standard" if settings.scale_inputs == "auto" else settings.scale_inputs
    rows = fit_scaler(X, base, None).transform(X)
    if not isinstance(shared, ChainedMaps) or np.unique(y).size < 3:
        return False
    builder, target = builder_of(settings, rows, _seed(settings)), TargetScaler.fit(y, None)
    kernel, start = started(settings, rows)
    priors = resolve_priors(settings.priors, kernel, X.shape[1], False, float(start["sigma_eps2"]))
    scale = {"offset": 0.0, "scale": 1.0}
    problem = Problem(kernel, target.transform(y), make_warp("none", **scale), priors)
    run = Run(OptimizerSettings("lbfgs", settings.max_iter, seed=builder.seed, gain=TRIAL_GAIN, exact=False))
    tables, every = {"plain": rows, "shared": shared.transform(X)}, np.arange(len(X))
    bench = Bench(tables, problem, problem, scale, every, every[:0], run, builder.backend, builder.seed)
    if len(X) <= bench.most_rows:
        with builder.backend.scope():
            return _likelier_left_out(bench, start)
    benches = tuple(replace(bench, fitted=fitted, held=held) for fitted, held in splits(len(X), builder.seed))
    search = Search(benches, settings.noise == "auto")
    with builder.backend.scope():
        plain = search.begin(Form("plain"), start)
        return search.better(plain, [search.moved(plain, Scale("shared"))]) is not plain


def _likelier_left_out(bench: Bench, start: Values) -> bool:
    """Whether rows, each left out of an exact fit of all, are likelier for certain on shared inputs.

    The best metric of a fold may be another one than that of all rows, and these are few.
    """
    plain = bench.explored(Form("plain"), start).with_curvature()
    own, other = (one.left_out.log_density() for one in (plain, bench.warm(Form("shared"), plain)))
    gain = other - own
    return bool(gain.mean() > CERTAIN * gain.std() / np.sqrt(len(gain)))
