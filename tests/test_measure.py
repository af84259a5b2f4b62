"""What the measuring functions promise, apart from how long anything takes."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.run import CLOSE, OPEN, section, with_section

from widegp import measure
from widegp.compute.native import NativeBackend
from widegp.kernels import Mixed
from widegp.machine import versions
from widegp.measure import (
    PeakMemory,
    Setting,
    Timing,
    evaluation,
    exponent,
    full_scale_products,
    table,
    timed,
    vfe_products,
)


def test_the_table_is_standardised_and_follows_its_seed():
    X, y = table(400, 7, seed=3)
    again, same = table(400, 7, seed=3)
    assert X.shape == (400, 7) and np.array_equal(X, again) and np.array_equal(y, same)
    assert y.mean() == pytest.approx(0, abs=1e-12) and y.std() == pytest.approx(1)
    assert not np.array_equal(y, table(400, 7, seed=4)[1])


def test_the_first_call_is_kept_apart_from_the_others():
    naps = iter((0.05, 0.0, 0.0, 0.0))
    timing = timed(lambda: time.sleep(next(naps)), repeats=3)
    assert timing.first >= 0.05 and len(timing.repeats) == 3
    assert timing.median == sorted(timing.repeats)[1]


def test_peak_memory_sees_what_was_freed_again_and_not_what_came_before():
    # So large that they come from the system and not from what the process has freed before.
    before = np.ones(100 * 2**20 // 8)
    del before
    memory = PeakMemory()
    during = np.ones(64 * 2**20 // 8)
    del during
    assert 60 * 2**20 <= memory.bytes() < 90 * 2**20


def test_the_exponent_of_a_power_is_its_own():
    sizes = np.array([1e4, 3e4, 1e5])
    assert exponent(sizes, 2e-6 * sizes**1.3) == pytest.approx(1.3)


def test_an_evaluation_is_the_bound_of_the_likelihood():
    # With every row an anchor the bound is the exact likelihood, here by NumPy alone.
    X, y = table(30, 3)
    kernel = Mixed(sigma_u2=1 / 3)
    out = evaluation(X, y, kernel, 0.2, Setting("vfe", rank=30))()
    K = kernel(X) + 0.2 * np.eye(30)
    exact = (y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + 30 * np.log(2 * np.pi)) / 2
    assert out.value == pytest.approx(exact, rel=1e-6)
    assert {"sigma_u2", "w", "sigma_eps2"} <= set(out.gradient)


class Counted:
    """Floating-point operations of products in place of their seconds, whoever makes the products."""

    def __init__(self, monkeypatch):
        self.flops, self.works = 0, []
        numpy = SimpleNamespace(random=np.random, empty=np.empty, matmul=self.product, dot=self.full)
        row_products = measure._row_products().py_func  # what Numba compiles, in Python
        monkeypatch.setattr(measure, "np", numpy)
        monkeypatch.setattr(measure, "timed", self.timed)
        monkeypatch.setattr(measure, "_row_products", lambda: row_products)
        monkeypatch.setattr(NativeBackend, "matmul", lambda _, a, b: self.product(a, b))
        monkeypatch.setattr(NativeBackend, "inner", lambda _, a, b: self.product(a.T, b))

    def full(self, a, b, out=None):
        self.flops += 2 * a.shape[0] * a.shape[1] * b.shape[1]

    def product(self, a, b, out=None):
        """Half of it where the result is symmetric."""
        assert out is None or out.shape == (a.shape[0], b.shape[1])
        self.flops += a.shape[0] * a.shape[1] * b.shape[1] * (1 if np.shares_memory(a, b) else 2)

    def timed(self, work, repeats):
        self.flops = 0
        work()
        self.works.append(self.flops)
        return Timing(0.0, (self.flops,))


def test_products_are_those_that_an_objective_cannot_do_without(monkeypatch):
    """Of 32 rows all, of 640 a tenth, ten times."""
    monkeypatch.setattr("widegp.measure.PRODUCT_ROWS", 64)
    counted = Counted(monkeypatch)
    I, r, m = 3, 4, 2
    for n in (32, 640):
        each_row = 4 * I * r + 3 * r**2
        assert vfe_products(n, I, r) == n * each_row
        assert counted.works[-2:] == [min(n, 64) * each_row] * 2  # by both ways of sharing it out
        by_points = 2 * 2 * (m + 1) ** 2 * (I + r)
        assert full_scale_products(n, I, r, m) == n * (by_points + 6 * I * r + 11 * r**2)
        assert counted.works[-1] == min(n, 64) * (by_points + 6 * I * r + 11 * r**2)


def test_versions_leave_out_what_is_not_installed():
    assert set(versions(("numpy", "no-such-package-anywhere"))) == {"numpy"}


RECORD = {
    "date": "2026-01-02", "seconds": 3.0, "exit_code": 0, "lines": ["a \\1 line"],
    "machine": {"processor": "P", "threads": 2, "cores": 2, "memory_gib": 8, "load": 0.1, "system": "S",
                "python": "3.11", "versions": {"numpy": "2.0"}},
}  # fmt: skip


def test_the_section_of_the_page_is_replaced_and_nothing_else():
    page = "# Results\n\nby hand\n"
    once = with_section(page, section({"x.py": RECORD}))
    assert once.startswith(page) and "a \\1 line" in once and "numpy 2.0" in once
    twice = with_section(once + "\nafter\n", section({"y.py": RECORD | {"exit_code": 1}}))
    assert "x.py" not in twice and "`python benchmarks/y.py`" in twice and "exit code 1" in twice
    assert twice.startswith(page) and twice.endswith("\nafter\n")
    assert twice.count(OPEN) == twice.count(CLOSE) == 1
