"""The training rows that predictions condition on: new rows of one cell share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from widegp.compute.backend import Backend
from widegp.data.arrays import appended, take
from widegp.engines.blocks import BlockedRows, Cut
from widegp.kernels.base import Kernel
from widegp.neighbors import Cells, NeighborIndex
from widegp.neighbors.cells import ROWS_PER_MEMBER, SHARED
from widegp.registry import saveable
from widegp.threads import in_threads

# Pairs of new rows and centres that a thread takes at a time.
HOLDING_PAIRS = 2**20
# The index is rebuilt once added rows exceed this share of it.
MOST_LATER = 0.1
# Rows of the table taken at a time where a joint covariance is made.
JOINT_ROWS = 1024


class Group(NamedTuple):
    """New rows (b,), by their place, that condition on the same training rows near (m,); ``cell`` is the
    number of their cell, or None where the row stands alone.
    """

    cell: int | None
    rows: np.ndarray
    near: np.ndarray


class Explained(NamedTuple):
    """What training rows explain of new rows: A Phi_N (q, r), A (y_N - Phi_N beta) (q,), and what that adds
    to the covariance of the residuals, A (R_NN + noise) A' - A R_Nq - R_qN A' (q, q).
    """

    features: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


@saveable
@dataclass
class TrainingRows:
    """The rows that predictions condition on, X (n, I), y (n,) and spread (n,), with an index built once.

    With ``cells`` new rows that lie together share one set of twice ``count`` rows, those nearest to one or
    another training row among them. Without, each new row has the ``count`` rows nearest to itself. ``laid``
    is the number of rows, at the beginning, that the index and the cells are fitted to where more have come
    since; None for all.
    """

    X: np.ndarray
    y: np.ndarray
    kernel: Kernel
    count: int
    spread: np.ndarray | None = None
    cells: bool = False
    laid: int | None = None
    _index: NeighborIndex | None = field(default=None, repr=False)
    _cells: Cells | None = field(default=None, repr=False)

    @property
    def set_size(self) -> int:
        """m, rows that a new row conditions on."""
        return min(len(self.X), SHARED * self.count if self.cells else self.count)

    @property
    def index(self) -> NeighborIndex:
        """Finds the nearest of `points`; built once."""
        if self._index is None:
            self._index = NeighborIndex(self.points, laid=self.laid)
        return self._index

    @property
    def points(self) -> np.ndarray:
        """The rows where the kernel puts them, (n, E)."""
        if self._index is not None:
            return self._index.reference
        width = self.kernel.embedding(self.X[:1]).shape[1]
        return take(self.X, fn=self.kernel.embedding, width=width)

    def grown(self, X: np.ndarray, y: np.ndarray, spread: np.ndarray | None) -> TrainingRows:
        """The same with further rows X (q, I), y (q,) and spread (q,) at the end.

        Index and cells stay fitted to the rows that they were, and find the new ones too, until these are
        more than a share of all.
        """
        n, laid = len(self.X), self.laid or len(self.X)
        spreads = None
        if self.spread is not None or spread is not None:
            parts = ((self.spread, n), (spread, len(X)))
            spreads = np.concatenate([np.ones(k) if part is None else part for part, k in parts])
        rows = replace(
            self, X=appended(self.X, X), y=np.append(self.y, y), spread=spreads, laid=laid, _index=None,
            _cells=None,
        )  # fmt: skip
        if n + len(X) > (1 + MOST_LATER) * laid:
            return replace(rows, laid=None)
        if self._index is not None:
            rows._index = self._index.grown(self.kernel.embedding(X))
        if self._cells is not None and self.set_size == rows.set_size:
            rows._cells = self._cells.with_later(rows.points)
        return rows

    def searched_exactly(self) -> TrainingRows:
        """The same, with neighbours found by comparing all rows instead of by an index."""
        return replace(self, _index=NeighborIndex(self.points, "exact"))

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """The ``count`` training rows that each row of X correlates with most, (q, count)."""
        return self.index.query(self.kernel.embedding(X), min(self.count, len(self.X)))

    def groups(self, X: np.ndarray) -> list[Group]:
        """The rows of X (q, I), parted by the training rows that they condition on."""
        if not self.cells:
            return [Group(None, np.array([i]), own) for i, own in enumerate(self.nearest(X))]
        return self.parted_by(self.owners(X))

    def owners(self, X: np.ndarray) -> np.ndarray:
        """The cell of each row of X (q, I), (q,)."""
        parted = self.parted
        size = max(1, HOLDING_PAIRS // len(parted.centres))
        runs = [slice(start, start + size) for start in range(0, len(X), size)]
        held = in_threads(lambda run: parted.holding(self.kernel.embedding(X[run])), runs)
        return np.concatenate([np.empty(0, np.int64), *held])

    def parted_by(self, owner: np.ndarray) -> list[Group]:
        """The groups of rows whose cells are ``owner`` (q,)."""
        cells = len(self.parted.centres)
        # Small integers are put in order by their digits, in a fifth of the time.
        order = np.argsort(owner.astype(np.uint16 if cells <= 2**16 else np.int64), kind="stable")
        counts = np.bincount(owner, minlength=cells)
        used = np.flatnonzero(counts)
        parts = np.split(order, np.cumsum(counts[used]))[:-1]
        return [Group(*made) for made in zip(used.tolist(), parts, self.parted.around(used), strict=True)]

    @property
    def parted(self) -> Cells:
        """The cells of the training rows, made once."""
        if self._cells is None:
            whole = self.set_size == len(self.X)
            rows = len(self.X) if whole else max(1, self.set_size // ROWS_PER_MEMBER)
            self._cells = Cells.of(self.points, rows, self.set_size, self.laid)
        return self._cells

    def check(self, e: Any) -> None:
        """Whether what was made of training rows is finite."""
        if not np.isfinite(np.asarray(e)).all():
            raise ArithmeticError(
                f"The covariance of the {self.set_size} training rows that predictions condition on has"
                " no Cholesky factor; use fewer (predict_neighbors), or remove duplicate rows."
            )

    def taken(self, near: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, y and noise variances of these rows."""
        spread = np.ones(len(near)) if self.spread is None else self.spread[near]
        return np.ascontiguousarray(self.X[near]), self.y[near], noise * spread

    def blocks(self, X: np.ndarray, size: int, pad: bool) -> BlockedRows:
        """New rows X (q, I), each beside the training rows nearest to it; new targets are 0."""
        near = self.nearest(X)
        halo, local = np.unique(near, return_inverse=True)
        neighbors = (local.reshape(near.shape) + len(X)).astype(np.int32)
        return self._beside(X, halo, neighbors, size, pad).restricted(np.arange(len(X)), size)

    def cell_blocks(
        self, X: np.ndarray, parts: Sequence[tuple[np.ndarray, np.ndarray]], pad: bool
    ) -> BlockedRows:
        """A block for each (new rows, training rows near) of ``parts``, the training rows in its halo."""
        halo, local = np.unique(np.concatenate([near for _, near in parts]), return_inverse=True)
        places = np.split(local + len(X), len(parts))
        cuts = tuple(
            Cut(rows, place, np.zeros((len(rows), 0), np.int32))
            for (rows, _), place in zip(parts, places, strict=True)
        )
        size = 1 << (max(len(rows) for rows, _ in parts) - 1).bit_length()
        return replace(self._beside(X, halo, np.zeros((len(X), 0), np.int32), size, pad), cuts=cuts)

    def _beside(
        self, X: np.ndarray, halo: np.ndarray, neighbors: np.ndarray, size: int, pad: bool
    ) -> BlockedRows:
        """New rows X (q, I) of target 0, followed by the training rows ``halo``."""
        X_halo, y_halo, spread_halo = self.taken(halo, 1.0)
        y, spread = np.append(np.zeros(len(X)), y_halo), np.append(np.ones(len(X)), spread_halo)
        return BlockedRows(np.concatenate([X, X_halo]), y, spread, neighbors, size, pad)

    def explain(
        self, factor: Callable[[Group], Any], backend: Backend, posterior: Any, X: np.ndarray, phi: np.ndarray
    ) -> Explained:
        """What the training rows around new rows X (q, I) with features phi (q, r) explain of them."""
        groups = self.groups(X)
        halo, local = np.unique(np.concatenate([group.near for group in groups]), return_inverse=True)
        points, y, noise = self.taken(halo, posterior.noise)
        phi_halo = np.asarray(backend.cross(self.kernel, points, posterior.Z) @ posterior.W)
        crossed = np.asarray(backend.cross(self.kernel, X, points)) - phi @ phi_halo.T
        A = scipy.sparse.lil_array((len(X), len(halo)))
        for group, own in zip(groups, np.split(local, len(groups)), strict=True):
            V = np.asarray(factor(group))
            A[np.ix_(group.rows, own)] = (V @ crossed[np.ix_(group.rows, own)].T).T @ V
        A = A.tocsr()
        spread = np.zeros((len(X), len(X)))
        for start in range(0, len(halo), JOINT_ROWS):
            part = slice(start, start + JOINT_ROWS)
            K = np.asarray(backend.cross(self.kernel, points, points[part]))
            spread += A[:, part] @ (A @ (K - phi_halo @ phi_halo[part].T)).T
        covariance = spread + A @ (noise[:, None] * A.T.toarray()) - A @ crossed.T - (A @ crossed.T).T
        return Explained(A @ phi_halo, A @ (y - phi_halo @ posterior.beta), covariance)
