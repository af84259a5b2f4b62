"""What every kernel must do everywhere: all names of the registry, and sums and products of them."""

from __future__ import annotations

import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_gp import family_nll, gaussian_nll, nearest_earlier, value_and_gradient

import widegp
from widegp import WideGPRegressor
from widegp.approximations.dense import Dense
from widegp.approximations.evaluation import Observed
from widegp.approximations.family import Family
from widegp.approximations.registry import APPROXIMATIONS
from widegp.compute.backend import choose_backend
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.explain import explain
from widegp.held_out import HeldOut
from widegp.inference.objective import start_values
from widegp.inference.parameters import ParameterSpace, declared_parameters
from widegp.inference.priors import LogNormal, Relative, default_priors
from widegp.kernels import NAMES, RBF, Matern12, Matern32, Mixed
from widegp.kernels.registry import SAVEABLE
from widegp.report import render_html, summarise

N, I, R, M = 12, 3, 4, 3
NOISE = 0.13
KERNELS = {name: cls() for name, cls in NAMES.items()} | {
    "sum of a kind": Matern12(sigma_u2=0.1) + Matern12(sigma_u2=2.0),
    "sum with a product": Mixed() + RBF() * Matern32(),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)
THROUGHOUT = ("mixed", "rbf", "sum with a product")  # a native form, XLA alone, and parts


def every_kernel_under(quick):
    """Each kernel with each of these approximations; quick are the kernels named for it."""
    return pytest.mark.parametrize(
        ("name", "approximation"),
        [
            pytest.param(name, each, marks=() if name in kernels else pytest.mark.slow)
            for name in KERNELS
            for each, kernels in quick.items()
        ],
    )


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, I))
    X[9] = X[4]  # rows may repeat
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def with_ard(kernel):
    return kernel.replace(**{name: np.array([0.2, 0.9, 0.4]) for name in kernel.per_input})


def backends(kernel):
    return ("native", "xla") if kernel.native_form() is not None else ("xla",)


def moved(kernel, name, entry, factor):
    """The kernel with one entry of one parameter multiplied."""
    value = np.array(kernel.parameters()[name], float)
    value.reshape(-1)[entry] *= factor
    return kernel.replace(**{name: value if value.ndim else float(value)})


@every_kernel
class TestMatrices:
    def test_symmetric_positive_semi_definite_with_its_diagonal(self, name):
        X, kernel = table()[0], with_ard(KERNELS[name])
        K = kernel(X)
        np.testing.assert_allclose(K, K.T, rtol=1e-13)
        np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=1e-12)
        assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.trace(K)

    def test_batches_of_rows_are_matrices_one_by_one(self, name):
        kernel, X = with_ard(KERNELS[name]), np.random.default_rng(1).normal(size=(2, 3, 4, I))
        with jax.enable_x64(True):
            batch = np.asarray(kernel.between(jnp.asarray(X), jnp.asarray(X)))
        assert batch.shape == (2, 3, 4, 4)
        for i, j in np.ndindex(2, 3):
            np.testing.assert_allclose(batch[i, j], kernel(X[i, j]), rtol=1e-12)

    def test_gradient_is_that_of_differences(self, name):
        X, kernel = table()[0], with_ard(KERNELS[name])
        weights = np.random.default_rng(2).normal(size=(N, N))
        _, gradient = value_and_gradient(lambda k, s: s + np.sum(weights * k(X)), kernel, 0.0)
        for key, value in kernel.parameters().items():
            for entry in range(np.size(value)):
                step = 1e-5
                ends = [np.sum(weights * moved(kernel, key, entry, 1 + s)(X)) for s in (-step, step)]
                expected = (ends[1] - ends[0]) / (2 * step) / np.ravel(value)[entry]
                assert np.ravel(gradient[key])[entry] == pytest.approx(expected, rel=1e-6, abs=1e-6)

    def test_summands_add_up_and_have_a_curve(self, name):
        X, kernel = table()[0], with_ard(KERNELS[name])
        np.testing.assert_allclose(sum(part(X) for part in kernel.summands().values()), kernel(X), rtol=1e-12)
        curve = kernel.curve(X, points=7)
        assert curve.axis in ("correlation", "distance")
        assert curve.x.shape == (7,) and all(values.shape == (7,) for values in curve.parts.values())


