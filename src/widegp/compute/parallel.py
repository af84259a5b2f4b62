"""Rows shared among threads: BLAS and compiled loops let go of the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from widegp.jit import get_num_threads
from widegp.threads import shared_out, workers

MANY = 256  # rows from which a share for every thread is worth it


def runs(rows: slice, size: int) -> Iterator[slice]:
    """The slice in runs of at most ``size``."""
    for start in range(rows.start, rows.stop, size):
        yield slice(start, min(start + size, rows.stop))


def in_parallel(work: Callable[[slice], Any], n_rows: int, least: int = MANY) -> list[Any]:
    """[work(part) for contiguous parts of the rows], a thread for each; one part below ``least`` rows
    and in a thread that shares the cores with others already.
    """
    count = int(get_num_threads()) if n_rows >= least and not shared_out() else 1
    parts = [slice(n_rows * t // count, n_rows * (t + 1) // count) for t in range(count)]
    if count == 1:
        return [work(parts[0])]
    return list(workers(count, os.getpid()).map(work, parts))
