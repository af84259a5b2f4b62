"""The MAP loss of several classes under one kernel, the softmax's f integrated out (`laplace_classes`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from widegp.approximations.evaluation import GaussianLikelihood, Observed
from widegp.inference.latent import LaplaceObjective, LatentProblem
from widegp.inference.parameters import ParameterSpace, Values
from widegp.laplace_classes import ClassPseudo, ClassResponse, class_evidence, find_class_mode


@dataclass(frozen=True)
class ClassProblem(LatentProblem):
    """A `LatentProblem` with a function for each of C classes, all of one kernel."""

    response: ClassResponse  # type: ignore[assignment]

    @property
    def psi_bounds(self) -> tuple[tuple[float, float], ...]:
        return ()

    @property
    def functions(self) -> int:
        return self.response.likelihood.n_classes

    def on(self, likelihood: GaussianLikelihood, space: ParameterSpace) -> ClassObjective:
        """The loss under a Gaussian likelihood of the same rows."""
        return ClassObjective(likelihood, self, space)

    def response_at(self, values: Values) -> Any:
        return self.response

    def log_score(self, values: Values, rows: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """log p of the classes at ``rows`` (h,) where f ~ N(mean, var), both (h, C): (h,)."""
        response = self.response.of(rows)
        return response.likelihood.predictive(mean + response.offset, var).log_density(response.y)

    def observed(self, values: Values, function: int | None = None) -> Observed:
        """The Gaussian of one class at the mode found last; of the one nearest to half the rows by default,
        which starts are compared by.
        """
        pseudo = self._pseudo
        if function is None:
            function = int(np.argmin(pseudo.noise.mean(axis=0)))
        return Observed(pseudo.z[:, function].copy(), 1.0, pseudo.noise[:, function].copy())

    @property
    def _pseudo(self) -> ClassPseudo:
        f = self.response.start() if self.known.f is None else self.known.f
        return ClassPseudo.at(self.response, f)


class ClassObjective(LaplaceObjective):
    """L(theta) = F(theta) - log p(theta), F at least -log q(y | X, theta), see `laplace_classes`."""

    def _evidence(self, solve: Any, response: Any, tolerance: float) -> Any:
        return class_evidence(solve, response, self.problem.known.f, tolerance)

    def _mode(self, solve: Any, response: Any, tolerance: float) -> Any:
        return find_class_mode(solve, response, self.problem.known.f, tolerance)