@every_kernel
class TestParameters:
    def test_every_parameter_is_declared_and_moves_the_kernel(self, name):
        kernel, X = KERNELS[name], table()[0]
        declared = {parameter.name: parameter for parameter in kernel.declarations()}
        assert list(declared) == list(kernel.parameters()) == list(kernel.free)
        for key, parameter in declared.items():
            value = np.asarray(kernel.parameters()[key], float)
            assert np.all((parameter.kind.lower < value) & (value < parameter.kind.upper))
            assert parameter.title and parameter.meaning.endswith((".", ")."))
            assert np.abs(moved(kernel, key, 0, 0.5)(X) - kernel(X)).max() > 1e-3

    def test_values_survive_the_unconstrained_vector(self, name):
        kernel = KERNELS[name]
        values = start_values(kernel, NOISE, np.zeros(0), I)
        for log in (True, False):
            space = ParameterSpace.of(kernel, values, log=log)
            z = space.pack(values)
            assert len(z) == len(space.bounds()) == len(space.labels())
            for key, value in space.unpack(z).items():
                np.testing.assert_allclose(value, values[key], rtol=1e-12)
            ones = {key: np.ones_like(value) for key, value in values.items()}
            up, down = (space.unpack(z + s) for s in (1e-6, -1e-6))
            slopes = np.concatenate([np.ravel(up[key] - down[key]) / 2e-6 for key in values])
            np.testing.assert_allclose(space.pull_back(z, ones), slopes, rtol=1e-7)

    def test_every_parameter_has_a_prior(self, name):
        kernel = KERNELS[name]
        for ard in (False, True):
            priors = default_priors(kernel, I, ard)
            assert set(priors) == {*kernel.parameters(), "sigma_eps2"}
            for key, prior in priors.items():
                assert isinstance(prior, declared_parameters(kernel)[key].kind.priors)
                x = prior.distribution().ppf([0.1, 0.6])
                prior = prior.common if isinstance(prior, Relative) else prior
                density = prior.distribution().logpdf(x)
                if isinstance(prior, LogNormal):
                    # Its penalty is minus the log density of log x.
                    density = density + np.log(x)
                penalties = [prior.penalty(v) for v in x]
                assert penalties[0] - penalties[1] == pytest.approx(density[1] - density[0], rel=1e-9)

    def test_the_start_shares_out_what_acts_along_all_inputs(self, name):
        kernel = KERNELS[name]
        start = kernel.at_start(10).parameters()
        for key, value in kernel.parameters().items():
            assert start[key] == (value / 10 if key in kernel.per_input else value)


@every_kernel
class TestGeometry:
    def test_near_in_the_embedding_is_correlated(self, name):
        """Rows at growing distance along a line: correlation falls as the embedded distance grows."""
        kernel, direction = with_ard(KERNELS[name]), np.array([1.0, -0.5, 2.0])
        X = np.linspace(0, 0.5, N)[:, None] * direction + np.array([0.3, 0.1, -0.2])
        points = kernel.embedding(X)
        distance = np.linalg.norm(points - points[0], axis=1)
        K = kernel(X)
        correlation = K[0] / np.sqrt(K[0, 0] * np.diag(K))
        assert np.all(np.diff(distance) > 0) and np.all(np.diff(correlation) < 0)

    def test_rows_on_a_device_are_embedded_there(self, name):
        kernel, X = with_ard(KERNELS[name]), table()[0]
        with jax.enable_x64(True):
            points = kernel.embedding(jnp.asarray(X))
        assert isinstance(points, jax.Array) and points.dtype == float
        np.testing.assert_allclose(points, kernel.embedding(X), rtol=1e-14, atol=1e-15)

    def test_points_and_means_of_points_come_back(self, name):
        kernel, X = with_ard(KERNELS[name]), table()[0]
        points = kernel.embedding(X)
        np.testing.assert_allclose(kernel.unembedding(points, I), X, rtol=1e-10, atol=1e-12)
        centre = kernel.unembedding(points[:4].mean(0, keepdims=True), I)[0]
        assert np.all((X[:4].min(0) <= centre) & (centre <= X[:4].max(0)))

    def test_inputs_that_do_not_act_weigh_least(self, name):
        weights = with_ard(KERNELS[name]).input_weights(I)
        assert weights.shape == (I,) and list(np.argsort(weights)) == [0, 2, 1]
        assert KERNELS[name].input_weights(I).shape == (I,)


@cache
def dense_answer(name, approximation):
    """Likelihood and gradient from an n x n matrix."""
    X, y = table()
    kernel = with_ard(KERNELS[name])
    Z, neighbors = X[:R] + 0.1, nearest_earlier(X, M if approximation == "full-scale" else 0)

    def nll(k, noise):
        if approximation == "exact":
            return gaussian_nll(y, k(X) + noise * np.eye(N))
        return family_nll(approximation, k, noise, X, y, Z, neighbors)

    return X, y, Z, neighbors, value_and_gradient(nll, kernel, NOISE)


