"""Identifiability of the parameters on a user's own table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from widegp.approximations.registry import approximation
from widegp.identifiability.coordinates import SIMPLEX
from widegp.identifiability.information import Blocks, fisher_information
from widegp.identifiability.objectives import (
    Computation,
    map_objective,
    prior_curvature,
    prior_informations,
)
from widegp.identifiability.profiles import Profile, profile
from widegp.identifiability.spectrum import Information, WeakDirection
from widegp.inference.information import ratios
from widegp.inference.parameters import declared_parameters
from widegp.inference.priors import resolve_priors
from widegp.kernels.base import Kernel

if TYPE_CHECKING:
    from widegp.estimator import WideGPRegressor

# Profiles are exact up to this many rows, the model's approximation beyond, on a sample past the second.
EXACT_ROWS = 1000
PROFILE_ROWS = 20_000
# What stands in for an exact model with more rows, and for the paper's two approximations.
STAND_IN = Computation("full-scale", 200, 30)
# Weak directions worth a line each.
LISTED = 5


@dataclass(frozen=True)
class ParameterReport:
    """An estimate, its standard error, and its standard error on the log (logit) scale.

    ``data_alone`` is the latter without the priors: where it is much larger, the prior decided.
    """

    name: str
    value: float
    standard_error: float
    log_standard_error: float
    data_alone: float


@dataclass(frozen=True)
class TableIdentifiability:
    """What a table determines: parameters, the information of its inputs at them, weak directions, a profile.

    ``information`` is that of the data, ``posterior`` that of data and priors; ``prior`` (p,) is that of each
    prior over its whole range, with which `_open` compares the data's. ``notes`` say what was approximated or
    left out.
    """

    parameters: tuple[ParameterReport, ...]
    information: Information
    posterior: Information
    prior: np.ndarray
    profile: Profile | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "parameters": [vars(p) for p in self.parameters],
            "information": self.information.to_dict(),
            "condition_number": self.information.condition_number,
            "condition_number_with_priors": self.posterior.condition_number,
            "weak_directions": [str(d) for d in self._open()],
            "profile": None if self.profile is None else self.profile.to_dict(),
            "notes": list(self.notes),
        }

    def describe(self) -> str:
        """The report as plain text."""
        head = f"{'parameter':<14}{'estimate':>11}{'std. error':>12}{'log scale':>11}{'data alone':>12}"
        lines = [head]
        lines += [
            f"{p.name:<14}{p.value:>11.4g}{p.standard_error:>12.3g}{p.log_standard_error:>11.3g}{p.data_alone:>12.3g}"
            for p in self.parameters
        ]
        lines += ["", f"Condition number of the information: {self.information.condition_number:.3g}"
                  f" (with priors {self.posterior.condition_number:.3g})."]  # fmt: skip
        lines += self._in_words()
        if self.profile is not None:
            lines += ["", f"Profile of {self.profile}."]
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def _open(self) -> list[WeakDirection]:
        found = ratios(self.information.log_matrix, self.prior)
        return [self.information.along(one.direction) for one in found if one.undetermined]

    def _listed(self, found: list[WeakDirection]) -> list[str]:
        more = [f"  and {len(found) - LISTED} more"] if len(found) > LISTED else []
        return [f"  {direction}" for direction in found[:LISTED]] + more

    def _in_words(self) -> list[str]:
        found = self._open()
        if not found:
            weakest = self.information.weakest(1)[0]
            return ["The data determine every direction of the parameters; the weakest is", f"  {weakest}."]
        many = "One direction is" if len(found) == 1 else f"{len(found)} directions are"
        head = f"{many} left to the priors, which say more about them than the data:"
        return [head, *self._listed(found)]


def identify_table(
    X: ArrayLike,
    y: ArrayLike,
    model: WideGPRegressor | None = None,
    *,
    parameter: str | None = None,
    with_profile: bool = True,
    max_rows: int = PROFILE_ROWS,
    seed: int = 0,
    **settings: Any,
) -> TableIdentifiability:
    """Which parameters of the model does this table determine, and which did the priors?

    Parameters
    ----------
    X, y : (n, I) and (n,), in their own units.
    model : a fitted regressor; by default one with ``settings`` is fitted here.
    parameter : whose profile to trace, by default the one that leads the weakest direction of the posterior.
    with_profile : False saves its time, about a hundred evaluations of the objective.
    max_rows : rows of the profile at most, drawn at random; information uses all rows, by blocks where many.

    The warp of the target, if there is one, is held at its estimate.
    """
    notes: list[str] = []
    model = _fitted(X, y, model, seed, settings, notes)
    rows = model.fitted_.inputs.transform(np.asarray(X, float))
    target = model.fitted_.standardised(np.asarray(y, float))
    kernel, noise = model.kernel_, float(model.params_["sigma_eps2"])
    information = _estimated(fisher_information(kernel, noise, rows, blocks=Blocks(seed=seed)), kernel)
    if information.approximation != "exact":
        notes.append(f"Information of {len(rows)} rows: {information.approximation}.")
    noise_start = model.fitted_.noise_start
    priors = resolve_priors(model.priors, kernel, rows.shape[1], bool(model.ard), noise_start)
    posterior = information.with_prior(prior_curvature(information.coordinates, priors))
    if SIMPLEX in information.coordinates.scales and "weights" in priors:
        notes.append("The prior of the weights is not counted in the standard errors.")
    traced = None
    if with_profile:
        sample = _sampled(len(rows), max_rows, seed, notes)
        name = parameter or leading(posterior)
        traced = _profiled(model, rows[sample], target[sample], priors, name, notes)
    if model.transform_.name != "none":
        notes.append(f"The target's warp ({model.transform_.name}) is held at its estimate.")
    return TableIdentifiability(
        _parameters(information, posterior), information, posterior,
        prior_informations(information.coordinates, kernel, priors), traced, tuple(notes),
    )


def _estimated(information: Information, kernel: Kernel) -> Information:
    """Without the slopes of a mixture's components, which a fit holds fixed."""
    declared, scales = declared_parameters(kernel), information.coordinates.scales
    held = [
        name
        for name, scale in zip(information.names, scales, strict=True)
        if scale != SIMPLEX and name.split("[")[0] not in declared
    ]
    return information.holding(*held) if held else information


