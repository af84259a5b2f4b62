"""A cluster of two processes on this machine; one of them is killed."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings

import numpy as np
import pytest
from engine_contract import EngineContract, table
from sklearn.base import clone

from widegp import WideGPClassifier, WideGPRegressor
from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.compute.backend import Block, choose_backend
from widegp.engines.blocks import BlockedRows
from widegp.engines.dask import DaskEngine
from widegp.engines.local import LocalEngine
from widegp.inference.latent import RowNoise
from widegp.kernels import Mixed
from widegp.laplace import Response, evidence
from widegp.likelihoods import Bernoulli

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    # Losses are what is tested here, and the scheduler is loud about them.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def kill_one(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def regressor(**settings):
    defaults = {
        "approximation": "full-scale", "rank": 10, "neighbors": 6, "predict_neighbors": 20, "max_iter": 5,
        "block_rows": 40, "start": {"sigma_u2": 0.5}, "random_state": 0,
    }  # fmt: skip
    return WideGPRegressor.plain(**(defaults | settings))


def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    return X, np.exp(0.5 * np.sin(X[:, 0]) + 0.1 * rng.normal(size=400))


def fitted(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data())


def assert_same_fit(ours, local):
    assert ours.log_posterior_ == pytest.approx(local.log_posterior_, rel=1e-8)
    assert ours.n_iter_ == local.n_iter_
    for name, value in local.params_.items():
        np.testing.assert_allclose(ours.params_[name], value, rtol=1e-8)
    X, _ = data()
    for found, expected in zip(ours.predict(X[:20], True), local.predict(X[:20], True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8)


class TestDask(EngineContract):
    @pytest.fixture
    def engine(self, client):
        return DaskEngine()

    @pytest.mark.parametrize("warp", [None, pytest.param("yeo-johnson", marks=pytest.mark.slow)])
    def test_a_fit_is_the_local_fit(self, client, warp):
        model = regressor(target_transform=warp)
        ours = fitted(clone(model).set_params(engine="dask"))
        assert ours.fitted_.predictor.engine.name == "dask"
        assert_same_fit(ours, fitted(model))

    def test_the_evidence_of_classes_is_the_local_one(self, engine):
        X, y = data()
        response = Response(Bernoulli(), (y[:90] > 1.0).astype(float))
        kernel, dials = Mixed(sigma_u2=0.5), Dials("full-scale", 8, 5, "kmeans", "random", 30)

        def found(engine):
            builder = Builder(X[:90], dials, choose_backend(kernel, "native"), 0, engine)
            with builder.backend.scope():
                return evidence(RowNoise(builder.build(kernel), kernel), response)

        ours, local = found(engine), found(LocalEngine())
        assert ours.value == pytest.approx(local.value, rel=1e-9)
        np.testing.assert_allclose(ours.mode.f, local.mode.f, atol=1e-8)
        for name, slope in local.gradient.items():
            np.testing.assert_allclose(ours.gradient[name], slope, rtol=1e-6, atol=1e-8)

    @pytest.mark.slow
    def test_a_classifier_is_the_local_one(self, client):
        X, y = data()
        model = WideGPClassifier(
            approximation="full-scale", rank=10, neighbors=6, max_iter=3, block_rows=60, random_state=0,
            metric="iso", scale_inputs="standard",
        )  # fmt: skip
        with warnings.catch_warnings(action="ignore"):
            ours = clone(model).set_params(engine="dask").fit(X[:150], y[:150] > 1.0)
            local = clone(model).fit(X[:150], y[:150] > 1.0)
        np.testing.assert_allclose(ours.predict_proba(X[150:]), local.predict_proba(X[150:]), atol=1e-8)

    def test_blocks_are_sent_once_and_a_target_only_when_it_changes(self, engine, client, monkeypatch):
        sent = []
        scatter = client._scatter

        def counting(data, **settings):
            sent.extend("block" if isinstance(item, Block) else "other" for item in data)
            return scatter(data, **settings)

        monkeypatch.setattr(client, "_scatter", counting)
        likelihood = self.likelihood(engine)
        n_blocks = len(likelihood.rows.rows)
        assert sent == ["block"] * n_blocks
        sent.clear()
        self.evaluate(likelihood)
        assert sent == ["other"] * (n_blocks + 2)  # the target by block, and the model of each round
        sent.clear()
        self.evaluate(likelihood)
        assert sent == ["other"] * 2
        sent.clear()
        self.evaluate(likelihood, shift=1.0)
        assert sent == ["other"] * (n_blocks + 2)

    def test_an_error_of_the_function_is_raised_as_it_is(self, engine):
        X, y, _, neighbors = table()
        with pytest.raises(ZeroDivisionError):
            engine.map_sum(divided_by_nothing, BlockedRows.cut(X, y, neighbors, 50))

    @pytest.mark.slow
    def test_blocks_lost_between_evaluations_are_sent_again(self, engine, client):
        likelihood = self.likelihood(engine)
        before = self.evaluate(likelihood)
        kill_one(client)
        after = self.evaluate(likelihood)
        assert after.value == pytest.approx(before.value, rel=1e-12)
        client.wait_for_workers(2, timeout=60)

    @pytest.mark.slow
    def test_a_worker_killed_in_the_middle_of_a_fit_costs_time_and_nothing_else(self, client):
        rounds = []

        class Deadly(DaskEngine):
            def map_sum(self, fn, rows, kept=None):
                rounds.append(fn)
                if len(rounds) == 8:
                    threading.Timer(0.02, kill_one, [client]).start()
                return super().map_sum(fn, rows, kept)

        local = fitted(regressor())
        ours = fitted(regressor(engine=Deadly()))
        assert len(rounds) > 10
        assert_same_fit(ours, local)


def divided_by_nothing(block):
    return 1 // 0
