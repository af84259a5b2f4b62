"""The engine that the others are compared with."""

from __future__ import annotations

import pytest
from engine_contract import EngineContract

from widegp import WideGPRegressor
from widegp.engines.base import backend_for, make_engine
from widegp.engines.local import LocalEngine


class TestLocal(EngineContract):
    @pytest.fixture
    def engine(self):
        return LocalEngine()


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