def leading(information: Information) -> str:
    """The parameter with the largest loading in the weakest direction; weights of a mixture do not count."""
    found = information.weakest(1)[0].loadings
    scales = dict(zip(information.names, information.coordinates.scales, strict=True))
    loadings = {name: value for name, value in found.items() if scales[name] != SIMPLEX}
    return max(loadings, key=lambda name: abs(loadings[name]))


def _fitted(
    X: ArrayLike, y: ArrayLike, model: Any, seed: int, settings: dict, notes: list[str]
) -> WideGPRegressor:
    from sklearn.utils.validation import check_is_fitted

    from widegp.estimator import WideGPRegressor

    if model is None:
        model = WideGPRegressor(**({"random_state": seed} | settings)).fit(X, y)
    elif settings:
        raise ValueError(f"{', '.join(settings)} would need a fit, but a fitted model was given; drop one.")
    check_is_fitted(model, "result_")
    if not model.result_.converged:
        notes.append(f"The fit had not converged ({model.result_.reason}).")
    return model


def _sampled(n_rows: int, max_rows: int, seed: int, notes: list[str]) -> np.ndarray | slice:
    """At most ``max_rows`` of the rows, at random; all of them where they are no more."""
    if n_rows <= max_rows:
        return slice(None)
    notes.append(f"The profile uses {max_rows} of {n_rows} rows, and is wider than that of all.")
    return np.random.default_rng(seed).choice(n_rows, max_rows, replace=False)


def _profiled(
    model: WideGPRegressor, X: np.ndarray, y: np.ndarray, priors: dict, name: str, notes: list[str]
) -> Profile:
    by = _computation(model, len(X))
    if by.approximation != model.approximation_:
        notes.append(
            f"The profile's likelihood is {by.approximation}, rank {by.rank}, {by.neighbors} neighbours."
        )
    objective, start = map_objective(
        model.kernel_, float(model.params_["sigma_eps2"]), X, y, priors=priors or None, computation=by
    )
    traced = profile(objective, start, name)
    if traced.unfinished:
        notes.append(f"At {traced.unfinished} values of the profile the other parameters had not converged.")
    return traced


def _computation(model: WideGPRegressor, n_rows: int) -> Computation:
    """The model's own likelihood where a hundred evaluations of it are affordable."""
    seed = model.fitted_.seed
    if n_rows <= EXACT_ROWS:
        return Computation("exact", 0, 0, seed=seed)
    if not approximation(model.approximation_).coarse:
        return replace(STAND_IN, seed=seed)
    return Computation(model.approximation_, max(len(model.anchors_), 1), model.neighbors, seed=seed)


def _parameters(information: Information, posterior: Information) -> tuple[ParameterReport, ...]:
    own, log = posterior.standard_errors(), posterior.log_standard_errors()
    alone = information.log_standard_errors()
    return tuple(
        ParameterReport(name, float(value), own[name], log[name], alone[name])
        for name, value in zip(information.names, information.coordinates.theta, strict=True)
    )
