"""The cell of each row, found on a device by products of matrices in fixed shapes.

    |x - p|^2 / 2 - |x|^2 / 2 = |p|^2 / 2 - x.p

`Cells.holding` on the host proposes cells and rows by the same products in single precision. Here they are in
double precision, which an accelerator for numerical work makes as quickly, and whoever stands so close to a
border that the host's rounding might decide is left to the host: so both find the same cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from widegp.compute.xla import compiler_options
from widegp.neighbors.cells import PROPOSED, CellTable

Array = Any

# Pairs of a row and a proposed cell that are multiplied with the rows of this cell at once.
TILE = 128
# Products beyond this might overflow on the host, in single precision.
LARGEST = 1e37


class Holder:
    """The cells of a table, on the device."""

    def __init__(self, table: CellTable) -> None:
        self.table: Any = jax.tree.map(jnp.asarray, table)

    @property
    def bytes_per_row(self) -> int:
        """Of work for each row: scores of centres and members, and the row beside each proposed cell."""
        cells, members, width = self.table.members.shape
        return 8 * (2 * cells + 2 * width + PROPOSED * (members + width + 4))

    def __call__(self, points: Array) -> tuple[Array, Array]:
        """The cell of each point (q, E), and whether the host is sure to find the same: (q,) each."""
        return _program()(self.table, points)


@lru_cache
def _program() -> Any:
    return jax.jit(_held, compiler_options=compiler_options())


def _held(table: CellTable, points: Array) -> tuple[Array, Array]:
    x, count = points - table.middle, min(PROPOSED, len(table.centres))
    squares = jnp.sum(table.centres**2, axis=1)
    scores = squares / 2 - jnp.matmul(x, table.centres.T, precision="highest")
    proposed, best = _smallest(scores, count + 1)
    nearest = _nearest_members(table, x, proposed[:, :count])
    chosen, two = _smallest(nearest, 2)
    cell = jnp.take_along_axis(proposed, chosen[:, :1], axis=1)[:, 0]
    size = jnp.sqrt(jnp.sum(x * x, axis=1))
    farthest = jnp.sqrt(jnp.max(jnp.where(jnp.isfinite(table.halves), 2 * table.halves, 0.0)))
    # Whatever is not a number makes a comparison fail, and the row not sure.
    whole = size + farthest + jnp.sqrt(jnp.sum(table.middle**2))
    sure = best[:, count] - best[:, count - 1] > _rounding(x, size, jnp.sqrt(jnp.max(squares)), whole)
    sure &= two[:, 1] - two[:, 0] > _rounding(x, size, farthest, whole)
    return cell, sure & (whole**2 < LARGEST)


def _rounding(x: Array, size: Array, largest: Array, whole: Array) -> Array:
    """2 (E + 4) (u (|x||p| + |p|^2 / 2) + v w^2 + t): how far the host's rounding can move two scores apart.

    u = 2^-24: one rounding of each entry of x and p, E of a sum of products, one of the difference. v = 2^-52
    for embeddings and for the distances that choose, of numbers up to ``whole`` = w; t is the least number
    that single precision has all digits of.
    """
    single, double = np.finfo(np.float32), np.finfo(np.float64)
    scores = single.eps / 2 * (size * largest + largest**2 / 2)
    return 2 * (x.shape[1] + 4) * (scores + double.eps * whole**2 + float(single.tiny))


def _smallest(scores: Array, count: int) -> tuple[Array, Array]:
    """Places and values (q, count) of the smallest scores of each row, infinite where there are no more.

    By so many passes over the scores, not by a sort of each row.
    """
    places, values, columns = [], [], jnp.arange(scores.shape[1])
    for _ in range(count):
        place = jnp.argmin(scores, axis=1)[:, None]
        places.append(place)
        values.append(jnp.take_along_axis(scores, place, axis=1))
        scores = jnp.where(columns == place, jnp.inf, scores)
    return jnp.concatenate(places, axis=1), jnp.concatenate(values, axis=1)


def _nearest_members(table: CellTable, x: Array, cells: Array) -> Array:
    """min_j |p_j|^2 / 2 - x.p_j over the rows p_j of each of the cells (q, k) of x (q, E): (q, k).

    The q k pairs are put in order by cell and cut into tiles, none of which has pairs of two cells: no more
    than q k / TILE + C of them, whatever the cells are.
    """
    pairs, n_cells = cells.size, len(table.centres)
    keys = cells.ravel().astype(np.int32)
    ordered, order = jax.lax.sort((keys, jnp.arange(pairs, dtype=np.int32)), num_keys=1)
    edges = _places(ordered, jnp.arange(n_cells + 1, dtype=np.int32), "left")
    first, counts = edges[:-1], jnp.diff(edges)
    tiles = -(-counts // TILE)
    ends = jnp.cumsum(tiles)
    tile = jnp.arange(pairs // TILE + min(n_cells, pairs))
    own = jnp.minimum(_places(ends, tile, "right"), n_cells - 1)
    place = (TILE * (tile - (ends - tiles)[own]))[:, None] + jnp.arange(TILE)
    real = place < counts[own][:, None]
    pair = order[jnp.where(real, first[own][:, None] + place, 0)]
    products = jnp.einsum("tbe,tme->tbm", x[pair // cells.shape[1]], table.members[own], precision="highest")
    found = jnp.min(table.halves[own][:, None, :] - products, axis=2)
    # What is padding goes nowhere.
    filled = jnp.full(pairs, jnp.inf).at[jnp.where(real, pair, pairs)].set(found, mode="drop")
    return filled.reshape(cells.shape)


def _places(ordered: Array, numbers: Array, side: str) -> Array:
    """Where numbers belong, by steps that are written out and may become one program."""
    return jnp.searchsorted(ordered, numbers, side=side, method="scan_unrolled")


class SentRows:
    """Rows of a table X (q, I) in a buffer of ``room`` rows on the device, sent in runs of one shape."""

    def __init__(self, X: np.ndarray, room: int, run: int) -> None:
        self.X, self.run = X, run
        self.buffer = jnp.zeros((room, X.shape[1]))

    def runs(self) -> Iterator[Array]:
        """The rows (run, I) of each run on the device, the last with zeros after them.

        Nothing waits for a copy: a run is sent while the one before it is worked on.
        """
        for start in range(0, len(self.X), self.run):
            rows = jax.device_put(_whole(self.X[start : start + self.run], self.run))
            self.buffer = _laid(self.buffer, rows, start)
            yield rows

    def taken(self, rows: np.ndarray) -> Array:
        """The rows of these indices (k, b), once all are sent: (k, b, I)."""
        return _taken(self.buffer, rows.astype(np.int32))


def _whole(rows: np.ndarray, size: int) -> np.ndarray:
    """The rows, and as many of zeros as ``size`` has room for."""
    if len(rows) == size:
        return np.ascontiguousarray(rows, np.float64)
    out = np.zeros((size, rows.shape[1]))
    out[: len(rows)] = rows
    return out


@partial(jax.jit, donate_argnums=0)
def _laid(buffer: Array, rows: Array, start: Any) -> Array:
    return jax.lax.dynamic_update_slice(buffer, rows, (start, 0))


@jax.jit
def _taken(buffer: Array, rows: Array) -> Array:
    return buffer[rows]
