"""Model files of older versions, on other backends, and with the part that belongs to a table."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from test_persist import arrays_in, assert_same_bits, assert_same_model, fit, header_of, round_trip, table

import widegp
from widegp import WideGPRegressor, persist
from widegp.persist import ModelFileError


@pytest.fixture(scope="module")
def vfe():
    return fit(approximation="vfe")


@pytest.fixture
def file(vfe, tmp_path):
    vfe.save(tmp_path / "model.widegp")
    return tmp_path / "model.widegp"


class TestVersionsAndDevices:
    FIXTURES = Path(__file__).parent / "fixtures"

    @pytest.mark.parametrize("backend", [None, "native", "xla"])
    def test_a_file_of_format_1_stays_loadable(self, backend):
        """Written by the first release: full-scale, ARD, Box-Cox; its numbers were stored beside it."""
        stored = json.loads((self.FIXTURES / "model-v1.json").read_text())
        path = self.FIXTURES / "model-v1.widegp"
        assert header_of(path)["format_version"] == 1
        model = persist.load_model(path, WideGPRegressor, backend)
        mean, sd = model.predict(stored["X"], return_std=True)
        lower, upper = model.predict_interval(stored["X"], level=stored["level"])
        for name, found in {"mean": mean, "sd": sd, "lower": lower, "upper": upper}.items():
            np.testing.assert_allclose(found, stored[name], rtol=1e-8, err_msg=name)
        for name, value in stored["params"].items():
            np.testing.assert_array_equal(model.params_[name], value)

    @pytest.mark.parametrize("name", ["vfe", "full-scale", "exact"])
    def test_a_model_of_one_backend_predicts_with_another(self, name, tmp_path):
        model = fit(approximation=name, backend="native")
        model.save(tmp_path / "model.widegp")
        loaded = persist.load_model(tmp_path / "model.widegp", WideGPRegressor, backend="xla")
        assert loaded.fitted_.predictor.backend.name == "xla" != model.fitted_.predictor.backend.name
        X, _ = table(7, seed=1)
        for found, expected in zip(loaded.predict(X, True), model.predict(X, True), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8)

    def test_an_unknown_backend_is_not_the_files_fault(self, file):
        with pytest.raises(ValueError, match="Unknown backend 'cuda'") as caught:
            persist.load_model(file, WideGPRegressor, backend="cuda")
        assert not isinstance(caught.value, ModelFileError)

    def test_a_checkpoint_is_not_part_of_the_model(self, tmp_path):
        model = fit(approximation="subset", checkpoint=tmp_path / "fit.journal")
        assert round_trip(model, tmp_path).checkpoint is None
        assert str(tmp_path) not in (tmp_path / "model.widegp").read_bytes().decode("latin-1")


class TestTablePart:
    PART = persist.TablePart(
        {"columns": {"$array": 1, "$type": "Popen", "größe": [0.1, None, "x"]}, "big": 2**53 + 1},
        {"y": np.array([0.1, -0.0, np.inf]), "level": np.array(0.95)},
    )

    def test_it_comes_back_as_it_was(self, vfe, tmp_path):
        persist.save_model(vfe, tmp_path / "model.widegp", self.PART)
        model, (text, arrays) = persist.load_with_table(tmp_path / "model.widegp", WideGPRegressor)
        assert text == self.PART.text and list(arrays) == ["y", "level"]
        assert_same_bits(arrays.values(), self.PART.arrays.values())
        assert_same_model(model, vfe)
        assert_same_model(widegp.load(tmp_path / "model.widegp"), vfe)

    def test_a_model_without_one(self, file):
        with pytest.raises(
            ModelFileError, match=r"without the columns of a table; read it with widegp\.load"
        ):
            persist.load_with_table(file, WideGPRegressor)

    def test_numbers_that_json_cannot_hold_are_refused_before_writing(self, vfe, tmp_path):
        with pytest.raises(ValueError, match="JSON"):
            persist.save_model(vfe, tmp_path / "model.widegp", persist.TablePart({"x": np.nan}, {}))
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("change", [{"table": "{"}, {"table": 3}, {"table_arrays": {"$array": "absent"}}])
    def test_forged_parts(self, vfe, change, tmp_path):
        path = tmp_path / "model.widegp"
        persist.save_model(vfe, path, self.PART)
        path.write_bytes(persist._seal(header_of(path) | change, arrays_in(path)))
        with pytest.raises(ModelFileError, match="contents are not valid"):
            persist.load_with_table(path, WideGPRegressor)
        assert_same_model(widegp.load(path), vfe)


class TestPlaces:
    def test_a_device_is_never_replaced(self, vfe):
        with pytest.raises(ModelFileError, match="is a device or a pipe"):
            vfe.save("/dev/null")
        assert not os.path.isfile("/dev/null")

    def test_a_long_name(self, vfe, tmp_path):
        vfe.save(tmp_path / ("m" * 250))
        assert_same_model(widegp.load(tmp_path / ("m" * 250)), vfe)
