"""Cells found on a device, and predictions of rows that are sent there: against those of the host."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from widegp import stacks
from widegp.approximations.posterior import FamilyPosterior
from widegp.compute import xla_holding
from widegp.compute.xla import XlaBackend
from widegp.compute.xla_holding import Holder, SentRows
from widegp.conditioning import TrainingRows
from widegp.kernels import RBF, Mixed
from widegp.neighbors import Cells
from widegp.prediction import make_predictor

I, R, NOISE, Q = 3, 4, 0.13, 256
KERNELS = {"mixed": Mixed(sigma_u2=np.array([0.3, 0.9, 0.4]), w=0.3), "rbf": RBF(sigma_u2=0.2)}


def scattered(seed=0, n=300, width=I):
    return np.random.default_rng(seed).normal(size=(n, width))


def grid(seed=0, n=300):
    """Rows with many duplicates, whose new rows stand half way between several of them."""
    return np.random.default_rng(seed).integers(0, 4, size=(n, I)).astype(float)


def found(cells, points):
    """The cell of each point and whether the device is sure of it, by one program for all tests."""
    padded = np.zeros((Q, points.shape[1]))
    padded[: len(points)] = points
    with jax.enable_x64(True):
        return [np.asarray(part)[: len(points)] for part in Holder(cells.table())(padded)]


@pytest.mark.parametrize("cell_rows", [10, 60, 300])
@pytest.mark.parametrize("table", [scattered, grid])
def test_the_device_finds_the_cells_of_the_host_or_leaves_them_to_it(table, cell_rows):
    points = table()
    cells = Cells.of(points, cell_rows, 20)
    new = {
        "near": scattered(1, 200), "few": scattered(2, 3), "rows of the table": points[:Q],
        "between rows": points[:200] + 0.5, "far": 1e3 * scattered(3, 100),
        "farther": 1e12 * scattered(4, 100),
    }  # fmt: skip
    for name, rows in new.items():
        cell, sure = found(cells, rows)
        np.testing.assert_array_equal(cell[sure], cells.holding(rows)[sure], err_msg=name)
        if table is scattered:
            assert np.mean(sure) > 0.95, name
    if table is grid and cell_rows < 300:
        # Rows half way between two cells belong to the first, if sums of squares are exact.
        assert not np.all(found(cells, new["between rows"])[1])


def test_one_cell_holds_every_row():
    cells = Cells.of(scattered(n=20), 20, 5)
    cell, sure = found(cells, scattered(1, 50))
    assert len(cells.centres) == 1 and not np.any(cell) and np.all(sure)


@pytest.mark.parametrize("far", [1e17, 1e30, np.inf, np.nan])
def test_rows_that_rounding_decides_about_are_left_to_the_host(far):
    cells = Cells.of(scattered(), 10, 20)
    rows = np.concatenate([scattered(1, 5), np.full((1, I), far)])
    np.testing.assert_array_equal(found(cells, rows)[1], [True] * 5 + [False])


def test_points_on_a_border_are_left_to_the_host():
    points = np.repeat([[-1.0, 0, 0], [1.0, 0, 0]], 10, axis=0)
    cells = Cells.of(points, 10, 5)
    cell, sure = found(cells, np.array([[0.0, 3, 1], [1e-9, 0, 0], [-0.1, 0, 0], [0.1, 0, 0]]))
    assert len(cells.centres) == 2 and list(sure) == [False, False, True, True] and cell[2] != cell[3]


@pytest.mark.parametrize("q", [1, 16, 37])
def test_rows_are_sent_in_runs_of_one_shape(q):
    X = scattered(n=q)
    with jax.enable_x64(True):
        sent = SentRows(X, 64, 16)
        assert {run.shape for run in sent.runs()} == {(16, I)}
        wanted = np.arange(2 * q).reshape(2, q) % q
        np.testing.assert_array_equal(sent.taken(wanted), X[wanted])


@pytest.fixture
def accelerator(monkeypatch):
    """As on an accelerator with so little memory that 512 rows are sent at a time."""
    monkeypatch.setattr(XlaBackend, "keeps_shapes", property(lambda self: True))
    monkeypatch.setattr(XlaBackend, "block_bytes", property(lambda self: 2**22))
    monkeypatch.setattr(stacks, "SENT_FROM", 1)
    monkeypatch.setattr(stacks, "SENT_ROWS", 512)
    monkeypatch.setattr(stacks, "LARGE_PART_ROWS", 16)


def model(name, n=600):
    rng, kernel = np.random.default_rng(1), KERNELS[name]
    Z = rng.normal(size=(R, I))
    W = np.linalg.inv(np.linalg.cholesky(kernel(Z))).T
    posterior = FamilyPosterior("full-scale", kernel, NOISE, Z, W, rng.normal(size=R), np.eye(R) * 1.3)
    X = rng.normal(size=(n, I))
    X[9] = X[4]
    return posterior, TrainingRows(X, rng.normal(size=n), kernel, 20, rng.uniform(0.3, 3, n), True)


def sizes_left_to_the_host(monkeypatch, rows):
    sizes, owners = [], rows.owners
    monkeypatch.setattr(rows, "owners", lambda X: sizes.append(len(X)) or owners(X))
    return sizes


def test_predictions_of_rows_that_are_sent_are_those_of_the_host(accelerator, monkeypatch):
    posterior, rows = model("mixed")
    X = np.concatenate([scattered(2, 1100), rows.X[:50], 1e3 * scattered(3, 20)])
    expected = make_predictor(posterior, rows, "native").predict(X)
    there, sizes = make_predictor(posterior, rows, "xla"), sizes_left_to_the_host(monkeypatch, rows)
    np.testing.assert_allclose(there.predict(X), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(there.mean(X), expected.mean, rtol=1e-10, atol=1e-12)
    assert sum(sizes) < 0.1 * len(X)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("q", [1, 500])
def test_cells_of_rows_that_are_sent_are_those_of_the_host(name, q, accelerator):
    posterior, rows = model(name)
    X = np.concatenate([scattered(2, q - q // 5), rows.X[: q // 5]])
    there = make_predictor(posterior, rows, "xla").stacks
    with XlaBackend().scope():
        np.testing.assert_array_equal(there.owners(X, there.sent(X)), rows.owners(X))


def test_nothing_is_compiled_again_for_another_number_of_rows(accelerator):
    predictor = make_predictor(*model("mixed"), "xla")
    predictor.predict(scattered(2, 1000))
    programs = xla_holding._program(), xla_holding._laid, xla_holding._taken
    before = [program._cache_size() for program in programs]
    predictor.predict(scattered(3, 900))
    assert [program._cache_size() for program in programs] == before


def test_cells_that_the_device_has_no_room_for_are_found_by_the_host(accelerator, monkeypatch):
    posterior, rows = model("mixed")
    X, expected = scattered(2, 600), make_predictor(posterior, rows, "native").predict(scattered(2, 600))
    monkeypatch.setattr(Cells, "table_bytes", 2**30)
    sizes = sizes_left_to_the_host(monkeypatch, rows)
    np.testing.assert_allclose(make_predictor(posterior, rows, "xla").predict(X), expected, 1e-10, 1e-12)
    assert sizes == [512, 88]


@pytest.mark.parametrize("n", [30, 100])
def test_few_cells(n, accelerator):
    posterior, rows = model("mixed", n)
    X = scattered(2, 300)
    expected = make_predictor(posterior, rows, "native").predict(X)
    np.testing.assert_allclose(make_predictor(posterior, rows, "xla").predict(X), expected, 1e-10, 1e-12)
    assert (len(rows.parted.centres) == 1) == (n == 30)
