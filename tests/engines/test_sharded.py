"""Several devices; where there is one, the tests run in a process that believes in four."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from engine_contract import EngineContract
from sklearn.base import clone

from widegp import WideGPRegressor
from widegp.engines.sharded import ShardedEngine

DEVICES = 4
few = pytest.mark.skipif(len(jax.devices()) < DEVICES, reason="run by test_on_four_devices")


@few
class TestSharded(EngineContract):
    backend = "xla"

    @pytest.fixture
    def engine(self):
        return ShardedEngine()

    def test_the_blocks_are_spread_over_the_devices(self, engine):
        likelihood = self.likelihood(engine)
        for group in likelihood.rows.groups:
            assert len(group.X.sharding.device_set) == engine.parallel_blocks == len(jax.devices())

    @pytest.mark.slow
    def test_a_fit_is_the_local_fit(self, engine):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(300, 2))
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)
        ours = WideGPRegressor.plain(
            approximation="fitc", rank=10, max_iter=3, start={"sigma_u2": 0.5}, random_state=0, engine=engine
        )
        local = clone(ours).set_params(engine="local", backend="xla")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours.fit(X, y), local.fit(X, y)
        assert ours.log_posterior_ == pytest.approx(local.log_posterior_, rel=1e-8)
        np.testing.assert_allclose(ours.predict(X[:9]), local.predict(X[:9]), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(len(jax.devices()) >= DEVICES, reason="this process has the devices")
def test_on_four_devices():
    here = Path(__file__)
    environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(here), "-k", "TestSharded"],
        cwd=here.parents[2], env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-4000:]
    assert "passed" in run.stdout and "TestSharded" not in run.stdout
