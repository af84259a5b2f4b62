"""Time and recall of the search for nearest earlier rows.

    python benchmarks/neighbors.py
    python benchmarks/neighbors.py --rows 300000 --columns 20 81 --shapes sheet spectrum shapeless

recall = share of found neighbours that are no farther than the true count-th one, over 500 rows.
halo = rows that blocks of 4,096 (``--block-rows``) condition on beside their own, for each row of the table:
one more than this is how often the features of a row are made.
"""

from __future__ import annotations

import argparse
import os
import time

import numba
import numpy as np

from widegp.neighbors import locality_blocks, nearest_earlier

SHAPES = {
    "sheet": "near a curved sheet of ten dimensions",
    "spectrum": "variance of principal component k falls as k^-1.5, as in standardised tables",
    "shapeless": "independent columns, the hardest case for any index",
}


def table(shape: str, n: int, n_columns: int, rng: np.random.Generator) -> np.ndarray:
    """(n, n_columns) float32 rows of one of the shapes above."""
    noise = rng.standard_normal((n, n_columns), dtype=np.float32)
    if shape == "shapeless":
        return noise
    if shape == "spectrum":
        turn = np.linalg.qr(rng.normal(size=(n_columns, n_columns)))[0]
        return noise @ (np.arange(1, n_columns + 1)[:, None] ** -0.75 * turn).astype(np.float32)
    sheet = np.tanh(rng.standard_normal((n, 10), dtype=np.float32))
    return sheet @ rng.standard_normal((10, n_columns), dtype=np.float32) + 0.1 * noise


def recall(points: np.ndarray, found: np.ndarray, size: int = 500) -> float:
    """Share of found neighbours within the true distance of the last, by brute force on `size` rows."""
    count = found.shape[1]
    hits = []
    for i in np.linspace(count, len(points) - 1, size).astype(int):
        gaps = np.square(points[:i] - points[i]).sum(axis=1)
        hits.append(np.mean(gaps[found[i]] <= np.partition(gaps, count - 1)[count - 1] * (1 + 1e-6)))
    return float(np.mean(hits))


def halo_multiple(points: np.ndarray, found: np.ndarray, block_rows: int) -> float:
    """Rows in halos, for each row of the table."""
    return sum(len(halo) for _, halo in locality_blocks(found, points, block_rows)) / len(points)


def main() -> None:
    """Print one line for each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000, 300_000])
    parser.add_argument("--columns", type=int, nargs="+", default=[20, 81])
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["spectrum"])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--block-rows", type=int, default=4_096)
    parser.add_argument("--method", choices=["auto", "exact", "approximate"], default="auto")
    chosen = parser.parse_args()
    nearest_earlier(np.zeros((2_000, 20), np.float32), 1, "approximate")  # So that compiling is not timed.
    threads, load = numba.get_num_threads(), os.getloadavg()[0]
    print(f"{threads} threads, load {load:.1f} before the start, {chosen.count} neighbours, float32")
    print(f"{'rows':>9} {'columns':>7} {'shape':>10} {'wall s':>8} {'cpu s':>8} {'recall':>7} {'halo':>6}")
    for n in chosen.rows:
        for n_columns in chosen.columns:
            for shape in chosen.shapes:
                points = table(shape, n, n_columns, np.random.default_rng(0))
                wall, cpu = time.perf_counter(), time.process_time()
                found = nearest_earlier(points, chosen.count, chosen.method)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                score, halo = recall(points, found), halo_multiple(points, found, chosen.block_rows)
                print(
                    f"{n:>9,} {n_columns:>7} {shape:>10} {wall:>8.1f} {cpu:>8.1f} {score:>7.3f} {halo:>6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
