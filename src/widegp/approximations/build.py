"""From dials and rows to a likelihood: orders rows, places anchors, finds neighbours, cuts blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from widegp.anchors import Anchors, choose_anchors
from widegp.approximations.dense import Dense
from widegp.approximations.family import Family
from widegp.approximations.nystrom import Nystrom
from widegp.compute.backend import Backend
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.kernels.base import Kernel
from widegp.neighbors import conditioning_order, locality_blocks, nearest_earlier
from widegp.neighbors.blocks import relabelled
from widegp.neighbors.metric import embed, unembed

NAMES = ("exact", "subset", "nystrom", "dtc", "vfe", "fitc", "vecchia", "full-scale")
WITH_NEIGHBORS = ("vecchia", "full-scale")
NEEDS_ROWS = ("subset", "nystrom")
BLOCK_BYTES = 256 * 2**20


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
    spread by distance in ``metric``, that of the inputs or that of the kernel.
    """

    X: np.ndarray
    dials: Dials
    backend: Backend
    seed: int
    metric: str = "inputs"
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
        name, rows = self.dials.name, self.X[self.conditioning]
        if name == "exact":
            return Dense(rows, self.backend)
        if name in NEEDS_ROWS:
            return self._on_rows(kernel)
        if name != "vecchia":
            self.Z = self._anchors(kernel).points
        if name in WITH_NEIGHBORS:
            count = min(self.dials.neighbors, len(rows) - 1)
            points = embed(kernel, rows)
            self.neighbors = nearest_earlier(points, count)
            near = np.concatenate([rows for rows, _ in locality_blocks(self.neighbors[:, :0], points, 256)])
            self.order, rows = self.conditioning[near], rows[near]
            neighbors = relabelled(self.neighbors, near)
        else:
            neighbors = self.neighbors
        blocks = BlockedRows.cut(rows, np.zeros(len(rows)), neighbors, self.block_rows(), self.backend.pads)
        return Family(name, blocks, self.Z, self.backend, LocalEngine())

    def changed(self, kernel: Kernel) -> float:
        """Share of neighbours that a search under ``kernel`` would replace, on a sample of rows."""
        rows = self.X[self.conditioning]
        m = self.neighbors.shape[1]
        late = np.arange(len(rows))[m + 1 :]
        if m == 0 or len(late) == 0:
            return 0.0
        sample = late[:: max(1, len(late) // 200)]
        points = embed(kernel, rows)
        kept = 0
        for i in sample:
            near = np.argpartition(((points[:i] - points[i]) ** 2).sum(1), m - 1)[:m]
            kept += len(np.intersect1d(near, self.neighbors[i]))
        return 1.0 - kept / (m * len(sample))

    def block_rows(self) -> int:
        """Rows whose features and cotangents fit BLOCK_BYTES, or what the user asked for."""
        if self.dials.block_rows is not None:
            return self.dials.block_rows
        width = self.dials.rank + self.X.shape[1]
        if self.backend.pads:
            width *= 1 + self.dials.neighbors * (self.dials.name in WITH_NEIGHBORS)
        return int(max(256, BLOCK_BYTES // (32 * width)))

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
            chosen = choose_anchors(embed(kernel, self.X), dials.rank, dials.anchors, rng)
            points = unembed(kernel, chosen.points) if chosen.rows is None else self.X[chosen.rows]
            return Anchors(points, chosen.rows)
        weights = np.sqrt(np.asarray(kernel.sigma_u2, float))
        # A weight of zero could not be undone; inputs below a thousandth are as good as ignored.
        weights = np.maximum(weights / weights.max(), 1e-3)
        chosen = choose_anchors(self.X * weights, dials.rank, dials.anchors, rng)
        return Anchors(chosen.points / weights, chosen.rows)

    def _on_rows(self, kernel: Kernel) -> Any:
        kept = np.asarray(self._anchors(kernel).rows)
        rest = np.setdiff1d(np.arange(len(self.X)), kept)
        if self.dials.name == "subset":
            return Dense(self.X[kept], self.backend, kept)
        if len(rest) == 0:
            return Dense(self.X[kept], self.backend, kept)
        blocks = BlockedRows.cut(
            self.X[rest],
            np.zeros(len(rest)),
            np.zeros((len(rest), 0), np.int32),
            self.block_rows(),
            self.backend.pads,
        )
        return Nystrom(blocks, kept, rest, self.X[kept], self.backend, LocalEngine())