# Anchors alone ask a kernel for nothing that anchors beside neighbours do not.
@every_kernel_under({"exact": KERNELS, "vfe": THROUGHOUT, "full-scale": KERNELS})
def test_likelihoods_and_gradients_are_those_of_a_dense_matrix(name, approximation):
    X, y, Z, neighbors, (value, gradient) = dense_answer(name, approximation)
    kernel = with_ard(KERNELS[name])
    for which in backends(kernel):
        backend = choose_backend(kernel, which)
        with backend.scope():
            if approximation == "exact":
                likelihood = Dense(X, backend)
            else:
                rows = BlockedRows.cut(X, y, neighbors, N, backend.pads)
                rule = APPROXIMATIONS[approximation].rule
                likelihood = Family(approximation, rule, rows, Z, backend, LocalEngine())
            ours = likelihood.evaluate(kernel, Observed(y, NOISE))
        assert ours.value == pytest.approx(value, rel=1e-8)
        scale = max(np.abs(g).max() for g in gradient.values())
        for key, expected in gradient.items():
            np.testing.assert_allclose(ours.gradient[key], expected, rtol=1e-6, atol=1e-8 * scale)


@cache
def fitted(name, approximation):
    kernel = name if name in NAMES else KERNELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # In blocks of the shape that the likelihoods above are compiled for.
        return WideGPRegressor.plain(
            kernel, approximation, rank=R, neighbors=M, predict_neighbors=6, max_iter=2, ard=True, start={},
            random_state=0, block_rows=N,
        ).fit(*table())  # fmt: skip


@every_kernel_under({"exact": KERNELS, "vfe": THROUGHOUT, "full-scale": THROUGHOUT})
def test_a_fit_survives_its_file(name, approximation, tmp_path):
    model, rows = fitted(name, approximation), table(12, seed=1)[0]
    model.save(tmp_path / "model.widegp")
    loaded = widegp.load(tmp_path / "model.widegp")
    assert type(loaded.kernel_) is type(model.kernel_) and type(model.kernel_) in SAVEABLE
    for ours, theirs in zip(loaded.predict(rows, True), model.predict(rows, True), strict=True):
        assert np.all(np.isfinite(ours)) and ours.tobytes() == theirs.tobytes()
    assert model.input_importance_.shape == (I,) and model.input_importance_.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "approximation"),
    [(name, "exact") for name in KERNELS] + [("mixed", each) for each in APPROXIMATIONS if each != "exact"],
)
def test_a_fit_is_reported_and_explained(name, approximation, monkeypatch):
    monkeypatch.setattr("widegp.importance.PREDICTIONS", 40)
    monkeypatch.setattr("widegp.importance.PREDICTIONS_SLOW", 40)
    model = fitted(name, approximation)
    told = explain(model, table(12, seed=2)[0], top=1)
    noise = told["balance"]["variance"].pop("noise")
    rows = model.fitted_.inputs.transform(table(12, seed=2)[0])
    assert noise == model.params_["sigma_eps2"]
    assert sum(told["balance"]["variance"].values()) == pytest.approx(model.kernel_.diag(rows).mean())
    told["balance"]["variance"]["noise"] = noise
    summary = summarise(model, HeldOut.of(model, *table(30, seed=3)), explanation=told)
    entries = {entry["name"]: entry for entry in summary["parameters"]}
    assert set(entries) == set(model.params_)
    assert all(entry["title"] and entry["meaning"] and entry["prior"] for entry in entries.values())
    assert summary["model"]["approximation"] == approximation
    assert (summary["model"]["anchors"] > 0) == (APPROXIMATIONS[approximation].anchors != "none")
    page = render_html(summary)
    assert all(part in page for part in told["balance"]["share"])


@every_kernel
def test_a_fit_finds_its_own_start(name):
    """Better at new rows than the mean of the target, and never left at the start."""
    X, y = table(40)
    kernel = name if name in NAMES else KERNELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = WideGPRegressor.plain(kernel, "exact", max_iter=10, random_state=0).fit(X, y)
    rows, target = table(40, seed=4)
    # A fit that has collapsed to the mean of its target has 1 here.
    assert np.sqrt(np.mean((model.predict(rows) - target) ** 2)) < 0.9 * target.std()
    assert any(model.params_[key] != value for key, value in KERNELS[name].at_start(I).parameters().items())
