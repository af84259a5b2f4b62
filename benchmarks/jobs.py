"""Many small fits, each on one core and one line of a CSV file; what is there is not done again."""

from __future__ import annotations

import csv
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd

Key = tuple[Any, ...]


def read(out: Path, columns: Sequence[str]) -> pd.DataFrame:
    """The lines that are there already."""
    return pd.read_csv(out, keep_default_na=False) if out.exists() else pd.DataFrame(columns=list(columns))


def run(
    work: Callable[[Any], dict[str, Any]], jobs: Iterable[Key], out: Path, columns: Sequence[str],
    workers: int,
) -> None:  # fmt: skip
    """Call ``work`` with every job, a named tuple whose fields are the first of ``columns``, and append the
    dictionary that it returns. A job that fails is told of and left out.
    """
    new, jobs = not out.exists(), list(jobs)
    keys = list(columns[: len(jobs[0])]) if jobs else []
    done = set(read(out, columns)[keys].itertuples(index=False, name=None)) if jobs else set()
    todo = [job for job in jobs if tuple(job) not in done]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        # The processes that are started load their libraries after this.
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    with out.open("a", newline="") as file, ProcessPoolExecutor(workers, context) as pool:
        writer = csv.DictWriter(file, columns)
        if new:
            writer.writeheader()
        waiting: dict[Future[dict[str, Any]], Key] = {pool.submit(work, job): job for job in todo}
        for ended in as_completed(waiting):
            if ended.exception() is not None:
                print(f"{waiting[ended]} failed: {ended.exception()!r}", flush=True)
                continue
            writer.writerow(ended.result())
            file.flush()
