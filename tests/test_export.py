"""The graph of a model says what `predict` says, run by ONNX Runtime in float64."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from widegp import WideGPRegressor
from widegp.approximations.registry import APPROXIMATIONS
from widegp.data.input_maps import ChainedMaps, LinearMap, QuantileScaler
from widegp.export.kernels import ExportError, cross, diagonal
from widegp.fitted_warp import FittedWarp
from widegp.kernels import (
    RBF,
    LeakyReLU,
    Matern12,
    Matern52,
    Mixed,
    ReLU,
    Sigmoid,
    Tanh,
    exact_tanh,
)
from widegp.kernels.stationary import STATIONARY, StationaryKernel
from widegp.noise_model import NoiseModel
from widegp.tails import Tails
from widegp.warps import NAMES

onnxruntime = pytest.importorskip("onnxruntime", reason="the tests of exported graphs need onnxruntime")
pytest.importorskip("onnx")
from widegp.export.graph import Graph, Node, arcsin, arcsinh, log1p, sinh  # noqa: E402
from widegp.export.inputs import mapped  # noqa: E402
from widegp.export.model import _function as function  # noqa: E402
from widegp.export.model import _through as through  # noqa: E402
from widegp.export.warps import unwarped  # noqa: E402


def table(n=60, seed=0):
    """Inputs of different scales, one of few values, one constant; a positive, skewed target."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.normal(5, 2, n), np.exp(rng.normal(0, 1, n)), rng.integers(0, 3, n), np.full(n, 7.0)]
    )
    return X, np.exp(0.3 * X[:, 0] / 2 + 0.2 * X[:, 2] + 0.1 * rng.normal(size=n))


def applied(fn, X, axes=2):
    """fn at X (N, I) as a graph, by ONNX Runtime."""
    graph = Graph()
    data = graph.bytes(X.shape[1], {"y": fn(Node(graph, "X"))}, "", axes)
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(["y"], {"X": X})[0]


class TestFormulas:
    def test_functions_that_have_no_double_kernel(self):
        s = np.concatenate([np.linspace(-1, 1, 201), [-1e-12, 1e-12, 0.5, -0.5]])[:, None]
        np.testing.assert_allclose(applied(arcsin, s), np.arcsin(s), rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(applied(sinh, 5 * s), np.sinh(5 * s), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(applied(arcsinh, 100 * s), np.arcsinh(100 * s), rtol=1e-13, atol=1e-25)
        inside = s[s > -1][:, None]
        np.testing.assert_allclose(applied(log1p, inside), np.log1p(inside), rtol=1e-13, atol=1e-25)

    @pytest.mark.parametrize(
        "kernel",
        [
            Tanh(sigma_u2=0.7), Sigmoid(), ReLU(sigma_a2=0.0), LeakyReLU(),
            Mixed(sigma_u2=np.array([0.1, 2, 1])), *(stationary() for stationary in STATIONARY),
            Matern12(sigma_u2=np.array([0.1, 2, 1])), Matern52() + Tanh(), RBF() * Mixed(),
        ],
        ids=lambda kernel: type(kernel).__name__,
    )  # fmt: skip
    def test_kernels(self, kernel):
        """Duplicates, opposite rows and the zero row: there correlations are 1, -1 or not defined."""
        Z = np.random.default_rng(0).normal(size=(6, 3))
        X = np.concatenate([Z, -Z[:2], np.zeros((1, 3)), 1e-9 + Z[:1], 50 * Z[:1]])
        found = applied(lambda x: cross(kernel, x, Z), X)
        np.testing.assert_allclose(found, kernel(X, Z), rtol=1e-12, atol=1e-9)
        found = applied(lambda x: (x * x).sum(1) * 0.0 + diagonal(kernel, x, 3), X, axes=1)
        np.testing.assert_allclose(found, kernel.diag(X), rtol=1e-12)

    @pytest.mark.parametrize("name", NAMES)
    def test_warps(self, name):
        y = np.exp(np.random.default_rng(0).normal(size=200))
        offset, scale = (y.mean(), y.std())
        for psi in [None] if name in ("none", "sqrt", "log") else [None, self.other(name)]:
            warp = FittedWarp.fit((y - offset) / scale, name, psi, offset=offset, scale=scale)
            z = np.linspace(-6, 6, 61)[:, None]
            found = applied(lambda x, warp=warp: unwarped(warp, x), z)
            np.testing.assert_allclose(found, warp.inverse(z), rtol=1e-11, atol=1e-12)
            for sd in (0.5, 1.5, 4.0):
                mean = applied(
                    lambda x, warp=warp, sd=sd: through(warp, x.sum(1), 0.0 * x.sum(1) + sd).mean, z, axes=1
                )
                expected = warp.moments(z[:, 0], np.full(len(z), sd))[0]
                np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-9 * np.ptp(expected))

    @staticmethod
    def other(name):
        """Parameters with a pole, or a bound, of the inverse."""
        return [0.8, 0.6] if name == "sinh-arcsinh" else [-0.5]

    def test_maps_of_inputs(self):
        X, _ = table(700)
        scaler = QuantileScaler.fit(X)
        maps = ChainedMaps((scaler, LinearMap(np.random.default_rng(0).normal(size=(4, 2)))))
        beyond = np.concatenate([X, X[:5] + 100, X[:5] - 100, scaler.knots[:1] + np.zeros((1, 4))])
        found = applied(lambda x: mapped(x, maps, 4)[0], beyond)
        np.testing.assert_allclose(found, maps.transform(beyond), rtol=1e-11, atol=1e-10)


def fitted(**settings):
    X, y = table()
    settings = {"rank": 15, "max_iter": 8, "random_state": 0} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WideGPRegressor.plain(**settings).fit(X, y)


def served(model, tmp_path, X):
    """Mean and standard deviation by the exported file."""
    model.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )  # fmt: skip
    mean, variance = session.run(["mean", "variance"], {"X": X})
    return mean, np.sqrt(variance)


