"""From dials and rows to a layout and a likelihood: order, anchors, neighbours, blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from widegp.anchors import Anchors, Wanted, choose_anchors
from widegp.approximations.base import Approximation
from widegp.approximations.evaluation import GaussianLikelihood
from widegp.approximations.layout import Dials, Layout
from widegp.approximations.registry import approximation
from widegp.compute.backend import Backend
from widegp.data.arrays import is_mapped, take
from widegp.engines.base import Engine, Rows
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.kernels.base import Kernel
from widegp.neighbors import conditioning_order, nearest_earlier
from widegp.neighbors.blocks import principal_coordinates, relabelled, storage_order
from widegp.neighbors.scan import scan

# Rows of a part of the table for each anchor, at least. Of two optima, one smooth and one rough, few anchors
# prefer the smooth one: with 16 rows for each, vfe on Superconductivity ended there, 260 nats too high.
ROWS_PER_ANCHOR = 4
# Rows of a block on an accelerator are a multiple of this.
ALIGNED = 128
# Bytes of work for each number of a row's features and inputs in a block.
BYTES_PER_NUMBER = 32
# A block needs the features of all that its rows condition on. Of 100,000 normal rows with 20 inputs the 30
# neighbours of 38,000 are 48,000 others: three blocks make each feature 2.5 times. So on a CPU the features
# and cotangents of a table are one block as long as they fit into this, and those of a block and its halo do
# otherwise.
HALO_BYTES = 2**30


@dataclass(frozen=True)
class Builder:
    """Builds layouts and likelihoods of X (n, I) under changing kernels.

    ``block`` is the number of rows of a block where programs compiled for another builder's are to serve
    again. Where X is a memory-mapped file, whatever has its length is one too.
    """

    X: np.ndarray
    dials: Dials
    backend: Backend
    seed: int
    engine: Engine = field(default_factory=LocalEngine)
    block: int | None = None

    @property
    def approximation(self) -> Approximation:
        return approximation(self.dials.name)

    @cached_property
    def conditioning(self) -> np.ndarray:
        """(n,) rows in the order in which they condition on each other."""
        if not self.approximation.neighbors:
            return np.arange(len(self.X))
        return conditioning_order(self.X, self.dials.ordering, np.random.default_rng(self.seed))

    def build(self, kernel: Kernel) -> GaussianLikelihood:
        """A likelihood whose anchors and neighbours suit ``kernel``."""
        return self.likelihood(self.layout(kernel))

    def likelihood(self, layout: Layout) -> GaussianLikelihood:
        """The likelihood of the rows as they are laid out."""
        return self.approximation.likelihood(self, layout)

    def layout(self, kernel: Kernel, metric: str | None = None) -> Layout:
        """Anchors, spread in ``metric`` (by default the approximation's first), neighbours and blocks."""
        member = self.approximation
        metric = metric or member.metrics[0]
        anchors = Anchors(self.X[:0], None)
        if member.anchors != "none":
            anchors = self._anchors(kernel, metric)
        neighbors, order = np.zeros((len(self.X), 0), np.int32), None
        rows, near = self.X, neighbors
        if member.neighbors:
            neighbors, storage = self._neighbors(kernel)
            order = self.conditioning[storage]
            rows, near = take(self.X, order), relabelled(neighbors, storage)
        placed = self.placed(rows, near) if member.coarse else None
        return Layout(anchors, metric, neighbors, order, placed)

    def _neighbors(self, kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours (n, m) of the rows in the order of conditioning, and where to store these rows (n,).

        The points, as large as the table, are gone when this is done.
        """
        points = self._points(kernel)
        neighbors = nearest_earlier(points, min(self.dials.neighbors, len(points) - 1))
        # In a file the points would be read once for each halving.
        space = principal_coordinates(points) if is_mapped(points) else points
        return neighbors, storage_order(space, self.block_rows())

    def placed(self, rows: np.ndarray, neighbors: np.ndarray) -> Rows:
        """Rows cut into blocks and put where the engine makes its sums."""
        pads = self.backend.pads
        most = None if pads or not neighbors.shape[1] else self._together()
        targets = np.zeros(len(rows))
        return self.engine.place(BlockedRows.cut(rows, targets, neighbors, self.block_rows(), pads, most))

    def with_other_anchors(self, layout: Layout, kernel: Kernel) -> Layout | None:
        """The same layout with anchors spread in the other metric, where the approximation allows two."""
        by_distance = self.dials.anchors in ("kmeans", "kmeans++") and self.dials.rank < len(self.X)
        others = [metric for metric in self.approximation.metrics if metric != layout.metric]
        if not by_distance or not others or self.approximation.anchors == "none":
            return None
        return replace(layout, anchors=self._anchors(kernel, others[0]), metric=others[0])

    def changed(self, layout: Layout, kernel: Kernel) -> float:
        """Share of the neighbours that a search under ``kernel`` would replace, on a sample of rows."""
        m = layout.neighbors.shape[1]
        late = np.arange(m + 1, len(self.X))
        if m == 0 or len(late) == 0:
            return 0.0
        sample = late[:: max(1, len(late) // 200)]
        points = self._points(kernel)
        near = scan(points, points[sample], np.zeros_like(sample), sample, m)
        kept: int = sum(
            len(np.intersect1d(new, old)) for new, old in zip(near, layout.neighbors[sample], strict=True)
        )
        return 1.0 - kept / (int(m) * len(sample))

    def subset(self, rows: np.ndarray) -> Builder:
        """The same for some of the rows (b,), with at least ROWS_PER_ANCHOR rows for every anchor: with more
        anchors the likelihood of so few rows would say little.
        """
        block = self.block_rows() if self.backend.keeps_shapes else None
        dials = replace(self.dials, rank=min(self.dials.rank, max(1, len(rows) // ROWS_PER_ANCHOR)))
        return replace(self, X=take(self.X, rows), dials=dials, block=block)

    def block_rows(self) -> int:
        """Rows whose features and cotangents fit the backend's ``block_bytes`` and give every device of the
        engine some, or what the user asked for.
        """
        if self.dials.block_rows is not None or self.block is not None:
            return int(self.dials.block_rows or self.block or 0)
        width: int = self.dials.rank + self.X.shape[1]
        if self.backend.pads:
            width *= 1 + self.dials.neighbors * self.approximation.neighbors
        share = -(-len(self.X) // self.engine.parallel_blocks)
        fitting = self.backend.block_bytes // (BYTES_PER_NUMBER * width)
        if self.approximation.neighbors and not self.backend.pads:
            whole = self._together()
            fitting = whole if len(self.X) <= whole else whole // 2
        most: int = max(256, min(share, self.backend.block_rows, fitting))
        if not self.backend.keeps_shapes:
            return most
        # Of equal blocks the last is not mostly padding; an accelerator multiplies multiples of 128 faster.
        return -(-share // (-(-share // most) * ALIGNED)) * ALIGNED

    def _together(self) -> int:
        """Rows whose features and cotangents fit into HALO_BYTES."""
        return int(max(1, HALO_BYTES // (16 * (self.dials.rank + self.X.shape[1]))))

    def _points(self, kernel: Kernel) -> np.ndarray:
        """The rows in the order of conditioning, in the space where near is correlated: (n, E)."""
        width = kernel.embedding(self.X[:1]).shape[1]
        return take(self.X, self.conditioning, kernel.embedding, width)

    def _anchors(self, kernel: Kernel, metric: str) -> Anchors:
        """Anchors by distance in the metric; the paper's approximations need rows, and get its rule."""
        dials, rng = self.dials, np.random.default_rng(self.seed)
        if self.approximation.anchors == "rows" or dials.anchors == "greedy":
            rows = Wanted(dials.rank, dials.anchors, must_be_rows=True)
            return choose_anchors(self.X, rows, rng, kernel=kernel)
        wanted = Wanted(dials.rank, dials.anchors)
        if metric == "kernel":
            chosen = choose_anchors(self.X, wanted, rng, metric=kernel.embedding)
            if chosen.rows is None:
                return Anchors(kernel.unembedding(chosen.points, self.X.shape[1]), None)
            return Anchors(self.X[chosen.rows], chosen.rows)
        weights = np.sqrt(kernel.input_weights(self.X.shape[1]))
        # A weight of zero could not be undone; inputs below a thousandth are as good as ignored.
        weights = np.maximum(weights / weights.max(), 1e-3)
        chosen = choose_anchors(self.X, wanted, rng, metric=lambda X: X * weights)
        return Anchors(chosen.points / weights, chosen.rows)
