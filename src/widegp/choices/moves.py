"""One change of a model at a time: how inputs are scaled, the target warped, the inputs weighed, the noise.

A move takes a fitted trial to the trial of the changed model on the same rows. A setting is the sequence of
moves that led to it, so that what was chosen on some rows can be made again on others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from widegp.choices.metric import learned_map
from widegp.choices.screening import importance_moment
from widegp.choices.trials import Bench, Trial

# If noise is more than this share of the target, the fit found nothing: do not start from it.
NOTHING_FOUND = 0.5


class Move(Protocol):
    """``sibling``, where there is one, is the same model on other rows: the nearest known optimum."""

    @property
    def words(self) -> str: ...

    def apply(self, bench: Bench, trial: Trial, sibling: Trial | None = None) -> Trial | None:
        """The changed model, fitted; None where there is nothing to change."""


@dataclass(frozen=True)
class Scale:
    """Scale the inputs in another way."""

    inputs: str

    @property
    def words(self) -> str:
        return {"quantile": "inputs by rank", "standard": "inputs standardised"}.get(self.inputs, self.inputs)

    def apply(self, bench: Bench, trial: Trial, sibling: Trial | None = None) -> Trial | None:
        return bench.warm(replace(trial.form, inputs=self.inputs), sibling or trial)


@dataclass(frozen=True)
class WarpTarget:
    """Warp the target; psi is where its parameters begin."""

    warp: str
    psi: tuple[float, ...] = ()

    @property
    def words(self) -> str:
        return f"target by {self.warp}"

    def apply(self, bench: Bench, trial: Trial, sibling: Trial | None = None) -> Trial | None:
        form = replace(trial.form, warp=self.warp)
        if sibling is not None:
            return bench.warm(form, sibling)
        start = {name: value for name, value in trial.values.items() if name != "psi"}
        start |= {"psi": np.array(self.psi)} if self.psi else {}
        return bench.warm(form, trial, start).with_curvature()


@dataclass(frozen=True)
class LearnMetric:
    """x -> x M^power, M from the gradients of the trial, or of importances by a forest."""

    power: float
    by_forest: bool = False

    @property
    def words(self) -> str:
        source = "importances" if self.by_forest else "gradients"
        return f"metric of {source}^{2 * self.power:g}"

    def apply(self, bench: Bench, trial: Trial, sibling: Trial | None = None) -> Trial | None:
        X = bench.tables[trial.form.inputs][bench.fitted]
        if self.by_forest:
            moment = importance_moment(X, trial.objective.problem.warped(trial.values).value, bench.seed)
        else:
            moment = trial.moment
        form = replace(trial.form, linear=learned_map(moment, X, self.power), noise=None)
        if sibling is None and self.by_forest and trial.values["sigma_eps2"] > NOTHING_FOUND:
            return bench.explored(form, trial.values).with_curvature()
        return bench.warm(form, sibling or trial)


@dataclass(frozen=True)
class WeighInputs:
    """One sigma_u2 per input (ARD)."""

    words = "one variance per input"

    def apply(self, bench: Bench, trial: Trial, sibling: Trial | None = None) -> Trial | None:
        return bench.by_inputs(replace(trial.form, linear=None, noise=None), sibling or trial)


@dataclass(frozen=True)
class VaryNoise:
    """Noise sigma_eps2 exp(strength h(x))."""

    strength: float

    @property
    def words(self) -> str:
        return f"varying noise ({self.strength:g})"

    def apply(self, bench: Bench, trial: Trial, sibling: Trial | None = None) -> Trial | None:
        if trial.noise_model is None:
            return None
        form = replace(trial.form, noise=trial.noise_model.with_strength(self.strength))
        return bench.warm(form, sibling or trial)
