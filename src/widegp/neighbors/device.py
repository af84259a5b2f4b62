"""Nearest rows and cluster centres on an accelerator: all distances by matrix products, nothing indexed.

    |x - x'|^2 = |x|^2 + |x'|^2 - 2 x.x'

An accelerator makes the n^2 products of half a million rows in a second or two; what would take long is to
sort them. So the reference rows are dealt into buckets, row j into bucket j mod b. The nearest of each bucket
are the candidates, and the best of these, their distances made again without cancellation, are the answer. Of
the true k nearest a share of about k / (2 b) hides behind a nearer one in the same bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BUCKETS = 8_192
# Bytes of distances alive at once.
WORK_BYTES = 2**31
LLOYD_STEPS = 10


def has_accelerator() -> bool:
    return jax.default_backend() != "cpu"


def nearest_on_device(
    reference: np.ndarray, queries: np.ndarray, limits: np.ndarray, count: int
) -> np.ndarray:
    """The ``count`` rows j < limits[q] of ``reference`` (n, I) nearest to each of ``queries`` (p, I).

    Distances are float32's. Returns (p, count) int32, nearest first, -1 where there are fewer.
    """
    n, found = len(reference), np.empty((len(queries), count), np.int32)
    if count == 0 or len(queries) == 0:
        return found
    width = -(-n // BUCKETS)
    buckets = min(BUCKETS, n)
    # Bucket j mod b: row j stands at place [j // b, j mod b] of a (width, b) grid.
    padded = np.zeros((width * buckets, reference.shape[1]), np.float32)
    padded[:n] = reference
    table = jnp.asarray(padded)
    size = int(min(len(queries), max(64, WORK_BYTES // (8 * len(padded)))))
    for start in range(0, len(queries), size):
        rows = np.minimum(np.arange(start, start + size), len(queries) - 1)
        near = _program(_nearest, buckets=buckets, count=min(count, buckets))(
            table, jnp.asarray(queries[rows], jnp.float32), jnp.asarray(np.minimum(limits[rows], n))
        )
        stop = min(start + size, len(queries))
        found[start:stop] = -1
        found[start:stop, : near.shape[1]] = np.asarray(near)[: stop - start]
    return found


@lru_cache
def _program(fn: Callable[..., Any], **fixed: int) -> Callable[..., Any]:
    """``fn`` compiled without trying out every way to multiply, which takes seconds for each shape."""
    quick = {"xla_gpu_autotune_level": 0} if has_accelerator() else None
    return jax.jit(partial(fn, **fixed), compiler_options=quick)


def _nearest(
    table: jax.Array, queries: jax.Array, limits: jax.Array, *, buckets: int, count: int
) -> jax.Array:
    products = jnp.matmul(queries, table.T, precision="highest")
    distance = jnp.sum(table * table, axis=1) - 2 * products
    allowed = jnp.arange(len(table))[None, :] < limits[:, None]
    distance = jnp.where(allowed, distance, jnp.inf).reshape(len(queries), -1, buckets)
    best, place = jnp.min(distance, axis=1), jnp.argmin(distance, axis=1)
    _, bucket = jax.lax.top_k(-best, min(2 * count, buckets))
    rows = jnp.take_along_axis(place, bucket, axis=1) * buckets + bucket
    exact = jnp.sum((table[rows] - queries[:, None, :]) ** 2, axis=-1)
    exact = jnp.where(rows < limits[:, None], exact, jnp.inf)
    # Ties go to the smaller row, as everywhere.
    exact, rows = jax.lax.sort((exact, rows), dimension=1, num_keys=2)
    return jnp.where(jnp.isfinite(exact), rows, -1)[:, :count]


def centroids_on_device(sample: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Centres (r, I) after a few of Lloyd's steps from sample[seeds]; an empty cluster keeps its centre."""
    rows, centres = jnp.asarray(sample, jnp.float32), jnp.asarray(sample[seeds], jnp.float32)
    size = max(1, WORK_BYTES // (8 * len(seeds)))
    for _ in range(LLOYD_STEPS):
        sums, counts = jnp.zeros_like(centres), jnp.zeros(len(centres), jnp.float32)
        for start in range(0, len(rows), size):
            part_sums, part_counts = _program(_assigned)(rows[start : start + size], centres)
            sums, counts = sums + part_sums, counts + part_counts
        centres = jnp.where(counts[:, None] > 0, sums / jnp.maximum(counts, 1)[:, None], centres)
    return np.asarray(centres, np.float64)


def _assigned(rows: jax.Array, centres: jax.Array) -> tuple[jax.Array, jax.Array]:
    distance = jnp.sum(centres * centres, axis=1) - 2 * jnp.matmul(rows, centres.T, precision="highest")
    nearest = jnp.argmin(distance, axis=1)
    sums = jax.ops.segment_sum(rows, nearest, num_segments=len(centres))
    return sums, jax.ops.segment_sum(jnp.ones(len(rows), rows.dtype), nearest, num_segments=len(centres))
