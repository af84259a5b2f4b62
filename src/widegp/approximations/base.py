"""What an approximation is: which points and rows it conditions on, its likelihood, and what that costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from widegp.approximations.build import Builder
    from widegp.approximations.evaluation import GaussianLikelihood
    from widegp.approximations.layout import Layout
    from widegp.compute.backend import Backend
    from widegp.engines.blocks import BlockedRows

# In multiply-adds of a large product: an entry of the kernel with its arc functions; the same in the loops
# over neighbours, where factors and bookkeeping of small matrices come on top; a number moved there.
ENTRY, PAIR_ENTRY, MOVED = 100, 300, 20


class Work(NamedTuple):
    """Units of work of one objective with its gradient.

    anchors, neighbors : six multiply-adds, so that anchors take about n r^2 units.
    dense : 5/3 multiply-adds, so that an exact evaluation takes about n^3 units.
    """

    anchors: float = 0.0
    neighbors: float = 0.0
    dense: float = 0.0


class Shape(NamedTuple):
    """n rows, I inputs, r anchors and m neighbours, as an approximation really has them."""

    n: int
    i: int
    r: int
    m: int


class Grown(NamedTuple):
    """A posterior given more rows, and how these were predicted, one after the other.

    t_i = (y_i - E y_i) / sd_i, moments given all rows before the i-th: independent and standard normal where
    the model is right.    t, log_sd : (q,).
    """

    posterior: Any
    t: np.ndarray
    log_sd: np.ndarray


class Expansion(NamedTuple):
    """E f(x) = sum_p w_p K(x, z_p) without neighbours: points z (p, I), weights w (p,)."""

    points: np.ndarray
    weights: np.ndarray


class Features(NamedTuple):
    """phi(x) = W'k(Z, x),  E f = phi'beta,  Var f = max(K(x, x) - |phi|^2, 0) + |T phi|^2,  no neighbours.

    Z (r, I), W (r, r), beta (r,).    T (r, r), or None: without the second term.
    residual : whether there is the first.
    """

    Z: np.ndarray
    W: np.ndarray
    beta: np.ndarray
    T: np.ndarray | None = None
    residual: bool = True


@dataclass(frozen=True)
class Approximation(ABC):
    """A member of the registry (`widegp.approximations.registry`).

    name : by which users ask for it.    summary : a few words for help texts.
    caveat : a sentence that every model fitted by it carries among its notes, or none.
    anchors : "none", "points" (anywhere), or "rows" (of the table).
    metrics : in which anchors may be spread by distance, "inputs" or "kernel"; of two the likelier is kept.
    neighbors : whether rows condition on their nearest earlier rows.
    coarse : whether parts of a table are fitted before the whole, which needs sums over rows.
    """

    name: str
    summary: str
    anchors: str = "none"
    metrics: tuple[str, ...] = ("inputs",)
    neighbors: bool = False
    coarse: bool = True
    caveat: str = ""

    @property
    def exact(self) -> bool:
        """Whether the likelihood is that of the process itself, of all rows in one matrix."""
        return False

    def shape(self, n_rows: int, n_inputs: int, rank: int, neighbors: int) -> Shape:
        """The sizes under the dials as asked for."""
        r = 0 if self.anchors == "none" else min(rank, n_rows)
        return Shape(n_rows, n_inputs, r, min(neighbors, n_rows - 1) if self.neighbors else 0)

    @abstractmethod
    def likelihood(self, builder: Builder, layout: Layout) -> GaussianLikelihood:
        """-log p(y | X, theta) of the builder's rows under this layout."""

    @abstractmethod
    def grown(self, posterior: Any, backend: Backend, new: BlockedRows) -> Grown:
        """``posterior`` given further rows at the same parameters and anchors: those of ``new``, which come
        last in the order of conditioning, with the earlier ones that they condition on.
        """

    @abstractmethod
    def work(self, shape: Shape, keep_bytes: int) -> Work:
        """Of one evaluation, where features of ``keep_bytes`` stay in memory between its passes."""

    @abstractmethod
    def numbers(self, shape: Shape, block: int, keep_bytes: int) -> float:
        """Numbers alive at once in an evaluation over blocks of so many rows, halo included."""


def dense_work(n_rows: int, n_inputs: int) -> float:
    """Units of factor, inverse and kernel matrix of an exact evaluation: 5 n^3/3 + 2 n^2 I, 2 n^2 entries."""
    return n_rows**3 + 6 * n_rows**2 * (n_inputs + ENTRY) / 5


def anchor_work(shape: Shape, by_rank: int, cubic: int, passes: int) -> float:
    """Units of by_rank n r^2 + cubic r^3 and ``passes`` over n r entries of the kernel."""
    n, i, r, _ = shape
    return (n * r * (by_rank * r + passes * (i + ENTRY)) + cubic * r**3) / 6


def neighbor_work(shape: Shape) -> float:
    """Units of n M^2 (2 r + 2 I + M/3), 3 n M^2/2 entries and 4 n M r numbers moved, M = m + 1."""
    n, i, r, m = shape
    block = m + 1
    products = 2 * r + 2 * i + block / 3
    return n * (block**2 * (products + 1.5 * PAIR_ENTRY) + 4 * MOVED * block * r) / 6
