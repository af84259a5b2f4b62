"""One fit: table, start, dials, parameters, posterior, from the settings of an estimator to a `FittedGP`.

``settings`` is the estimator: scikit-learn keeps settings as its attributes.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.approximations.registry import approximation
from widegp.choices.chosen import LEAST_ROWS
from widegp.choices.left_out import NEIGHBORS, left_out
from widegp.choices.search import Asked
from widegp.choices.stacking import nested_shares
from widegp.choices.table_fit import Estimate, TableFit
from widegp.compute.backend import Backend, choose_backend
from widegp.conditioning import TrainingRows
from widegp.data.arrays import is_mapped, take
from widegp.data.input_maps import ChainedMaps, of_training_rows
from widegp.data.preprocessing import TargetScaler
from widegp.engines.base import backend_for, make_engine
from widegp.fitted import FittedGP, Member
from widegp.fitted_warp import FittedWarp
from widegp.inference.choose import calibrate, choose_dials
from widegp.inference.curvature import described
from widegp.inference.evidence import evidence_shares
from widegp.inference.journal import Journal, fingerprint
from widegp.inference.objective import Problem, start_values
from widegp.inference.parameters import Values
from widegp.inference.priors import resolve_priors
from widegp.inference.run import OptimizerSettings, Run
from widegp.inference.sample import nuts
from widegp.inference.theta import FEW_ROWS, METHODS, Averaged, averages, density_of, laplace
from widegp.inference.watch import Watch
from widegp.kernels.base import Kernel, check_inputs
from widegp.kernels.registry import named
from widegp.latent_fit import fit_response, weighs_inputs
from widegp.progress import Listener, print_line
from widegp.tails import NORMAL
from widegp.training_table import AboutRows, TrainingTable, training_table
from widegp.warps import make_warp

# Left-out rows whose mean score later rows are compared with.
COMPARED_ROWS = 1000
# Stands beside K_mix where rows are few and the kernel is left open: functions with all derivatives, where
# those of K_mix have kinks and steps. A Matern kernel lies between both; see docs/architecture.md.
RIVAL = "rbf"
# Shares of fits that are left out of an average: they would cost predictions time and change none of them.
NEGLIGIBLE = 1e-3


def fit_model(
    settings: Any, X: ArrayLike, y: ArrayLike, known: dict[str, Any], exposure: ArrayLike | None,
    progress: Listener | None,
) -> FittedGP:  # fmt: skip
    """The model of the table X (n, I), y (n,), which predicts through the engine that it was fitted by.

    ``known`` of the rows: their sample_weight and noise_variance, or None.
    """
    began = time.perf_counter()
    check_settings(settings)
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    watch = Watch(tuple(f for f in (progress, print_line if settings.verbose else None) if f is not None))
    if settings.likelihood == "gaussian" and exposure is None:
        about = AboutRows(known["sample_weight"], known["noise_variance"])
        table = training_table(settings, X, y, seed, about)
        model = _fit_gaussian(settings, table, seed, watch)
    else:
        model = fit_response(settings, X, y, exposure, watch, known)
    caveat = approximation(model.approximation).caveat
    model = model.with_notes(caveat) if caveat else model
    model = model.with_seconds(time.perf_counter() - began)
    return model.predicting_on(make_engine(settings.engine, settings.backend))


def builder_of(settings: Any, rows: np.ndarray, seed: int, journal: Journal | None = None) -> Builder:
    """Of the scaled ``rows`` (n, I), with the dials, backend and engine of the settings; a ``journal`` knows
    the dials of the fit that it goes on with.
    """
    engine = make_engine(settings.engine, settings.backend)
    kernel, _ = started(settings, rows)
    backend = choose_backend(kernel, backend_for(engine, settings.backend))
    return Builder(rows, _resolved(settings, rows, kernel, backend, journal, seed), backend, seed, engine)


def _fit_gaussian(settings: Any, table: TrainingTable, seed: int, watch: Watch) -> FittedGP:
    journal = _journal(settings, table, seed)
    builder = builder_of(settings, table.X, seed, journal)
    # Where choices are made, rows that repeat are held out one by one: new rows will repeat them too.
    chooses = _choices(settings).open and table.weight is None and len(table.y) >= LEAST_ROWS
    if builder.approximation.exact and not (chooses or is_mapped(table.X)):
        table = table.merged()
        builder = replace(builder, X=table.X)
    spent = journal.seconds() if journal else time.perf_counter() - watch.began
    run = Run(_settings(settings, spent, seed), watch, journal=journal)
    whole = _table_fit(settings, table, builder, run)
    if _has_rival(settings, builder):
        name = backend_for(builder.engine, settings.backend)
        own = replace(builder, backend=choose_backend(named(RIVAL), name))
        whole = replace(whole, rival=_table_fit(settings, table, own, run, RIVAL))
    with builder.backend.scope(), (whole.rival or whole).builder.backend.scope():
        estimate = whole.estimate(_choices(settings), settings.posterior == "auto")
        model = _averaged(settings, estimate, table)
    if settings.priors == "paper" and "sigma_eps2" in whole.start:
        model = replace(model, noise_start=float(whole.start["sigma_eps2"]))
    return model if table.held is None else model.calibrated_on(*table.held)


def _table_fit(
    settings: Any, table: TrainingTable, builder: Builder, run: Run, kernel_name: str | None = None
) -> TableFit:
    """What a fit of the table is made of, under the kernel of the settings or another."""
    rows, scaler = table.X, TargetScaler.fit(table.y, table.weight)
    kernel, start = started(settings, rows, kernel_name)
    scale = {"offset": scaler.mean, "scale": scaler.sd}
    own, noise = (settings.priors, kernel, rows.shape[1]), float(start["sigma_eps2"])
    priors, by_input = (resolve_priors(*own, each, noise) for each in (weighs_inputs(settings), True))
    target = scaler.transform(table.y)
    problem = Problem(kernel, target, make_warp("none", **scale), priors, weight=table.weight)
    if table.noise is not None:
        mean = float(table.noise.mean())
        problem = replace(problem, noise=mean / scaler.sd**2, spread=table.noise / mean)
        start = {name: value for name, value in start.items() if name != "sigma_eps2"}
    return TableFit(builder, problem, by_input, start, scale, run)


def _has_rival(settings: Any, builder: Builder) -> bool:
    """Whether the kernel of few rows is left open. Who gives priors or a start has those of K_mix in mind,
    and without priors there is no evidence to compare; the native loops know no stationary kernel.
    """
    few = len(builder.X) <= FEW_ROWS and builder.approximation.exact and settings.posterior == "auto"
    left = isinstance(settings.kernel, str) and settings.kernel == "auto" and settings.start is None
    usual = isinstance(settings.priors, str) and settings.priors == "default"
    return few and left and usual and backend_for(builder.engine, settings.backend) != "native"


def _choices(settings: Any) -> Asked:
    metric = "ard" if weighs_inputs(settings) else settings.metric
    inputs, warp = settings.scale_inputs or "none", settings.target_transform or "none"
    return Asked(inputs, warp, metric, settings.noise, settings.trees)


def _journal(settings: Any, table: TrainingTable, seed: int) -> Journal | None:
    """The journal of this very fit, if evaluations are to be written down."""
    if settings.checkpoint is None:
        return None
    apart = {"checkpoint", "verbose", "random_state", "predict_neighbors", "predict_cells"}
    own = {k: v for k, v in settings.get_params(deep=False).items() if k not in apart}
    # More or less time does not change the steps, but whether there is a limit does.
    own["budget"] = settings.budget is not None
    own |= {"seed": seed, "weighted": table.weight is not None, "known noise": table.noise is not None}
    known = (part for part in (table.X, table.y, table.weight, table.noise) if part is not None)
    return Journal.open(settings.checkpoint, fingerprint(own, *known))


def _resolved(
    settings: Any, rows: np.ndarray, kernel: Kernel, backend: Backend, journal: Journal | None, seed: int
) -> Dials:
    """The dials, ``"auto"`` resolved; a choice by the clock is made once for all runs of a fit."""

    def choose() -> dict[str, Any]:
        return asdict(
            choose_dials(
                _dials(settings), len(rows), rows.shape[1], weighs_inputs(settings), settings.budget,
                lambda: calibrate(rows, kernel, backend, seed),
            )
        )  # fmt: skip

    return Dials(**(journal.choice("dials", choose) if journal else choose()))


def _settings(settings: Any, spent: float, seed: int) -> OptimizerSettings:
    left = None if settings.budget is None else max(0.0, settings.budget - spent)
    return OptimizerSettings(
        settings.optimizer, settings.max_iter, settings.learning_rate, settings.noise_learning_rate, left,
        settings.start is None, settings.batch_rows, seed,
    )  # fmt: skip


def started(settings: Any, rows: np.ndarray, name: str | None = None) -> tuple[Kernel, dict[str, np.ndarray]]:
    """The kernel to fit, that of the settings or the one called ``name``, and where its parameters begin."""
    wanted = settings.kernel if name is None else name
    kernel = named(wanted) if isinstance(wanted, str) else wanted
    n_inputs = rows.shape[1]
    given = dict(settings.start or {})
    if settings.start is None and isinstance(wanted, str):
        kernel = kernel.at_start(n_inputs)
    unknown = set(given) - set(kernel.parameters()) - {"sigma_eps2"}
    if unknown:
        raise ValueError(
            f"start names {sorted(unknown)}, but {type(kernel).__name__} has {[*kernel.parameters()]}."
        )
    kernel = kernel.replace(**{k: v for k, v in given.items() if k != "sigma_eps2"})
    some = np.asarray(rows[: 10 * 1000], float)
    check_inputs(kernel, some, some)
    # Not by the kernel itself: JAX would compile its operations one by one for every number of rows.
    backend = choose_backend(kernel, settings.backend)
    with backend.scope():
        mean = float(np.mean(np.asarray(backend.diagonal(kernel, some))))
    noise = float(given.get("sigma_eps2", settings.noise_fraction * mean))
    return kernel, start_values(kernel, noise, np.zeros(0), n_inputs if weighs_inputs(settings) else None)


def _dials(settings: Any) -> Dials:
    names = ("approximation", "rank", "neighbors", "anchors", "ordering", "block_rows")
    return Dials(*(getattr(settings, name) for name in names))


def check_settings(settings: Any) -> None:
    if settings.approximation != "auto":
        approximation(settings.approximation)
    if settings.optimizer not in ("lbfgs", "adam"):
        raise ValueError(f"Unknown optimizer {settings.optimizer!r}; choose 'lbfgs' or 'adam'.")
    if settings.trees not in ("auto", "none"):
        raise ValueError(f"Unknown trees {settings.trees!r}; choose 'auto' or 'none'.")
    if settings.posterior not in METHODS:
        raise ValueError(f"Unknown posterior {settings.posterior!r}; choose from {', '.join(METHODS)}.")
    if settings.likelihood != "gaussian" and settings.posterior in ("laplace", "sample"):
        wanted = settings.posterior
        raise ValueError(f"posterior={wanted!r} needs likelihood='gaussian'; use posterior='map'.")
    for name, least in (("rank", 1), ("neighbors", 0), ("predict_neighbors", 0), ("max_iter", 0)):
        value = getattr(settings, name)
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}.")


def _model(settings: Any, estimate: Estimate, table: TrainingTable) -> FittedGP:
    """The model at the estimates, of the ``table`` that it was fitted to."""
    builder = estimate.builder
    at = _member(settings, estimate, table, estimate.fitted.values)
    kernel = at.posterior.kernel
    by_input = any(np.ndim(at.params[name]) for name in kernel.per_input)
    weights = kernel.input_weights(builder.X.shape[1]) if by_input else None
    names = getattr(settings, "feature_names_in_", None)
    model = FittedGP(
        inputs=at.inputs, target=TargetScaler.fit(table.y, table.weight), warp=at.warp,
        kernel=kernel, params=at.params,
        approximation=builder.dials.name, posterior=at.posterior, rows=at.rows,
        result=described(estimate.fitted, builder), seed=builder.seed,
        n_features=settings.n_features_in_, feature_names=None if names is None else tuple(map(str, names)),
        input_importance=None if weights is None else weights / weights.sum(),
        noise_model=at.noise_model, tails=at.tails, backend=builder.backend.name,
    ).with_notes(*estimate.notes)  # fmt: skip
    return _compared_with(model, estimate)


def _member(
    settings: Any, estimate: Estimate, table: TrainingTable, values: Values, weight: float = 1.0
) -> Member:
    """The posterior of the function at some values of the parameters, which have this ``weight``."""
    fitted, target = estimate.fitted, TargetScaler.fit(table.y, table.weight)
    objective, problem = fitted.objective, fitted.objective.problem
    kernel, observed = problem.kernel_at(values), problem.observed(values)
    params = {k: float(v) if np.ndim(v) == 0 else v for k, v in values.items() if k != "psi"}
    params.setdefault("sigma_eps2", observed.noise)
    psi = values.get("psi", np.zeros(0))
    warp = FittedWarp.fit(problem.y, problem.warp.name, psi, target.mean, target.sd)
    if settings.target_transform in (None, "none"):
        # Who wants no warp wants the process itself, whatever it says far from all rows.
        warp = replace(warp, least=-np.inf, most=np.inf)
    return Member(
        weight, ChainedMaps((table.scaler, *estimate.maps)) if estimate.maps else table.scaler,
        params, warp,
        objective.likelihood.posterior(kernel, observed),
        training_rows(settings, estimate.builder, fitted.layout.order, kernel, observed),
        estimate.noise, estimate.tails, kernel.word if isinstance(settings.kernel, str) else "",
    )  # fmt: skip


def _averaged(settings: Any, estimate: Estimate, table: TrainingTable) -> FittedGP:
    """The model, averaged with others that were fitted, or over the posterior of its parameters; over both
    where rows are few: p(y* | y) = sum_M w_M p(y* | y, M), with w_M by held-out rows or by evidence.
    """
    several = (estimate, *(estimate.beside if settings.posterior == "auto" else ()))
    exact = estimate.builder.approximation.exact
    method = averages(settings.posterior, estimate.fitted, exact)
    if method == "map" or (len(several) > 1 and not estimate.alike):
        model, total = _model(settings, estimate, table), sum(one.share for one in several)
        beside = (_member(settings, one, table, one.fitted.values, one.share / total) for one in several)
        return replace(model, members=tuple(beside)) if len(several) > 1 else model
    able = [one for one in several if averages(settings.posterior, one.fitted, exact) == method]
    found = [(one, _theta(settings, method, one)) for one in able]
    known = [(one, theta) for one, theta in found if theta is not None]
    if not known:
        words = "The posterior of the parameters has no curvature here; the mode alone is used."
        return _model(settings, estimate, table).with_notes(words)
    shares = _shares(known)
    members = tuple(
        _member(settings, one, table, density_of(one.fitted).space.unpack(z), float(share * weight))
        for share, (one, theta) in zip(shares, known, strict=True)
        for z, weight in zip(*theta.points, strict=True)
        if share >= NEGLIGIBLE
    )
    best, theta = known[int(np.argmax(shares))]
    model = _model(settings, best, table)
    if len(known) > 1:
        model = model.with_notes(_averaged_words([one for one, _ in known], shares))
    result = replace(model.result, credible_intervals=theta.posterior.intervals())
    return replace(model, theta=theta.posterior, members=members, result=result)


def _shares(known: list[tuple[Estimate, Averaged]]) -> np.ndarray:
    """The share (k,) of each fit in the average, fits of one kernel side by side: by held-out rows and
    evidence, or by evidence alone where none were held out.
    """
    shares = evidence_shares([theta.posterior.evidence for _, theta in known])
    names = [one.kernel_name for one, _ in known]
    groups = [np.flatnonzero([name == own for name in names]) for own in dict.fromkeys(names)]
    losses = [[known[k][0].loss for k in group] for group in groups]
    if not any(loss is None for group in losses for loss in group):
        told: Any = losses
        shares = np.concatenate(nested_shares(told, [shares[group].sum() for group in groups]))
    shares = np.where(shares < NEGLIGIBLE, 0.0, shares)
    return np.asarray(shares / shares.sum())


def _averaged_words(several: list[Estimate], shares: np.ndarray) -> str:
    """To which share each fit of the same rows enters their average."""
    parts = (f"{one.words} ({share:.0%})" for one, share in zip(several, shares, strict=True))
    return f"Averaged over fits of the same rows: {', '.join(parts)}."


def _theta(settings: Any, method: str, estimate: Estimate) -> Averaged | None:
    """The posterior of the parameters of one fit; None where it has no curvature."""
    if method == "sample":
        return nuts(estimate.fitted, estimate.builder.seed)
    # The evidence is checked only if the posterior was asked for by name.
    return laplace(estimate.fitted, check=settings.posterior != "auto")


def _compared_with(model: FittedGP, estimate: Estimate) -> FittedGP:
    """The model with what left-out rows score, which rows that are added later will be compared with."""
    builder, problem = estimate.builder, estimate.fitted.objective.problem
    observed, kernel = problem.observed(estimate.fitted.values), model.kernel
    # A subset holds other rows than the table, one that does not fit in memory is not copied for this, and
    # an accelerator would have to compile for it.
    other_rows = getattr(model.posterior, "X", builder.X).shape != builder.X.shape
    if other_rows or is_mapped(builder.X) or builder.backend.keeps_shapes:
        return model
    chosen = np.random.default_rng(builder.seed).permutation(len(builder.X))[:COMPARED_ROWS]
    rows = None
    if model.rows is not None:
        rows = TrainingRows(builder.X, observed.y, kernel, NEIGHBORS, observed.spread)
    t = left_out(model.posterior, rows, builder.X, observed, chosen).scores()
    scores = (model.tails or NORMAL).log_density(t)
    reference = (float(scores.mean()), float(scores.std()), len(t))
    return replace(model, result=replace(model.result, left_out=reference))


def training_rows(
    settings: Any, builder: Builder, order: np.ndarray | None, kernel: Kernel, observed: Observed
) -> TrainingRows | None:
    """The rows that predictions condition on, where they do, in their order of storage."""
    if order is None:
        return None
    count, stored = max(settings.predict_neighbors, builder.dials.neighbors), observed.of(order)
    X, cells = take(builder.X, order), settings.predict_cells
    return TrainingRows(X, stored.y, kernel, count, stored.spread, cells)


def conditioned(settings: Any, model: FittedGP, X: np.ndarray, y: np.ndarray) -> FittedGP:
    """The posterior given the rows X (n, I), y (n,), at the estimates of ``model``, all of which stay.

    Scaling, metric, warp, noise and parameters are those that other rows have told; nothing is estimated. A
    model of a likelihood that is not Gaussian stays as it is: its pseudo-targets would have to be found anew.
    """
    if model.likelihood is not None:
        return model
    made = [_given(settings, one, X, y) for one in model.models] if model.members else []
    members = tuple(
        replace(member, posterior=one.posterior, rows=one.rows)
        for member, one in zip(model.members, made, strict=True)
    )
    return replace(_given(settings, model, X, y), members=members)


def _given(settings: Any, model: FittedGP, X: np.ndarray, y: np.ndarray) -> FittedGP:
    """The same at the model's own parameters alone."""
    rows, noise = of_training_rows(model.inputs, X), float(model.params["sigma_eps2"])
    spread = None if model.noise_model is None else model.noise_model.spread(rows)
    observed = Observed(model.standardised(y), noise, spread)
    anchors = getattr(model.posterior, "Z", None)
    rank = settings.rank if anchors is None else max(len(anchors), 1)
    dials = replace(_dials(settings), name=model.approximation, rank=rank)
    builder = Builder(rows, dials, choose_backend(model.kernel, model.backend), model.seed)
    with builder.backend.scope():
        layout = builder.layout(model.kernel)
        posterior = builder.likelihood(layout).posterior(model.kernel, observed)
    kept = training_rows(settings, builder, layout.order, model.kernel, observed)
    return replace(model, posterior=posterior, rows=kept)
