"""What evaluating a likelihood gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from widegp.kernels.base import Kernel

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Evaluation:
    """-log p(y | X, theta) and its gradient.

    ``gradient`` maps each kernel parameter, ``sigma_eps2`` and ``psi`` (the warp) to a derivative.
    A numerical failure is ``value = inf`` with ``problem`` saying which; never a NaN.
    """

    value: float
    gradient: dict[str, np.ndarray] = field(default_factory=dict)
    jitter: float = 0.0
    problem: str | None = None


def failure(problem: str) -> Evaluation:
    return Evaluation(float("inf"), {}, 0.0, problem)


class Approximation(Protocol):
    """A likelihood of y for given rows."""

    @property
    def n_rows(self) -> int: ...

    def evaluate(self, kernel: Kernel, noise: float, y: np.ndarray, dy: np.ndarray | None) -> Evaluation: ...

    def posterior(self, kernel: Kernel, noise: float, y: np.ndarray) -> Any: ...
