"""Work shared by plain threads: compiled code that lets go of the interpreter lock needs no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from widegp.jit import get_num_threads

_here = threading.local()


def shared_out() -> bool:
    """Whether this thread is one of several that `in_threads` has shared work out to: more threads would only
    take turns with them.
    """
    return getattr(_here, "shared_out", False)


def in_threads(
    function: Callable[[Any], Any], parts: Iterable[Any], prepare: Callable[[], None] | None = None
) -> list[Any]:
    """[function(part) for part in parts], by as many threads as numba is set to use.

    Plain threads sleep while they wait. OpenMP's spin, which on a busy machine was seen to cost tenfold, and
    they do not survive a fork. ``prepare`` runs first in each thread: settings that belong to a thread, such
    as OpenMP's number of threads, can be made there without changing anybody else's.
    """
    parts = list(parts)
    workers = min(get_num_threads(), len(parts))
    if shared_out() or (workers <= 1 and prepare is None):
        return [function(part) for part in parts]

    def begin() -> None:
        _here.shared_out = workers > 1
        if prepare is not None:
            prepare()

    with ThreadPoolExecutor(max(workers, 1), initializer=begin) as pool:
        return list(pool.map(function, parts))
