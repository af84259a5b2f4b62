"""Blocks of rows that lie close together, each with the halo of rows it conditions on."""

from __future__ import annotations

import numpy as np

from widegp.data.arrays import chunks, take
from widegp.neighbors.scan import as_points

_DIRECTION_ROWS = 8_192


def locality_blocks(
    neighbors: np.ndarray, points: np.ndarray, block_rows: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Blocks B_1, B_2, ... that part the rows, and halos H_b = (union of N(i), i in B_b) minus B_b.

    The rows are halved again and again along the direction in which they vary most, so that a block is a
    compact piece of the table and its rows share their neighbours.

    Parameters
    ----------
    neighbors : N(i), (n, m) integers, -1 for none.
    points : (n, I), the space in which the neighbours are near.
    block_rows : |B|; every block has exactly this many rows, except one that takes what is left.

    Returns
    -------
    [(B_1, H_1), ...], each int64 in increasing order.
    """
    if block_rows < 1:
        raise ValueError(f"A block needs at least one row; got block_rows={block_rows}.")
    points = as_points(points)
    if len(neighbors) != len(points):
        raise ValueError(f"neighbors has {len(neighbors)} rows and points {len(points)}; they must agree.")
    pieces = bisect(points, np.arange(len(points)), block_rows) if len(points) else []
    return [(rows, halo_of(neighbors, rows)) for rows in pieces]


def storage_order(points: np.ndarray, block_rows: int, run: int = 256) -> np.ndarray:
    """An order of the rows in which each ``block_rows`` of them, and each ``run`` within, lie close together.

    Parameters
    ----------
    points : (n, I), the space in which the neighbours are near.
    block_rows : rows per block, as `locality_blocks` cuts them.

    Returns
    -------
    (n,) int64. The neighbours of successive rows are then still in cache, and a block is a run of rows.
    """
    points = as_points(points)
    blocks = bisect(points, np.arange(len(points)), block_rows) if len(points) else []
    runs = [piece for block in blocks for piece in bisect(points, block, run)]
    return np.concatenate([np.empty(0, np.int64), *runs])


def principal_coordinates(points: np.ndarray, count: int = 8) -> np.ndarray:
    """Points (n, I) in their ``count`` leading principal directions, (n, count) float32, in memory.

    Enough to tell which rows lie close together where the points themselves are in a file, which
    halving them again and again would read many times.
    """
    centred = _centred_sample(points)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count]
    out = np.empty((len(points), directions.shape[1]), np.float32)
    for part in chunks(len(points), 8 * points.shape[1]):
        out[part] = points[part] @ directions
    return out


def localise(neighbors: np.ndarray, rows: np.ndarray, halo: np.ndarray) -> np.ndarray:
    """L with [rows, halo][L[i, k]] = neighbors[rows[i], k]; -1 stays -1.

    Parameters
    ----------
    neighbors : (n, m) integers over the whole table, -1 for none.
    rows, halo : one block, as from ``locality_blocks``.

    Returns
    -------
    L, (len(rows), m) int32.
    """
    wanted = np.asarray(neighbors)[rows]
    members = np.concatenate([rows, halo])
    if wanted.size == 0 or members.size == 0:
        return np.full(wanted.shape, -1, np.int32)
    order = np.argsort(members, kind="stable")
    place = np.minimum(np.searchsorted(members[order], wanted), len(members) - 1)
    local = order[place].astype(np.int32)
    missing = (members[local] != wanted) & (wanted >= 0)
    if missing.any():
        raise ValueError(
            f"Row {wanted[missing][0]} is conditioned on but is in neither rows nor halo;"
            " pass the halo that locality_blocks gave for these rows."
        )
    local[wanted < 0] = -1
    return local


def relabelled(neighbors: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The same neighbours (n, m) for rows stored in another order: row k is row order[k], -1 stays -1."""
    place = np.empty(len(order) + 1, np.int32)
    place[order] = np.arange(len(order))
    place[-1] = -1
    return take(neighbors, order, lambda rows: place[rows], dtype=np.int32)


def halo_of(neighbors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows that ``rows`` condition on beside themselves, int64 in increasing order."""
    union = np.unique(neighbors[rows])
    return np.setdiff1d(union[union >= 0], rows, assume_unique=True).astype(np.int64)


def bisect(points: np.ndarray, rows: np.ndarray, block_rows: int) -> list[np.ndarray]:
    """Halve `rows` at a whole number of blocks, along their principal direction; ties go by row."""
    n_blocks = -(-len(rows) // block_rows)
    if n_blocks <= 1:
        return [np.sort(rows)]
    here = points[rows]
    order = np.argsort(here @ _principal_direction(here), kind="stable")
    cut = n_blocks // 2 * block_rows
    near, far = np.sort(rows[order[:cut]]), np.sort(rows[order[cut:]])
    # Of a large table these are large, and their halves will be made beside them.
    del here, order
    return bisect(points, near, block_rows) + bisect(points, far, block_rows)


def _principal_direction(points: np.ndarray) -> np.ndarray:
    """The unit vector of largest variance, largest entry positive; from evenly spaced rows, for speed."""
    centred = _centred_sample(points)
    if centred.shape[1] == 0:
        return np.empty(0)
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    return direction * np.sign(direction[np.argmax(np.abs(direction))])


def _centred_sample(points: np.ndarray) -> np.ndarray:
    sample = points[:: max(1, len(points) // _DIRECTION_ROWS)].astype(np.float64)
    return sample - sample.mean(axis=0)
