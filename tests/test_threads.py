"""Work shared among threads is shared once."""

from __future__ import annotations

import threading

import pytest

from widegp import threads
from widegp.compute import parallel
from widegp.threads import in_threads, shared_out


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    for module in (threads, parallel):
        monkeypatch.setattr(module, "get_num_threads", lambda: 3)


def test_results_come_in_order_from_other_threads():
    barrier = threading.Barrier(3, timeout=10)

    def work(k):
        barrier.wait()  # passed only where three threads run at once
        return k * k, shared_out(), threading.get_ident()

    found = in_threads(work, range(3))
    assert [square for square, _, _ in found] == [0, 1, 4]
    assert all(inside for _, inside, _ in found)
    assert len({ident for _, _, ident in found}) == 3
    assert not shared_out()


def test_within_shared_work_nothing_is_shared_out_again():
    def work(_):
        here = threading.get_ident()
        inner = in_threads(lambda _: threading.get_ident(), range(5))
        rows = parallel.in_parallel(lambda part: (part, threading.get_ident()), 10_000)
        return set(inner) == {here} and rows == [(slice(0, 10_000), here)]

    assert all(in_threads(work, range(6)))
    # Outside of it, and for one part alone, threads are there to be used.
    assert len(parallel.in_parallel(lambda part: part, 10_000)) == 3
    assert in_threads(lambda _: len(parallel.in_parallel(lambda part: part, 10_000)), range(1)) == [3]


def test_each_thread_is_prepared_before_its_work():
    prepared = threading.local()

    def prepare():
        prepared.done = True

    assert in_threads(lambda _: prepared.done, range(7), prepare) == [True] * 7


def test_threads_stay_and_a_pool_serves_rows_and_parts():
    barrier = threading.Barrier(3, timeout=10)

    def work(_):
        barrier.wait()
        return threading.get_ident()

    first, second = set(in_threads(work, range(3))), set(in_threads(work, range(3)))
    assert first == second == set(parallel.in_parallel(work, 10_000))
