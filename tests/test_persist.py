"""A model and its file: equal to the last bit, or a sentence that says why not."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from sklearn.exceptions import NotFittedError

import widegp
from widegp import Beta, InverseGamma, WideGPRegressor, kernels, persist
from widegp.approximations.registry import APPROXIMATIONS as NAMES
from widegp.data.input_maps import ChainedMaps
from widegp.persist import ModelFileError
from widegp.trees import TreesInput

SUBPROCESS = {"check": True, "capture_output": True, "text": True}

N, RANK = 40, 8
WITH_NEIGHBORS = {name for name, member in NAMES.items() if member.neighbors}
ROWS_INSIDE = {"exact", *WITH_NEIGHBORS}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 10.0, 0.1] + 5
    return X, np.exp(np.sin(X[:, 0]) + 0.05 * X[:, 1] + 0.1 * rng.normal(size=n))


def fit(X=None, y=None, **settings):
    dials = {"rank": RANK, "neighbors": 4, "predict_neighbors": 6, "max_iter": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WideGPRegressor.plain(**(dials | settings)).fit(*(table() if X is None else (X, y)))


def round_trip(model, folder):
    model.save(folder / "model.widegp")
    return widegp.load(folder / "model.widegp")


def assert_same_bits(left, right):
    for a, b in zip(left, right, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def assert_same_model(loaded, model, X=None):
    rows, y = table(7, seed=1)
    X = rows if X is None else X
    for latent in (False, True):
        assert_same_bits(loaded.predict(X, True, latent=latent), model.predict(X, True, latent=latent))
    assert_same_bits(loaded.predict_interval(X), model.predict_interval(X))
    assert_same_bits([loaded.sample_y(X, 3)], [model.sample_y(X, 3)])
    assert_same_bits([loaded.log_density(X, y)], [model.log_density(X, y)])
    assert list(loaded.params_) == list(model.params_)
    assert_same_bits(loaded.params_.values(), model.params_.values())
    assert_same_bits([loaded.anchors_], [model.anchors_])
    assert type(loaded.kernel_) is type(model.kernel_)
    assert_same_bits(loaded.kernel_.parameters().values(), model.kernel_.parameters().values())
    for name in ("converged_", "n_iter_", "log_posterior_", "result_", "approximation_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(model, name), name
    assert type(loaded.result_.reason) is type(model.result_.reason)
    assert_same_bits(
        [v for k, v in vars(loaded.transform_).items() if k != "name"],
        [v for k, v in vars(model.transform_).items() if k != "name"],
    )
    assert loaded.transform_.name == model.transform_.name
    assert set(vars(loaded)) == set(vars(model))
    # Equal bits on every BLAS need equal memory order, which tables this small need not reveal.
    for name, value in vars(model.fitted_.posterior).items():
        assert np.size(value) <= 1 or getattr(loaded.fitted_.posterior, name).strides == value.strides, name


def arrays_in(path):
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def header_of(path):
    with safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["header"])


@pytest.fixture(scope="module")
def vfe():
    return fit(approximation="vfe")


@pytest.fixture(scope="module")
def on_xla():
    return fit(approximation="subset", backend="xla", start={}, max_iter=1)


@pytest.fixture
def file(vfe, tmp_path):
    vfe.save(tmp_path / "model.widegp")
    return tmp_path / "model.widegp"


class TestRoundTrip:
    @pytest.mark.parametrize("warp", [None, "box-cox"])
    @pytest.mark.parametrize("name", NAMES)
    def test_every_approximation(self, name, warp, tmp_path):
        model = fit(approximation=name, target_transform=warp)
        assert_same_model(round_trip(model, tmp_path), model)

    @pytest.mark.parametrize("warp", ["yeo-johnson", "sinh-arcsinh", "sqrt", "log"])
    def test_every_warp(self, warp, tmp_path):
        model = fit(approximation="dtc", target_transform=warp)
        assert_same_model(round_trip(model, tmp_path), model)

    @pytest.mark.parametrize("kernel", ["tanh", "sigmoid", "relu", "leaky_relu"])
    def test_every_activation(self, kernel, tmp_path):
        model = fit(approximation="full-scale", kernel=kernel)
        loaded = round_trip(model, tmp_path)
        assert_same_model(loaded, model)
        assert loaded.kernel == kernel

    def test_a_mixture_with_its_components(self, tmp_path):
        kernel = kernels.Mixture(["tanh", kernels.LeakyReLU(alpha=0.3)], [0.7, 0.3], sigma_a2=2.0)
        model = fit(approximation="fitc", kernel=kernel)
        loaded = round_trip(model, tmp_path)
        assert_same_model(loaded, model)
        assert loaded.kernel_.components == kernel.components == loaded.kernel.components
        assert_same_bits([loaded.kernel.weights], [kernel.weights])

    def test_a_ready_made_quadrature(self, on_xla, tmp_path):
        # A fit would spend seconds on compiling gradients, which no file holds.
        model = copy.copy(on_xla)
        kernel = kernels.exact_tanh.replace(terms=32, sigma_a2=0.5)
        posterior = replace(model.fitted_.posterior, kernel=kernel)
        model.fitted_ = replace(model.fitted_, kernel=kernel, posterior=posterior, backend="xla")
        loaded = round_trip(model, tmp_path)
        assert loaded.kernel_ == model.kernel_ == loaded.fitted_.posterior.kernel
        X, _ = table(7, seed=1)
        assert_same_bits(loaded.predict(X, True), model.predict(X, True))

    @pytest.mark.parametrize("kernel", [kernels.exact_tanh, kernels.exact_sigmoid], ids=["tanh", "sigmoid"])
    def test_the_ready_made_quadratures_as_parameters(self, kernel, tmp_path):
        model = fit(approximation="subset").set_params(kernel=kernel)
        assert round_trip(model, tmp_path).kernel == kernel

    @pytest.mark.parametrize("name", ["full-scale", "vfe"])
    def test_ard_keeps_the_importance_of_inputs(self, name, tmp_path):
        model = fit(approximation=name, ard=True)
        loaded = round_trip(model, tmp_path)
        assert_same_model(loaded, model)
        assert_same_bits([loaded.input_importance_], [model.input_importance_])

    def test_feature_names(self, tmp_path):
        X, y = table()
        frame = pd.DataFrame(X, columns=['a "quoted" name', "größe", f'"sha256":"{"0" * 64}"'])
        model = fit(frame, y, approximation="vecchia")
        loaded = round_trip(model, tmp_path)
        assert_same_model(loaded, model, frame[:7])
        assert list(loaded.feature_names_in_) == list(frame.columns)
        with pytest.raises(ValueError, match="feature names"):
            loaded.predict(frame.rename(columns={"größe": "size"}))

    def test_priors_starts_and_other_parameters(self, tmp_path):
        given = {
            "priors": {"w": Beta(2, 2), "sigma_a2": InverseGamma(2.0, 1.5), "sigma_b2": None},
            "start": {"alpha": 0.25, "sigma_u2": np.array([0.1, 0.2, 0.3])},
            "budget": np.inf, "random_state": np.int64(3), "ard": True, "scale_inputs": None,
        }  # fmt: skip
        loaded = round_trip(fit(approximation="subset", **given), tmp_path)
        assert loaded.priors == given["priors"]
        np.testing.assert_array_equal(loaded.start.pop("sigma_u2"), [0.1, 0.2, 0.3])
        assert loaded.start == {"alpha": 0.25}
        assert (loaded.budget, loaded.random_state, loaded.scale_inputs) == (np.inf, 3, None)

    def test_a_generator_as_random_state_is_not_kept(self, tmp_path):
        model = fit(approximation="subset", random_state=np.random.RandomState(1))
        assert round_trip(model, tmp_path).random_state is None

    def test_a_loaded_model_saves_the_same_again(self, file, tmp_path):
        widegp.load(str(file)).save(str(tmp_path / "again.widegp"))
        first, again = arrays_in(file), arrays_in(tmp_path / "again.widegp")
        assert list(first) == list(again)
        assert_same_bits(first.values(), again.values())
        assert header_of(file) == header_of(tmp_path / "again.widegp")

    def test_it_predicts_on_the_backend_that_fitted(self, on_xla, tmp_path):
        loaded = round_trip(on_xla, tmp_path)
        assert type(loaded.fitted_.predictor.backend) is type(on_xla.fitted_.predictor.backend)
        assert_same_model(loaded, on_xla)


class TestContents:
    @pytest.mark.parametrize("name", sorted(NAMES))
    def test_training_rows_only_where_prediction_needs_them(self, name, tmp_path):
        path = tmp_path / "model.widegp"
        fit(approximation=name).save(path)
        arrays = arrays_in(path)
        assert ("rows.X" in arrays) == (name in WITH_NEIGHBORS)
        longest = max(max(a.shape, default=0) for a in arrays.values())
        assert longest == (N if name in ROWS_INSIDE else RANK)

    def test_the_header_says_what_the_file_is(self, file):
        header = header_of(file)
        assert (header["format"], header["format_version"]) == ("widegp-model", 1)
        assert header["package_version"] == widegp.__version__
        assert header["kernel"]["$type"] == "Mixed" and header["posterior"]["$type"] == "FamilyPosterior"
        assert "kernel" not in header["posterior"]

    def test_no_pickle_is_written_or_read(self, vfe, tmp_path, monkeypatch):
        def forbidden(*_, **__):
            raise AssertionError("pickle was used")

        for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            monkeypatch.setattr(pickle, name, forbidden)
        assert_same_model(round_trip(vfe, tmp_path), vfe)
        data = (tmp_path / "model.widegp").read_bytes()
        length = int.from_bytes(data[:8], "little")
        arrays = arrays_in(tmp_path / "model.widegp")
        assert len(data) == 8 + length + sum(a.nbytes for a in arrays.values())
        json.loads(data[8 : 8 + length])

    def test_a_python_function_is_refused_and_leaves_no_file(self, tmp_path):
        kernel = kernels.FromActivation(lambda z: jnp.tanh(2 * z), terms=32)
        model = fit(approximation="subset")
        model.fitted_ = replace(model.fitted_, kernel=kernel)
        with pytest.raises(
            ValueError, match="kernel: an activation given as a Python function cannot be saved; fit"
        ):
            model.save(tmp_path / "model.widegp")
        assert not list(tmp_path.iterdir())

    def test_a_kernel_class_of_the_user_is_refused(self, vfe, tmp_path):
        class Tanh(kernels.Tanh):
            pass

        model = fit(approximation="subset").set_params(kernel=Tanh())
        with pytest.raises(ValueError, match="the class Tanh, which cannot be saved"):
            model.save(tmp_path / "model.widegp")


def refused(path, words):
    """The one sentence with which a file is refused."""
    with pytest.raises(ModelFileError, match=words) as caught:
        widegp.load(path)
    assert str(path) in str(caught.value) and ";" in str(caught.value)
    assert "\n" not in str(caught.value)


class TestBadFiles:
    def test_truncated_anywhere(self, file):
        data = file.read_bytes()
        for length in {*range(1, 40), *range(40, len(data), 97), len(data) - 1}:
            file.write_bytes(data[:length])
            refused(file, "not all of one|damaged")

    def test_one_byte_changed_anywhere(self, file):
        data = file.read_bytes()
        rng = np.random.default_rng(0)
        for place in {*range(24), *range(24, len(data), 37), len(data) - 1}:
            altered = bytearray(data)
            altered[place] ^= int(rng.integers(1, 256))
            file.write_bytes(altered)
            refused(file, "widegp model|damaged|update widegp")

    def test_bytes_added(self, file):
        file.write_bytes(file.read_bytes() + b"\0")
        refused(file, "damaged")

    @pytest.mark.parametrize("data", [bytes(5), bytes(4096), b"x,y\n1,2\n" * 50, b"\xff" * 64, b"[1]"])
    def test_not_a_model(self, data, tmp_path):
        (tmp_path / "other").write_bytes(data)
        refused(tmp_path / "other", "not a widegp model")

    @pytest.mark.parametrize("text", ["{", "[]", '{"format": "other", "format_version": 1}', "[" * 100_000,
                                      '{"format": "widegp-model", "format_version": Infinity}'])  # fmt: skip
    def test_another_safetensors_file(self, text, tmp_path):
        metadata = {"header": text, "sha256": "0" * 64}
        persist.safetensors.save_file({"a": np.ones(3)}, tmp_path / "other", metadata=metadata)
        refused(tmp_path / "other", "not a widegp model")

    def test_safetensors_without_metadata(self, tmp_path):
        persist.safetensors.save_file({"a": np.ones(3)}, tmp_path / "other")
        refused(tmp_path / "other", "not a widegp model")

    def test_empty_missing_and_folder(self, tmp_path):
        (tmp_path / "empty").touch()
        refused(tmp_path / "empty", "empty")
        refused(tmp_path / "missing", "does not exist")
        refused(tmp_path, "not a file")
        refused(tmp_path / "empty" / "below", "cannot be read")

    def test_a_newer_format(self, vfe, tmp_path, monkeypatch):
        with monkeypatch.context() as later:
            later.setattr(persist, "FORMAT_VERSION", 2)
            vfe.save(tmp_path / "model.widegp")
        refused(tmp_path / "model.widegp", "format 2.*update widegp")

    @pytest.mark.parametrize("change", [
        {"kernel": {"$type": "Popen", "args": "ls"}}, {"posterior": None}, {"parameters": {"evil": 1}},
        {"result": {"$type": "FitResult"}}, {"inputs": {"$array": "absent"}}, {"kernel": {"$type": []}},
    ])  # fmt: skip
    def test_forged_contents_with_a_right_checksum(self, file, change):
        file.write_bytes(persist._seal(header_of(file) | change, arrays_in(file)))
        refused(file, "contents are not valid")


class TestSaving:
    def test_an_unfitted_model(self, tmp_path):
        with pytest.raises(NotFittedError):
            WideGPRegressor.plain().save(tmp_path / "model.widegp")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("call", ["replace", "fsync"])
    @pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["full", "interrupt"])
    def test_a_failure_midway_leaves_the_old_file_alone(self, vfe, file, call, error, monkeypatch):
        def fail(*_):
            raise error

        before = file.read_bytes()
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(type(error)):
            vfe.save(file)
        assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]

    def test_overwriting_replaces_the_model(self, file, tmp_path):
        model = fit(approximation="subset", kernel="relu")
        model.save(file)
        assert_same_model(widegp.load(file), model)
        assert list(tmp_path.iterdir()) == [file]

    def test_a_link_is_written_through(self, vfe, file, tmp_path):
        (tmp_path / "link").symlink_to(file)
        file.write_bytes(b"old")
        vfe.save(tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert_same_model(widegp.load(file), vfe)

    def test_no_place_to_write(self, vfe, tmp_path):
        with pytest.raises(ModelFileError, match="is a folder; pass"):
            vfe.save(tmp_path)
        with pytest.raises(ModelFileError, match="does not exist; pass"):
            vfe.save(tmp_path / "absent" / "model.widegp")


def test_a_process_that_only_reads_knows_every_class_that_a_file_may_hold():
    listed = "import json; from widegp.registry import _CLASSES; print(json.dumps(sorted(_CLASSES)))"
    everything = (
        "import importlib, pkgutil, widegp\n"
        "for module in pkgutil.walk_packages(widegp.__path__, 'widegp.'):\n"
        "    try:\n"
        "        module.name.endswith('__main__') or importlib.import_module(module.name)\n"
        "    except ImportError:\n"  # an extra that is not installed
        "        pass\n"
    )
    known, there_are = (
        set(json.loads(subprocess.run([sys.executable, "-c", f"{first}\n{listed}"], **SUBPROCESS).stdout))
        for first in ("import widegp.persist", everything)
    )
    assert known == there_are


def test_trees_of_a_file_predict_the_same_in_another_process(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    trees = TreesInput.fit(X, X[:, 0], 0)
    model = WideGPRegressor.plain(approximation="vfe", rank=10, max_iter=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(trees.training(X), X[:, 0])
    model.fitted_ = replace(model.fitted_, inputs=ChainedMaps((trees, model.fitted_.inputs)), n_features=3)
    model.n_features_in_ = 3
    model.save(tmp_path / "m.widegp")
    np.save(tmp_path / "X.npy", X)
    read = "import numpy as np, sys, widegp; print(*widegp.load(sys.argv[1]).predict(np.load(sys.argv[2])))"
    command = [sys.executable, "-c", read, str(tmp_path / "m.widegp"), str(tmp_path / "X.npy")]
    found = np.array(subprocess.run(command, **SUBPROCESS).stdout.split(), float)
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-12)
