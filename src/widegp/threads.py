"""Work shared by plain threads: compiled code that lets go of the interpreter lock needs no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
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
    they do not survive a fork. ``prepare`` runs first in each thread, which is then a new one: settings that
    belong to a thread, such as OpenMP's number of threads, can be made there without changing anybody else's.
    """
    parts, count = list(parts), int(get_num_threads())
    if shared_out() or (min(count, len(parts)) <= 1 and prepare is None):
        return [function(part) for part in parts]
    if prepare is None:
        return list(workers(count, os.getpid()).map(function, parts))
    count = max(min(count, len(parts)), 1)
    with ThreadPoolExecutor(count, initializer=_begin, initargs=(count, prepare)) as pool:
        return list(pool.map(function, parts))


@cache
def workers(count: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay: the C library keeps freed memory in a heap for every thread that there ever was.

    They do not survive a fork: a child ``process`` makes its own.
    """
    return ThreadPoolExecutor(count, "widegp", _begin, (count,))


def _begin(count: int, prepare: Callable[[], None] | None = None) -> None:
    _here.shared_out = count > 1
    if prepare is not None:
        prepare()
