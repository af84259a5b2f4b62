"""The engine that the others are compared with."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from engine_contract import (
    KERNEL,
    NOISE,
    EngineContract,
    naive_neighbor_products,
    neighbor_products,
    table,
)
from naive_gp import STEP, evaluated, family_nll, value_and_gradient

from widegp import WideGPRegressor
from widegp.approximations.evaluation import Evaluation
from widegp.compute.backend import RowBars
from widegp.engines.base import backend_for, make_engine
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine


class TestLocal(EngineContract):
    compared = slice(4, None, 29)

    @pytest.fixture
    def engine(self):
        return LocalEngine()

    def reference(self, name):
        """By a matrix of all rows: compared with itself the engine would always be right."""
        likelihood = self.likelihood(LocalEngine(), name)
        X, y, spread, _ = table()
        order = np.arange(len(y)) if likelihood.order is None else likelihood.order

        def nll(kernel, noise, y=y, spread=spread):
            rows = X[order], y[order], likelihood.Z, likelihood.rows.neighbors
            return family_nll(name, kernel, noise * spread[order], *rows)

        bars = np.full((2, len(y)), np.nan)
        for i in np.arange(len(y))[self.compared]:
            step = 1j * STEP * np.eye(len(y))[i]
            moved = (y + step, spread), (y, spread * (1 + step))
            bars[:, i] = [evaluated(nll, KERNEL, NOISE, *given).imag / STEP for given in moved]
        return Evaluation(*value_and_gradient(nll, KERNEL, NOISE), by_row=RowBars(*bars))


def test_engines_by_name_and_as_objects():
    engine = LocalEngine()
    assert make_engine(engine) is engine
    assert make_engine("local").name == "local" and make_engine("sharded").name == "sharded"
    with pytest.raises(ValueError, match="Unknown engine 'spark'; choose one of auto, local, sharded, dask"):
        WideGPRegressor.plain(engine="spark").fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match="Unknown engine 3"):
        make_engine(3)


def test_an_engine_may_need_its_own_backend():
    sharded = make_engine("sharded")
    assert backend_for(LocalEngine(), "native") == "native"
    assert backend_for(sharded, "auto") == backend_for(sharded, "xla") == "xla"
    with pytest.raises(ValueError, match="leave backend at 'auto'"):
        backend_for(sharded, "native")


def test_without_a_cluster_the_error_says_how_to_start_one():
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match=r"start one with dask.distributed.Client\(\)"):
        WideGPRegressor.plain(engine="dask").fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("rows", [slice(None), slice(3, None, 2)])
def test_blocks_are_halved_until_they_fit_with_their_halos(monkeypatch, rows):
    monkeypatch.setattr("widegp.engines.blocks.LEAST_RUN", 4)
    X, y, spread, neighbors = table()
    wanted, most = np.arange(len(y))[rows], 60
    made = BlockedRows.cut(X, y, neighbors, 100, most=most).with_target(y, spread)
    assert max(len(cut.rows) for cut in made.cuts) < 100
    if len(wanted) < len(y):
        made = made.restricted(wanted)
    assert all(len(cut.rows) + len(cut.halo) <= most or len(cut.rows) <= 4 for cut in made.cuts)
    assert min(len(cut.rows) for cut in made.cuts) > 4  # so that no block of these was left too large
    np.testing.assert_array_equal(np.concatenate([cut.rows for cut in made.cuts]), wanted)
    summed = LocalEngine().map_sum(partial(neighbor_products, 1.5), made)
    theirs = np.where(np.isin(np.arange(len(y)), wanted)[:, None], neighbors, -1)
    for ours, naive in zip(summed, naive_neighbor_products(1.5, y, spread, theirs), strict=True):
        np.testing.assert_allclose(ours, naive, rtol=1e-10)
