"""What a likelihood is given, and what evaluating it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from widegp.compute.backend import Backend, RowBars
from widegp.kernels.base import Kernel

if TYPE_CHECKING:
    from widegp.approximations.base import Shape

LOG_2PI = float(np.log(2 * np.pi))


class Observed(NamedTuple):
    """y_i = f(x_i) + eps_i,  Var eps_i = noise x spread_i.

    y (n,), in the order of the table; noise = sigma_eps2; spread (n,), or None where all rows are alike.
    """

    y: np.ndarray
    noise: float
    spread: np.ndarray | None = None

    def of(self, rows: np.ndarray | slice) -> Observed:
        """The same of some rows, or of all in another order."""
        spread = None if self.spread is None else self.spread[rows]
        return Observed(self.y[rows], self.noise, spread)

    def variances(self) -> np.ndarray:
        """noise x spread_i (n,)."""
        return np.full(len(self.y), self.noise) if self.spread is None else self.noise * self.spread


@dataclass(frozen=True)
class Evaluation:
    """F = -log p(y | X, theta) and its gradient.

    ``gradient`` maps each kernel parameter and ``sigma_eps2`` to a derivative. ``by_row`` has, where it was
    asked for, dF/dy_i and spread_i dF/dspread_i of each row, in the order of the table. A numerical failure
    is ``value = inf`` with ``problem`` saying which; never a NaN.
    """

    value: float
    gradient: dict[str, np.ndarray] = field(default_factory=dict)
    jitter: float = 0.0
    problem: str | None = None
    by_row: RowBars | None = None


def failure(problem: str) -> Evaluation:
    return Evaluation(float("inf"), {}, 0.0, problem)


def refuse_batch() -> NoReturn:
    """Raises: there is no batch of rows where all of them are taken at once."""
    raise ValueError("batch_rows needs anchors or neighbours; this approximation uses all rows at once.")


class GaussianLikelihood(Protocol):
    """-log p(y | X, theta) of rows X. Targets come in the order of X, whatever the order inside."""

    backend: Backend

    @property
    def n_rows(self) -> int: ...

    def evaluate(
        self, kernel: Kernel, observed: Observed, by_row: bool = False, gradient: bool = True
    ) -> Evaluation:
        """F with its gradient, and with its derivatives by row if asked for; these alone, at about half the
        cost, without ``gradient``, which is then empty.
        """

    def posterior(self, kernel: Kernel, observed: Observed) -> Any: ...

    @property
    def summed(self) -> Shape | None:
        """Rows, inputs, anchors and neighbours where the loss is made of sums over rows, which those of a
        `batch` estimate; None where it takes all rows at once.
        """

    def batch(self, rows: np.ndarray) -> GaussianLikelihood:
        """The likelihood estimated from some rows (b,), each given all its neighbours."""

    def settle(self, jitter: float) -> None:
        """Keep this jitter, so that all evaluations are of one function."""
