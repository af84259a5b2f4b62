"""The scikit-learn regressor: validate, call, store."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from widegp.restoring import restored_on_failure
from widegp.saving import SaveMixin
from widegp.training_table import checked_rows, n_outputs

if TYPE_CHECKING:
    from widegp.classifier import WideGPClassifier
    from widegp.kernels.base import Kernel
    from widegp.progress import Listener

# What fits, saves and loads is imported when it is asked for: JAX and Numba take seconds to load.


def _part(name: str) -> property:
    """A part of ``fitted_`` as an attribute of the estimator, which is not there before the fit."""

    def get(model: WideGPRegressor) -> Any:
        check_is_fitted(model, "fitted_")
        if isinstance(model.fitted_, tuple):
            own = tuple(getattr(one, name) for one in model.fitted_)
            if name in ("converged", "n_iter"):
                return all(own) if name == "converged" else max(own)
            if name == "result":
                return next((result for result in own if not result.converged), own[0])
            return own if name in ("params", "warp", "kernel", "theta") else own[0]
        return getattr(model.fitted_, name)

    return property(get)


def _outputs(found: Any, take: Callable[[Any], np.ndarray]) -> np.ndarray:
    """What ``take`` makes of one output, or of each of several, along the last axis."""
    return np.stack([take(one) for one in found], axis=-1) if isinstance(found, tuple) else take(found)


class WideGPRegressor(SaveMixin, RegressorMixin, BaseEstimator):
    """Gaussian-process regression with the limit kernels of wide Bayesian networks.

    y = f(x) + eps,  f ~ GP(0, K),  eps ~ N(0, sigma_eps2), fitted by MAP, eq. (map_loss_body), under an
    approximation of two dials: ``rank`` anchors and ``neighbors`` nearest earlier rows.

    Parameters
    ----------
    kernel : ``"mixed"`` (K_mix), ``"tanh"``, ``"sigmoid"``, ``"relu"``, ``"leaky_relu"``, ``"rbf"``,
        ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rational_quadratic"``, an object, or ``"auto"``.
    approximation : ``"auto"``, ``"exact"``, ``"full-scale"`` (anchors and neighbours), ``"vecchia"``
        (neighbours), ``"fitc"``, ``"vfe"``, ``"dtc"``, ``"sor"`` (anchors), ``"subset"``, or ``"nystrom"``
        (the paper's equation). ``"auto"`` is exact for small tables and full-scale for the others.
    rank, neighbors, predict_neighbors : the dials; the last is for prediction.
    predict_cells : new rows that lie together share the training rows that predict them, twice
        ``predict_neighbors`` of them, and one factorisation (docs/dials.md). Without, each row has the
        ``predict_neighbors`` rows nearest to itself, which takes some milliseconds a row.
    anchors : ``"kmeans"``, ``"kmeans++"``, ``"random"``, ``"first"`` or ``"greedy"``.
    ard : one sigma_u2 per input, which ranks the inputs (``input_importance_``). Of all that is left to
        ``"auto"`` only a warp is then chosen.
    priors : ``"default"``, ``"paper"``, None, or a mapping such as ``{"w": Beta(2, 2), "sigma_b2": None}``.
    optimizer : ``"lbfgs"`` to convergence, or ``"adam"`` for ``max_iter`` steps.
    max_iter : iterations at most.
    scale_inputs : ``"standard"``, ``"quantile"`` (normal scores of the ranks), ``"minmax"`` (the paper's, to
        [-0.5, 0.5]), None, or ``"auto"``: by rank if that predicts held-out training rows better, and values
        that lie further outside than the training range is wide count as just so far outside (``"bounded"``).
    block_rows : rows per block, by default what fits 256 MiB of work.
    random_state : seeds anchors, order and starts; the same seed gives the same fit.
    verbose : 1 prints a line per iteration.
    ordering : ``"random"`` or ``"maxmin"``, the order in which rows condition on earlier ones.
    target_transform : None, ``"auto"``, or a warp: ``"box-cox"``, ``"yeo-johnson"``, ``"sinh-arcsinh"``,
        ``"sqrt"``, ``"log"``; its parameters are estimated with the rest.
    metric : ``"iso"``, one sigma_u2 for all directions of the inputs; ``"ard"``, one per input, as with
        ``ard=True``; ``"learned"``, hidden weights whose covariance is learned from the gradients of a first
        fit (``metric_``); ``"auto"``, the one that predicts held-out training rows best.
    trees : ``"none"``, or ``"auto"``: boosted trees' cross-fitted predictions are an input where they help.
    noise : ``"constant"``; ``"varying"``, sigma_eps2 exp(h(x)) with h learned from residuals; or ``"auto"``,
        which also learns from left-out rows how targets scatter about predictions, where not like a Gaussian.
    noise_fraction : eta; the noise starts at eta times the mean of K(x, x), eq. (nugget_frac).
    start : None, or a mapping of parameter names to starting values, from which alone the fit then begins.
    learning_rate, noise_learning_rate : Adam's steps.    batch_rows : rows of each, drawn anew; default all.
    budget : seconds that fitting may take; ``"auto"`` then also turns down its dials to fit,
        and nothing is tried on held-out rows.
    backend : ``"auto"``, ``"native"`` (CPU) or ``"xla"`` (JAX, any device).
    checkpoint : a file in which every evaluation is written down; a fit that was killed and is called again
        with the same table, settings and file goes on from there and ends with the same answer.
    conformal : hold out a tenth of the rows (99 to 2,000; a third of fewer than 297 rows) and calibrate
        intervals on them: new rows like them are then covered at the level asked for, whatever the model gets
        wrong. Below 57 rows in all, intervals of level 0.95 are infinite, as ``result_.notes`` then says: of
        30 rows 10 are held out, and that level needs 19.
    engine : where sums over rows are made: ``"local"``, ``"sharded"`` (all devices that JAX finds; ``"auto"``
        where these are accelerators), ``"dask"`` (the current ``Client``'s cluster), or an engine object.
    likelihood : ``"gaussian"``, ``"student-t"`` (gross outliers), or, with mean e^f, ``"poisson"`` or
        ``"negative-binomial"`` for counts and ``"gamma"`` for amounts above 0; by Laplace's approximation.
        ``"logit"`` and ``"probit"`` are of targets 0 and 1; `WideGPClassifier` takes any classes.
    posterior : ``"map"``, predictions at the mode of the parameters; ``"laplace"``, averaged over a few
        points with the moments of importance-weighted draws, or around the mode where these fail;
        ``"sample"``, over draws of NUTS (needs numpyro); ``"auto"``: exact fits of at most 300 rows as
        ``"laplace"``, around the mode above 150 rows or 12 parameters, and over metrics and kernels (K_mix,
        ``"rbf"``) where these are left open, by held-out rows or evidence; others ``"map"``, or the average
        with another fit that left-out rows prefer.

    Attributes
    ----------
    fitted_ : `FittedGP`, everything that the fit left; the others are parts of it. For y (n, T) a tuple of T,
        of which inputs and metric are those of all where that is no loss; predictions have a column for each.
    params_ : dict of the estimates by name, on the scale of standardised inputs and target.
    kernel_ : the kernel at the estimates.    anchors_ : (r, I), in the units of X.
    converged_, n_iter_, log_posterior_ : how the fit ended (log posterior density up to a constant).
    result_ : `FitResult` with the reason for stopping, the path, the jitter, undetermined directions.
    input_importance_ : (I,) shares of sigma_u2, with ``ard=True``.
    approximation_ : the approximation used.    transform_ : the fitted target warp.
    metric_ : (I, q), the learned map x -> x A of the scaled inputs in front of the kernel, else None; with
        trees among the inputs (I + J, q), their J predictions last.
    posterior_ : `ParameterPosterior`, points and weights or draws, credible intervals, evidence; None for
        ``"map"``.
    log_evidence_ : log p(y | X), the parameters integrated out, in nats of the standardised target.
    calibration_ : `ConformalCalibration`, with ``conformal=True``, else None.
    """

    fitted_: Any
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
    posterior_ = _part("theta")

    def __init__(
        self,
        kernel: str | Kernel = "auto",
        approximation: str = "auto",
        rank: int = 500,
        anchors: str = "kmeans",
        ard: bool = False,
        priors: Any = "default",
        optimizer: str = "lbfgs",
        max_iter: int = 100,
        scale_inputs: str | None = "auto",
        block_rows: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        *,
        neighbors: int = 30,
        predict_neighbors: int = 400,
        predict_cells: bool = True,
        ordering: str = "random",
        target_transform: str | None = "auto",
        metric: str = "auto",
        noise: str = "auto",
        trees: str = "auto",
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
        posterior: str = "auto",
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
        self.predict_cells = predict_cells
        self.ordering = ordering
        self.target_transform = target_transform
        self.metric = metric
        self.noise = noise
        self.trees = trees
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
        self.posterior = posterior

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def input_importance_(self) -> np.ndarray:
        check_is_fitted(self, "fitted_")
        if self.fitted_.input_importance is None:
            raise AttributeError("input_importance_ ranks inputs by their sigma_u2; fit with ard=True.")
        return self.fitted_.input_importance

    @property
    def log_evidence_(self) -> float:
        check_is_fitted(self, "fitted_")
        if self.fitted_.theta is None or self.fitted_.theta.evidence is None:
            raise AttributeError("log_evidence_ needs the posterior; fit with posterior='laplace'.")
        return self.fitted_.theta.evidence.log_evidence

    @classmethod
    def plain(cls, *given: Any, **changes: Any) -> Self:
        """The kernel as it is: standardised inputs, one sigma_u2 for all directions, one noise, no warp.

        Arguments of the class override these.
        """
        settings: dict[str, Any] = {
            "metric": "iso", "noise": "constant", "scale_inputs": "standard", "target_transform": None,
            "trees": "none", "posterior": "map",
        }  # fmt: skip
        return cls(*given, **(settings | changes))

    @classmethod
    def paper_protocol(cls, noise_start: float | None = None, **changes: Any) -> Self:
        """The paper's: inputs in [-0.5, 0.5], 50 Adam steps of 1e-3 from sigma^2 = 1, alpha = w = 1/2.

        ``noise_start`` replaces the rule eta x mean K(x, x); the published rows on real data need 0.02^2.
        The published test scores are those of ``approximation="subset"``, the default here. Priors keep all
        parameters, the noise included, near the start, see `widegp.inference.protocol`.
        """
        from widegp.inference import protocol

        known = {} if noise_start is None else {"sigma_eps2": noise_start}
        settings: dict[str, Any] = {
            "approximation": "subset", "rank": protocol.RANK, "anchors": "kmeans", "optimizer": "adam",
            "max_iter": protocol.STEPS, "scale_inputs": "minmax", "start": protocol.START | known,
            "priors": "paper",
        }  # fmt: skip
        return cls.plain(**(settings | changes))

    @restored_on_failure
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *,
        noise_variance: ArrayLike | None = None, exposure: ArrayLike | None = None,
        progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Estimate the parameters from X (n, I), y (n,) or (n, T) and prepare predictions.

        T outputs share inputs and metric; kernel parameters, warp, noise and tails are each output's own.
        Weights and other likelihoods are of one output.

        ``sample_weight`` (n,): a row of weight w counts as w rows with the same target. ``noise_variance``,
        (n,) or a number: variances of y given f where they are known, in the units of y squared; the noise is
        then not estimated, and that of new rows is taken as their mean. ``exposure`` (n,) multiplies the rate
        of counts or amounts: the time or the number at risk that each is of.

        ``progress(event)`` is called as each stage begins and after each iteration, with a
        `widegp.progress.Progress`: stage, iteration, objective, values, rows, seconds, time left.

        A table that does not fit in memory is fitted from where it is: X an ``np.memmap``, a ``.npy`` file,
        a Dask array, or, with y the name of the target's column, a folder of Parquet files or a Dask frame.
        It is copied once to the temporary folder (TMPDIR), scaled.
        """
        from widegp.fitting import fit_model

        known = {"sample_weight": sample_weight, "noise_variance": noise_variance}
        if n_outputs(y) > 1:
            from widegp.several_fit import fit_outputs

            if any(part is not None for part in (*known.values(), exposure)):
                raise ValueError("Several outputs take no weights, variances or exposure; fit one by one.")
            self.fitted_ = fit_outputs(self, X, y, progress)
        else:
            self.fitted_ = fit_model(self, X, y, known, exposure, progress)
        if not self.converged_ and self.optimizer == "lbfgs":
            warnings.warn(f"The fit has not converged: {self.result_.reason}.", ConvergenceWarning, 3)
        return self

    def update(self, X: Any, y: ArrayLike, sample_weight: Any = None, noise_variance: Any = None) -> Self:
        """Add rows X (q, I), y (q,) or (q, T) at the estimates; ``result_.growth`` says how they fit in."""
        check_is_fitted(self, "fitted_")
        from widegp.growth import grown_model

        self.fitted_ = grown_model(self, X, y, {"weight": sample_weight, "noise": noise_variance})
        return self

    def predict_distribution(self, X: ArrayLike, exposure: ArrayLike | None = None) -> Any:
        """The distribution of y at the rows of X (q, I): moments, quantiles, intervals, density, draws.

        The rows are predicted once; all else costs little. ``exposure`` (q,) is that of counts, or 1. Of
        several outputs there is a tuple of such distributions.
        """
        check_is_fitted(self, "fitted_")
        rows, fitted = checked_rows(self, X), self.fitted_
        if isinstance(fitted, tuple):
            return tuple(one.predictive(rows, exposure) for one in fitted)
        return fitted.predictive(rows, exposure)

    def predict(self, X: ArrayLike, return_std: bool = False, *, latent: bool = False) -> Any:
        """Mean of y at the rows of X (q, I), and its standard deviation if asked for.

        ``latent=True`` gives the standard deviation of f, without the noise of a new observation, in the
        units of y; the mean is that of y in both cases.
        """
        if not return_std:
            check_is_fitted(self, "fitted_")
            rows = checked_rows(self, X)
            return _outputs(self.fitted_, lambda one: one.mean(rows))
        found = self.predict_distribution(X)
        sd = _outputs(found, lambda one: (one.latent if latent else one).sd)
        return _outputs(found, lambda one: one.mean), sd

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike, *, latent: bool = False) -> np.ndarray:
        """Quantiles of y, exact under any warp: levels (k,) -> (q, k).

        Those of f, ``latent=True``, are mapped to the units of y by the inverse of the warp.
        """
        found = self.predict_distribution(X)
        return _outputs(found, lambda one: (one.latent if latent else one).quantile(levels))

    def predict_interval(
        self, X: ArrayLike, level: float = 0.95, *, latent: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Central interval that y falls into with probability ``level``: (lower (q,), upper (q,)).

        With ``conformal=True`` it is calibrated. The interval of f, ``latent=True``, stays the model's own;
        under a warp its ends are the inverse of the warp at the quantiles of f.
        """
        found = self.predict_distribution(X)

        def ends(one: Any) -> np.ndarray:
            return np.stack((one.latent if latent else one).interval(level))

        lower, upper = _outputs(found, ends)
        return lower, upper

    def log_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Log predictive density of each y (q,) at its row of X, Jacobian of the warp included."""
        found = self.predict_distribution(X)
        if not isinstance(found, tuple):
            return found.log_density(y)
        columns = np.asarray(y, float).T
        return np.stack([one.log_density(c) for one, c in zip(found, columns, strict=True)], axis=-1)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of y at the rows of X, noise included: (q, n_samples)."""
        check_is_fitted(self, "fitted_")
        rows = checked_rows(self, X)
        return _outputs(self.fitted_, lambda one: one.sample(rows, n_samples, random_state))

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX graph: X (N, I) -> mean, variance, (N,) or (N, T); see `widegp.export.model`."""
        from widegp.export import export_model

        check_is_fitted(self, "fitted_")
        export_model(self.fitted_, path)


def load(path: str | os.PathLike[str], backend: str | None = None) -> WideGPRegressor | WideGPClassifier:
    """The model that an estimator's ``save`` wrote to ``path``; it predicts the same to the last bit.

    ``backend`` other than that of the fit, such as ``"xla"`` on a machine with an accelerator, rounds
    differently.
    """
    from widegp.persist import load_model

    model: WideGPRegressor | WideGPClassifier = load_model(path, unfitted, backend)
    return model


def unfitted(**parameters: Any) -> WideGPRegressor | WideGPClassifier:
    """The estimator of these parameters, as a file holds them: a classifier has a ``class_weight``."""
    if "class_weight" not in parameters:
        return WideGPRegressor(**parameters)
    from widegp.classifier import WideGPClassifier

    return WideGPClassifier(**parameters)
