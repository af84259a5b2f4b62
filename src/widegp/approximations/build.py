"""From dials and rows to a likelihood: orders rows, places anchors, finds neighbours, cuts blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from widegp.anchors import Anchors, choose_anchors
from widegp.approximations.dense import Dense
from widegp.approximations.family import Family
from widegp.approximations.nystrom import Nystrom
from widegp.compute.backend import Backend
from widegp.data.arrays import is_mapped, take
from widegp.engines.base import Engine, Rows
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.kernels.base import Kernel
from widegp.neighbors import conditioning_order, nearest_earlier
from widegp.neighbors.blocks import principal_coordinates, relabelled, storage_order
from widegp.neighbors.metric import embed, unembed
from widegp.neighbors.scan import scan

NAMES = ("exact", "subset", "nystrom", "dtc", "vfe", "fitc", "vecchia", "full-scale")
WITH_NEIGHBORS = ("vecchia", "full-scale")
NEEDS_ROWS = ("subset", "nystrom")
# Rows of a part of the table for each anchor, at least. Of two optima, one smooth and one rough, few anchors
# prefer the smooth one: with 16 rows for each, vfe on Superconductivity ended there, 260 nats too high.
ROWS_PER_ANCHOR = 4
# Rows of a block on an accelerator are a multiple of this.
ALIGNED = 128


@dataclass(frozen=True)
class Dials:
    """Which approximation, and how much of it."""

    name: str
    rank: int
    neighbors: int
    anchors: str
    ordering: str
    block_rows: int | None


@dataclass
class Builder:
    """Builds likelihoods of X (n, I) under changing kernels.

    ``conditioning`` (n,) is the order in which rows condition on each other, ``neighbors`` (n, m) is in it.
    ``order`` (n,) is the order in which the last likelihood built holds its rows: the target must be given
    to it as y[order]. Rows near each other are stored near each other, so that the neighbours of
    successive rows are still in cache. Anchors and neighbours suit the kernel passed to `build`; anchors are
    spread by distance in ``metric``, that of the inputs or that of the kernel. ``block`` is the number of
    rows of a block where programs compiled for another builder's are to serve again. Where X is a
    memory-mapped file, whatever has its length is one too.
    """

    X: np.ndarray
    dials: Dials
    backend: Backend
    seed: int
    engine: Engine = field(default_factory=LocalEngine)
    metric: str = "inputs"
    block: int | None = None
    conditioning: np.ndarray = field(init=False)
    order: np.ndarray = field(init=False)
    Z: np.ndarray = field(init=False)
    neighbors: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        if self.dials.name in WITH_NEIGHBORS:
            rng = np.random.default_rng(self.seed)
            self.conditioning = conditioning_order(self.X, self.dials.ordering, rng)
        else:
            self.conditioning = np.arange(len(self.X))
        if self.dials.name in ("dtc", "vfe"):
            # Anchors are all there is, and rows far out should take no more of them than others.
            self.metric = "kernel"
        self.order = self.conditioning
        self.Z = self.X[:0]
        self.neighbors = np.zeros((len(self.X), 0), np.int32)

    def build(self, kernel: Kernel) -> Any:
        """A likelihood whose anchors and neighbours suit ``kernel``."""
        name = self.dials.name
        if name == "exact":
            return Dense(self.X, self.backend)
        if name in NEEDS_ROWS:
            return self._on_rows(kernel)
        if name != "vecchia":
            self.Z = self._anchors(kernel).points
        if name in WITH_NEIGHBORS:
            points = self._points(kernel)
            self.neighbors = nearest_earlier(points, min(self.dials.neighbors, len(points) - 1))
            # In a file the points would be read once for each halving.
            space = principal_coordinates(points) if is_mapped(points) else points
            near = storage_order(space, self.block_rows())
            self.order = self.conditioning[near]
            rows, neighbors = take(self.X, self.order), relabelled(self.neighbors, near)
        else:
            rows, neighbors = self.X, self.neighbors
        return Family(name, self._placed(rows, neighbors), self.Z, self.backend, self.engine)

    def changed(self, kernel: Kernel) -> float:
        """Share of neighbours that a search under ``kernel`` would replace, on a sample of rows."""
        m = self.neighbors.shape[1]
        late = np.arange(m + 1, len(self.X))
        if m == 0 or len(late) == 0:
            return 0.0
        sample = late[:: max(1, len(late) // 200)]
        points = self._points(kernel)
        near = scan(points, points[sample], np.zeros_like(sample), sample, m)
        kept = sum(
            len(np.intersect1d(new, old)) for new, old in zip(near, self.neighbors[sample], strict=True)
        )
        return 1.0 - kept / (m * len(sample))

    def subset(self, rows: np.ndarray) -> Builder:
        """The same for some of the rows (b,), with an anchor for every few of them at most: more would know
        the rows by heart, and a likelihood of them says little.
        """
        block = self.block_rows() if self.backend.keeps_shapes else None
        dials = replace(self.dials, rank=min(self.dials.rank, max(1, len(rows) // ROWS_PER_ANCHOR)))
        return replace(self, X=take(self.X, rows), dials=dials, block=block)

    def block_rows(self) -> int:
        """Rows whose features and cotangents fit the backend's ``block_bytes`` and leave every lane of the
        engine some, or what the user asked for.
        """
        if self.dials.block_rows is not None or self.block is not None:
            return int(self.dials.block_rows or self.block or 0)
        width = self.dials.rank + self.X.shape[1]
        if self.backend.pads:
            width *= 1 + self.dials.neighbors * (self.dials.name in WITH_NEIGHBORS)
        share = -(-len(self.X) // self.engine.lanes)
        most = max(256, min(share, self.backend.block_rows, self.backend.block_bytes // (32 * width)))
        if not self.backend.keeps_shapes:
            return int(most)
        # Of equal blocks the last is not mostly padding; an accelerator multiplies multiples of 128 faster.
        return -(-share // (-(-share // most) * ALIGNED)) * ALIGNED

    def _points(self, kernel: Kernel) -> np.ndarray:
        """The rows in the order of conditioning, in the space where near is correlated: (n, I + 1)."""
        return take(self.X, self.conditioning, partial(embed, kernel), self.X.shape[1] + 1)

    def _placed(self, rows: np.ndarray, neighbors: np.ndarray) -> Rows:
        return self.engine.place(
            BlockedRows.cut(rows, np.zeros(len(rows)), neighbors, self.block_rows(), self.backend.pads)
        )

    def in_other_metric(self, likelihood: Family, kernel: Kernel) -> Family | None:
        """The same likelihood with anchors spread in the other metric, where anchors hang on one.

        Beside neighbours, which carry what is near, either metric may give the better likelihood: anchors
        spread over the inputs did on Superconductivity, over the kernel's on YearPredictionMSD.
        """
        by_distance = self.dials.anchors in ("kmeans", "kmeans++")
        if self.dials.name not in ("fitc", "full-scale") or not by_distance or self.dials.rank >= len(self.X):
            return None
        self.metric = {"inputs": "kernel", "kernel": "inputs"}[self.metric]
        self.Z = self._anchors(kernel).points
        return replace(likelihood, Z=self.Z)

    def _anchors(self, kernel: Kernel) -> Anchors:
        """Anchors by distance in the metric; the paper's approximations need rows, and get its rule."""
        dials, rng = self.dials, np.random.default_rng(self.seed)
        if dials.name in NEEDS_ROWS or dials.anchors == "greedy":
            return choose_anchors(
                self.X, dials.rank, dials.anchors, rng, kernel, kernel.diag, must_be_rows=True
            )
        if self.metric == "kernel":
            chosen = choose_anchors(self.X, dials.rank, dials.anchors, rng, metric=partial(embed, kernel))
            points = unembed(kernel, chosen.points) if chosen.rows is None else self.X[chosen.rows]
            return Anchors(points, chosen.rows)
        weights = np.sqrt(np.asarray(kernel.sigma_u2, float))
        # A weight of zero could not be undone; inputs below a thousandth are as good as ignored.
        weights = np.maximum(weights / weights.max(), 1e-3)
        chosen = choose_anchors(self.X, dials.rank, dials.anchors, rng, metric=lambda X: X * weights)
        return Anchors(chosen.points / weights, chosen.rows)

    def _on_rows(self, kernel: Kernel) -> Any:
        kept = np.asarray(self._anchors(kernel).rows)
        rest = np.setdiff1d(np.arange(len(self.X)), kept)
        if self.dials.name == "subset":
            return Dense(self.X[kept], self.backend, kept)
        if len(rest) == 0:
            return Dense(self.X[kept], self.backend, kept)
        blocks = self._placed(take(self.X, rest), self.neighbors[rest])
        return Nystrom(blocks, kept, rest, self.X[kept], self.backend, self.engine)
