"""The scikit-learn regressor: validate, call, store."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.approximations.registry import approximation
from widegp.choices.search import Asked
from widegp.choices.table_fit import Estimate, TableFit
from widegp.compute.backend import Backend, choose_backend
from widegp.data.arrays import take
from widegp.data.input_maps import ChainedMaps
from widegp.data.preprocessing import TargetScaler
from widegp.engines.base import backend_for, make_engine
from widegp.fitted import FittedGP
from widegp.inference.choose import calibrate, choose_dials
from widegp.inference.curvature import described
from widegp.inference.fit import OptimizerSettings, Run
from widegp.inference.journal import Journal, fingerprint
from widegp.inference.objective import Problem, start_values
from widegp.inference.priors import resolve_priors
from widegp.kernels.base import Kernel
from widegp.kernels.registry import named
from widegp.latent_fit import fit_response
from widegp.persist import load_model, save_model
from widegp.prediction import TrainingRows
from widegp.predictive import Predictive
from widegp.progress import Progress
from widegp.training_table import TrainingTable, checked_rows, training_table
from widegp.warps import FittedWarp, make_warp

Report = Callable[[str, int, float, dict[str, np.ndarray]], None]


def _part(name: str) -> property:
    """A part of ``fitted_`` as an attribute of the estimator, which is not there before the fit."""

    def get(model: WideGPRegressor) -> Any:
        check_is_fitted(model, "fitted_")
        return getattr(model.fitted_, name)

    return property(get)


class WideGPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression with the limit kernels of wide Bayesian networks.

    y = f(x) + eps,  f ~ GP(0, K),  eps ~ N(0, sigma_eps2), fitted by MAP, eq. (map_loss_body), under an
    approximation of two dials: ``rank`` anchors and ``neighbors`` nearest earlier rows.

    Parameters
    ----------
    kernel : ``"mixed"`` (K_mix), ``"tanh"``, ``"sigmoid"``, ``"relu"``, ``"leaky_relu"``, ``"rbf"``,
        ``"matern12"``, ``"matern32"``, ``"matern52"``, or a kernel object, sums and products included.
    approximation : ``"auto"``, ``"exact"``, ``"full-scale"`` (anchors and neighbours), ``"vecchia"``
        (neighbours), ``"fitc"``, ``"vfe"``, ``"dtc"`` (anchors), ``"subset"``, or ``"nystrom"`` (the paper's
        equation read literally). ``"auto"`` is exact for small tables and full-scale for the others.
    rank, neighbors, predict_neighbors : the dials; the last, for prediction, costs about 3 ms a row at 400.
    anchors : ``"kmeans"``, ``"kmeans++"``, ``"random"``, ``"first"`` or ``"greedy"``.
    ard : one sigma_u2 per input, which ranks the inputs (``input_importance_``).
    priors : ``"default"``, None, or a mapping such as ``{"w": Beta(2, 2), "sigma_b2": None}``.
    optimizer : ``"lbfgs"`` to convergence, or ``"adam"`` for ``max_iter`` steps.
    max_iter : iterations at most.
    scale_inputs : ``"standard"``, ``"quantile"`` (normal scores of the ranks), ``"minmax"`` (the paper's, to
        [-0.5, 0.5]), None, or ``"auto"``: by rank if that predicts held-out training rows better.
    block_rows : rows per block, by default what fits 256 MiB of work.
    random_state : seeds anchors, order and starts; the same seed gives the same fit.
    verbose : 1 prints a line per iteration.
    ordering : ``"random"`` or ``"maxmin"``, the order in which rows condition on earlier ones.
    target_transform : None, ``"auto"``, or a warp: ``"box-cox"``, ``"yeo-johnson"``, ``"sinh-arcsinh"``,
        ``"sqrt"``, ``"log"``; its parameters are estimated with the rest.
    metric : ``"iso"``, one sigma_u2 for all directions of the inputs; ``"ard"``, one per input, as with
        ``ard=True``; ``"learned"``, hidden weights whose covariance is learned from the gradients of a first
        fit (``metric_``); ``"auto"``, the one that predicts held-out training rows best.
    noise : ``"constant"``; ``"varying"``, sigma_eps2 exp(h(x)) with h learned from residuals; or ``"auto"``.
    noise_fraction : eta; the noise starts at eta times the mean of K(x, x), eq. (nugget_frac).
    start : None, or a mapping of parameter names to starting values, from which alone the fit then begins.
    learning_rate, noise_learning_rate : Adam's step for the parameters and for the noise.
    batch_rows : rows per step of Adam, drawn anew each time; all rows by default.
    budget : seconds that fitting may take; ``"auto"`` then also turns down its dials to fit.
    backend : ``"auto"``, ``"native"`` (CPU) or ``"xla"`` (JAX, any device).
    checkpoint : a file in which every evaluation is written down; a fit that was killed and is called again
        with the same table, settings and file goes on from there and ends with the same answer.
    conformal : hold out a tenth of the rows (99 to 2,000; a third of fewer than 297 rows) and calibrate
        intervals on them: new rows like them are then covered at the level asked for, whatever the model gets
        wrong. Below 57 rows in all, intervals of level 0.95 are infinite, as ``result_.notes`` then says: of
        30 rows 10 are held out, and that level needs 19.
    engine : where sums over rows are made: ``"local"``, ``"sharded"`` (all devices that JAX finds; ``"auto"``
        where these are accelerators), ``"dask"`` (the current ``Client``'s cluster), or an engine object.
    likelihood : ``"gaussian"``, ``"student-t"`` (gross outliers), or, for counts with mean e^f, ``"poisson"``
        or ``"negative-binomial"``; other than Gaussian by Laplace's approximation.

    Attributes
    ----------
    fitted_ : `FittedGP`, everything that the fit left; the others are parts of it.
    params_ : dict of the estimates by name, on the scale of standardised inputs and target.
    kernel_ : the kernel at the estimates.    anchors_ : (r, I), in the units of X.
    converged_, n_iter_, log_posterior_ : how the fit ended (log posterior density up to a constant).
    result_ : `FitResult` with the reason for stopping, the path, the jitter, undetermined directions.
    input_importance_ : (I,) shares of sigma_u2, with ``ard=True``.
    approximation_ : the approximation used.    transform_ : the fitted target warp.
    metric_ : (I, q), the learned map x -> x A of the scaled inputs in front of the kernel, else None.
    calibration_ : `ConformalCalibration`, with ``conformal=True``, else None.
    """

    fitted_: FittedGP
    params_ = _part("params")
    kernel_ = _part("kernel")
    anchors_ = _part("anchors")
    result_ = _part("result")
    converged_ = _part("converged")
    n_iter_ = _part("n_iter")
    log_posterior_ = _part("log_posterior")
    approximation_ = _part("approximation")
    transform_ = _part("warp")
    calibration_ = _part("calibration")
    metric_ = _part("metric")

    def __init__(
        self,
        kernel: str | Kernel = "mixed",
        approximation: str = "auto",
        rank: int = 500,
        anchors: str = "kmeans",
        ard: bool = False,
        priors: Any = "default",
        optimizer: str = "lbfgs",
        max_iter: int = 100,
        scale_inputs: str | None = "standard",
        block_rows: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        *,
        neighbors: int = 30,
        predict_neighbors: int = 400,
        ordering: str = "random",
        target_transform: str | None = None,
        metric: str = "iso",
        noise: str = "constant",
        noise_fraction: float = 0.04,
        start: Any = None,
        learning_rate: float = 1e-3,
        noise_learning_rate: float = 1e-3,
        batch_rows: int | None = None,
        budget: float | None = None,
        backend: str = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        conformal: bool = False,
        engine: Any = "auto",
        likelihood: str = "gaussian",
    ) -> None:
        self.kernel = kernel
        self.approximation = approximation
        self.rank = rank
        self.anchors = anchors
        self.ard = ard
        self.priors = priors
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.scale_inputs = scale_inputs
        self.block_rows = block_rows
        self.random_state = random_state
        self.verbose = verbose
        self.neighbors = neighbors
        self.predict_neighbors = predict_neighbors
        self.ordering = ordering
        self.target_transform = target_transform
        self.metric = metric
        self.noise = noise
        self.noise_fraction = noise_fraction
        self.start = start
        self.learning_rate = learning_rate
        self.noise_learning_rate = noise_learning_rate
        self.batch_rows = batch_rows
        self.budget = budget
        self.backend = backend
        self.checkpoint = checkpoint
        self.conformal = conformal
        self.engine = engine
        self.likelihood = likelihood

    @property
    def input_importance_(self) -> np.ndarray:
        check_is_fitted(self, "fitted_")
        if self.fitted_.input_importance is None:
            raise AttributeError("input_importance_ ranks inputs by their sigma_u2; fit with ard=True.")
        return self.fitted_.input_importance

    @classmethod
    def plain(cls, **changes: Any) -> Self:
        """The kernel as it is: standardised inputs, one sigma_u2 for all directions, one noise, no warp."""
        settings: dict[str, Any] = {"metric": "iso", "noise": "constant", "target_transform": None}
        return cls(**(settings | {"scale_inputs": "standard"} | changes))

    @classmethod
    def paper_protocol(cls, noise_start: float | None = None, **changes: Any) -> Self:
        """The paper's: inputs in [-0.5, 0.5], 50 Adam steps of 1e-3 from sigma^2 = 1, alpha = w = 1/2.

        ``noise_start`` replaces the rule eta x mean K(x, x); the published rows on real data need 0.02^2.
        The published test scores are those of ``approximation="subset"``, the default here.
        """
        start = {"sigma_a2": 1.0, "sigma_u2": 1.0, "sigma_b2": 1.0, "sigma_v2": 1.0, "alpha": 0.5, "w": 0.5}
        if noise_start is not None:
            start["sigma_eps2"] = noise_start
        settings: dict[str, Any] = {
            "approximation": "subset", "rank": 500, "anchors": "kmeans", "optimizer": "adam",
            "max_iter": 50, "scale_inputs": "minmax", "start": start,
        }  # fmt: skip
        return cls(**(settings | changes))

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *,
        noise_variance: ArrayLike | None = None, exposure: ArrayLike | None = None,
        progress: Report | None = None,
    ) -> Self:  # fmt: skip
        """Estimate the parameters from X (n, I), y (n,) and prepare predictions.

        ``sample_weight`` (n,): a row of weight w counts as w rows with the same target. ``noise_variance``,
        (n,) or a number: variances of y given f where they are known, in the units of y squared; the noise is
        then not estimated, and that of new rows is taken as their mean. ``exposure`` (n,) multiplies the rate
        of counts: the time or the number at risk that each is of.

        ``progress(stage, iteration, objective, values)`` is called once per iteration; with a fifth parameter
        ``outlook`` it hears of every stage, and of the time left (see `widegp.progress`).

        A table that does not fit in memory is fitted from where it is: X an ``np.memmap``, a ``.npy`` file,
        a Dask array, or, with y the name of the target's column, a folder of Parquet files or a Dask frame.
        It is copied once to the temporary folder (TMPDIR), scaled.
        """
        began = time.perf_counter()
        self._check_settings()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with Progress(self.verbose, progress) as shown:
            if self.likelihood == "gaussian" and exposure is None:
                table = training_table(self, X, y, seed, sample_weight, noise_variance)
                model = self._fit_gaussian(table, seed, shown, began)
            else:
                known = {"sample_weight": sample_weight, "noise_variance": noise_variance}
                model = fit_response(self, X, y, exposure, shown.update, known)
        self.fitted_ = model.lasted(time.perf_counter() - began)
        if not self.converged_ and self.optimizer == "lbfgs":
            warnings.warn(f"The fit has not converged: {self.result_.reason}.", ConvergenceWarning, 2)
        return self

    def _fit_gaussian(self, table: TrainingTable, seed: int, shown: Progress, began: float) -> FittedGP:
        engine = make_engine(self.engine, self.backend)
        rows, scaler = table.X, TargetScaler.fit(table.y, table.weight)
        target = scaler.transform(table.y)
        kernel, start = self._start(rows)
        backend = choose_backend(kernel, backend_for(engine, self.backend))
        journal = self._journal(rows, table.y, seed)
        dials = self._resolved(rows, kernel, backend, journal, seed)
        builder = Builder(rows, dials, backend, seed, engine)
        scale = {"offset": scaler.mean, "scale": scaler.sd}
        priors = resolve_priors(self.priors, kernel, rows.shape[1], self._by_input)
        problem = Problem(kernel, target, make_warp("none", **scale), priors, weight=table.weight)
        if table.noise is not None:
            mean = float(table.noise.mean())
            problem = replace(problem, noise=mean / scaler.sd**2, spread=table.noise / mean)
            start = {name: value for name, value in start.items() if name != "sigma_eps2"}
        by_input = resolve_priors(self.priors, kernel, rows.shape[1], True)
        spent = journal.seconds() if journal else time.perf_counter() - began
        run = Run(self._settings(spent, seed), journal=journal)
        with backend.scope():
            whole = TableFit(builder, problem, by_input, start, scale, run, shown.update)
            model = self._model(whole.estimate(self._asked()), table)
        return model if table.held is None else model.calibrated_on(*table.held)

    @property
    def _by_input(self) -> bool:
        return self.ard or self.metric == "ard"

    def _asked(self) -> Asked:
        metric = "ard" if self._by_input else self.metric
        return Asked(self.scale_inputs or "none", self.target_transform or "none", metric, self.noise)

    def _journal(self, X: np.ndarray, y: np.ndarray, seed: int) -> Journal | None:
        """The journal of this very fit, if evaluations are to be written down."""
        if self.checkpoint is None:
            return None
        apart = {"checkpoint", "verbose", "random_state", "predict_neighbors"}
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in apart}
        return Journal.open(self.checkpoint, fingerprint(settings | {"seed": seed}, X, y))

    def _resolved(
        self, rows: np.ndarray, kernel: Kernel, backend: Backend, journal: Journal | None, seed: int
    ) -> Dials:
        """The dials, ``"auto"`` resolved; a choice by the clock is made once for all runs of a fit."""

        def choose() -> dict[str, Any]:
            return asdict(
                choose_dials(
                    self._dials(), len(rows), rows.shape[1], self._by_input, self.budget,
                    lambda: calibrate(rows, kernel, backend, seed),
                )
            )  # fmt: skip

        return Dials(**(journal.choice("dials", choose) if journal else choose()))

    def _settings(self, spent: float, seed: int) -> OptimizerSettings:
        left = None if self.budget is None else max(0.0, self.budget - spent)
        return OptimizerSettings(
            self.optimizer, self.max_iter, self.learning_rate, self.noise_learning_rate, left,
            self.start is None, self.batch_rows, seed,
        )  # fmt: skip

    def _start(self, rows: np.ndarray) -> tuple[Kernel, dict[str, np.ndarray]]:
        """The kernel to fit, and where its parameters begin."""
        kernel = named(self.kernel) if isinstance(self.kernel, str) else self.kernel
        n_inputs = rows.shape[1]
        given = dict(self.start or {})
        if self.start is None and isinstance(self.kernel, str):
            kernel = kernel.at_start(n_inputs)
        unknown = set(given) - set(kernel.parameters()) - {"sigma_eps2"}
        if unknown:
            raise ValueError(
                f"start names {sorted(unknown)}, but {type(kernel).__name__} has {[*kernel.parameters()]}."
            )
        kernel = kernel.replace(**{k: v for k, v in given.items() if k != "sigma_eps2"})
        mean = float(np.mean(np.asarray(kernel.diag(rows[: 10 * 1000]))))
        noise = float(given.get("sigma_eps2", self.noise_fraction * mean))
        return kernel, start_values(kernel, noise, np.zeros(0), n_inputs if self._by_input else None)

    def _dials(self) -> Dials:
        return Dials(
            self.approximation, self.rank, self.neighbors, self.anchors, self.ordering, self.block_rows
        )

    def _check_settings(self) -> None:
        if self.approximation != "auto":
            approximation(self.approximation)
        if self.optimizer not in ("lbfgs", "adam"):
            raise ValueError(f"Unknown optimizer {self.optimizer!r}; choose 'lbfgs' or 'adam'.")
        for name, least in (("rank", 1), ("neighbors", 0), ("predict_neighbors", 0), ("max_iter", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}.")

    def _model(self, estimate: Estimate, table: TrainingTable) -> FittedGP:
        """The model at the estimates, of the ``table`` that it was fitted to."""
        fitted, builder = estimate.fitted, estimate.builder
        values, objective = fitted.values, fitted.objective
        problem, order = objective.problem, fitted.layout.order
        kernel, observed = problem.kernel_at(values), problem.observed(values)
        params = {k: float(v) if np.ndim(v) == 0 else v for k, v in values.items() if k != "psi"}
        params.setdefault("sigma_eps2", observed.noise)
        rows = None
        if order is not None:
            count, stored = max(self.predict_neighbors, builder.dials.neighbors), observed.of(order)
            rows = TrainingRows(take(builder.X, order), stored.y, kernel, count, stored.spread)
        posterior = objective.likelihood.posterior(kernel, observed)
        by_input = any(np.ndim(params[name]) for name in kernel.per_input)
        weights = kernel.input_weights(builder.X.shape[1]) if by_input else None
        names, target = getattr(self, "feature_names_in_", None), TargetScaler.fit(table.y, table.weight)
        psi, scale = values.get("psi", np.zeros(0)), {"offset": target.mean, "scale": target.sd}
        return FittedGP(
            inputs=ChainedMaps((table.scaler, *estimate.maps)) if estimate.maps else table.scaler,
            target=target, warp=FittedWarp.fit(problem.y, problem.warp.name, psi, **scale),
            kernel=kernel, params=params,
            approximation=builder.dials.name, posterior=posterior, rows=rows,
            result=described(fitted, builder), seed=builder.seed,
            n_features=self.n_features_in_, feature_names=None if names is None else tuple(map(str, names)),
            input_importance=None if weights is None else weights / weights.sum(),
            noise_model=estimate.noise, backend=builder.backend.name,
        ).noted(*estimate.notes)  # fmt: skip

    def predict_distribution(self, X: ArrayLike, exposure: ArrayLike | None = None) -> Predictive:
        """The distribution of y at the rows of X (q, I): moments, quantiles, intervals, density, draws.

        The rows are predicted once; all else costs little. ``exposure`` (q,) is that of counts, or 1.
        """
        check_is_fitted(self, "fitted_")
        return self.fitted_.predictive(checked_rows(self, X), exposure)

    def predict(self, X: ArrayLike, return_std: bool = False, *, latent: bool = False) -> Any:
        """Mean of y at the rows of X (q, I), and its standard deviation if asked for.

        ``latent=True`` gives the standard deviation of f, without the noise of a new observation, in the
        units of y; the mean is that of y in both cases.
        """
        predictive = self.predict_distribution(X)
        if not return_std:
            return predictive.mean
        return predictive.mean, (predictive.latent if latent else predictive).sd

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike, *, latent: bool = False) -> np.ndarray:
        """Quantiles of y, exact under any warp: levels (k,) -> (q, k).

        Those of f, ``latent=True``, are mapped to the units of y by the inverse of the warp.
        """
        predictive = self.predict_distribution(X)
        return (predictive.latent if latent else predictive).quantile(levels)

    def predict_interval(
        self, X: ArrayLike, level: float = 0.95, *, latent: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Central interval that y falls into with probability ``level``: (lower (q,), upper (q,)).

        With ``conformal=True`` it is calibrated. The interval of f, ``latent=True``, stays the model's own;
        under a warp its ends are the inverse of the warp at the quantiles of f.
        """
        predictive = self.predict_distribution(X)
        return (predictive.latent if latent else predictive).interval(level)

    def log_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Log predictive density of each y (q,) at its row of X, Jacobian of the warp included."""
        return self.predict_distribution(X).log_density(y)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of y at the rows of X, noise included: (q, n_samples)."""
        check_is_fitted(self, "fitted_")
        return self.fitted_.sample(checked_rows(self, X), n_samples, random_state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file for `widegp.load`: arrays and JSON, no pickle, checksummed."""
        check_is_fitted(self, "fitted_")
        save_model(self, path)


def load(path: str | os.PathLike[str], backend: str | None = None) -> WideGPRegressor:
    """The model that ``WideGPRegressor.save`` wrote to ``path``; it predicts the same to the last bit.

    ``backend`` other than that of the fit, such as ``"xla"`` on a machine with an accelerator, rounds
    differently.
    """
    model: WideGPRegressor = load_model(path, WideGPRegressor, backend)
    return model
