"""The engine that the others are compared with."""

from __future__ import annotations

import numpy as np
import pytest
from engine_contract import KERNEL, NOISE, EngineContract, table
from naive_gp import STEP, evaluated, family_nll, value_and_gradient

from widegp import WideGPRegressor
from widegp.approximations.evaluation import Evaluation
from widegp.compute.backend import RowBars
from widegp.engines.base import backend_for, make_engine
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