def assert_served(model, tmp_path):
    X = table(40, seed=1)[0]
    for found, expected in zip(served(model, tmp_path, X), model.predict(X, True), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


class TestModels:
    @pytest.mark.parametrize("name", [n for n, member in APPROXIMATIONS.items() if not member.neighbors])
    def test_a_graph_predicts_as_the_model_does(self, name, tmp_path):
        assert_served(fitted(approximation=name), tmp_path)

    @pytest.mark.parametrize("warp", ["box-cox", "yeo-johnson", "sinh-arcsinh"])
    def test_under_a_warp_it_has_the_moments_of_y(self, warp, tmp_path):
        assert_served(fitted(approximation="vfe", target_transform=warp), tmp_path)

    def test_noise_tails_metric_and_ranks(self, tmp_path):
        """As the default may choose them."""
        model = fitted(approximation="fitc", scale_inputs="quantile", metric="ard", target_transform="log")
        one = model.fitted_
        rng = np.random.default_rng(0)
        noise = NoiseModel(rng.normal(size=(9, 4)), rng.normal(size=9), 0.5, 0.8, 0.7)
        tails = Tails(np.array([0.6, 0.4]), np.array([0.7, 1.5]))
        model.fitted_ = replace(one, noise_model=noise, tails=tails)
        assert_served(model, tmp_path)

    def test_averages_and_several_outputs(self, tmp_path):
        assert_served(fitted(posterior="laplace"), tmp_path)
        X, y = table()
        several = WideGPRegressor.plain(approximation="vfe", rank=10, max_iter=5, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            several.fit(X, np.stack([y, norm.pdf(X[:, 0], 5)], axis=1))
        assert_served(several, tmp_path)

    def test_what_has_no_graph_says_so(self, tmp_path):
        for name in (n for n, member in APPROXIMATIONS.items() if member.neighbors):
            model = fitted(approximation=name, neighbors=5)
            with pytest.raises(ValueError, match="looks for the training rows near each new row"):
                model.export(tmp_path / "model.onnx")
        with pytest.raises(ValueError, match="Gaussian likelihood"):
            fitted(likelihood="student-t", max_iter=2).export(tmp_path / "model.onnx")
        with pytest.raises(ValueError, match="made by quadrature"):
            applied(lambda x: cross(exact_tanh, x, np.zeros((2, 3))), np.zeros((1, 3)))
        assert not (tmp_path / "model.onnx").exists()

    def test_a_posterior_that_writes_no_features_says_so(self):
        with pytest.raises(ExportError, match="object writes no features"):
            applied(lambda x: function(x, 3, object()).mean, np.zeros((1, 3)))

    def test_a_kernel_that_writes_no_formula_says_so(self):
        class Triangle(StationaryKernel):
            degrees_of_freedom = np.inf

            def correlation(self, s):
                return np.maximum(1 - np.sqrt(s), 0)

        with pytest.raises(ExportError, match="Triangle has no graph; fit 'mixed'"):
            applied(lambda x: cross(Triangle(), x, np.zeros((2, 3))), np.zeros((1, 3)))
