"""Table models against the regressor on features made by hand, and through a file."""

from __future__ import annotations

import json
import warnings
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widegp
from widegp import WideGPRegressor
from widegp.data.errors import TableError
from widegp.persist import ModelFileError, load_with_table
from widegp.table_model import TableModel, split_table

N = 90
SETTINGS = {"approximation": "vfe", "rank": 8, "max_iter": 3}


def make_table(n: int = N) -> pa.Table:
    rng = np.random.default_rng(0)
    x, flag = rng.normal(size=n), rng.random(n) < 0.5
    y = np.exp(np.sin(2 * x) + 0.5 * flag + 0.1 * rng.normal(size=n))
    return pa.table({"x": x, "$type": flag, "constant": np.ones(n), "y": y})


def fit(table=None, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TableModel.fit(make_table() if table is None else table, "y", **(SETTINGS | changes))


@pytest.fixture(scope="module")
def model():
    return fit(test_fraction=0.3, target_transform="log")


def by_hand(table: pa.Table) -> np.ndarray:
    return np.column_stack([table["x"].to_numpy(), table["$type"].to_numpy().astype(float)])


class TestSplit:
    def test_test_rows_are_those_of_the_stated_rule(self):
        table = make_table()
        split = split_table(table, "y", test_fraction=0.3, seed=5)
        chosen = np.random.default_rng(5).permutation(N)[:27]
        np.testing.assert_array_equal(np.sort(split.y_test), np.sort(table["y"].to_numpy()[chosen]))
        everything = np.concatenate([split.y, split.y_test])
        np.testing.assert_array_equal(np.sort(everything), np.sort(table["y"].to_numpy()))
        rows = {tuple(row) for row in np.column_stack([by_hand(table), table["y"].to_numpy()])}
        for X, y in ((split.X, split.y), (split.X_test, split.y_test)):
            assert {tuple(row) for row in np.column_stack([X, y])} <= rows

    def test_held_out_rows_teach_the_encoding_nothing(self):
        words = np.array(["often"] * N, dtype=object)
        chosen = np.random.default_rng(0).permutation(N)[: int(N * 0.3)]
        words[chosen[:4]] = "only held out"
        words[np.setdiff1d(np.arange(N), chosen)[:10]] = "sometimes"
        table = make_table().append_column("word", pa.array(words))
        split = split_table(table, "y", test_fraction=0.3)
        assert [n for n in split.encoder.feature_names if n.startswith("word")] == [
            "word=often",
            "word=sometimes",
        ]
        assert split.warnings["values of 'word' not seen when fitting"] == 4

    @pytest.mark.parametrize("row", [0, 41, N - 1])
    def test_a_bad_cell_is_named_by_its_row_in_the_file(self, row):
        for name in ("x", "y"):
            table = make_table()
            values = table[name].to_numpy().copy()
            values[row] = np.inf
            bad = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
            with pytest.raises(TableError, match=rf"'{name}'.* row {row + 1}\b"):
                split_table(bad, "y")

    @pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
    def test_a_share_that_is_none(self, fraction):
        with pytest.raises(TableError, match="test fraction"):
            split_table(make_table(), "y", test_fraction=fraction)


class TestFit:
    def test_it_is_the_regressor_on_the_training_rows(self, model):
        split = split_table(make_table(), "y", test_fraction=0.3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = WideGPRegressor(random_state=0, target_transform="log", **SETTINGS).fit(split.X, split.y)
        assert model.regressor.params_ == alone.params_
        np.testing.assert_array_equal(model.held_out.mean, alone.predict(split.X_test))
        np.testing.assert_array_equal(model.held_out.y, split.y_test)

    def test_batches_are_predicted_as_the_regressor_predicts_features(self, model):
        table = make_table(40)
        X = by_hand(table)
        mean, sd, lower, upper, noticed, outside = model.predict_batch(table.to_batches()[0], level=0.7)
        expected = [*model.regressor.predict(X, return_std=True), *model.regressor.predict_interval(X, 0.7)]
        for found, wanted in zip((mean, sd, lower, upper), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        assert not any("y" in words.split("'") for words in noticed)
        assert outside.dtype == bool and outside.any() == any("outside" in words for words in noticed)

    def test_no_rows_and_no_level(self, model):
        empty = model.predict_batch(make_table().slice(0, 0))
        assert [len(part) for part in empty[:4]] == [0] * 4
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            model.predict_batch(make_table(), level=1.0)

    def test_the_record_of_where_it_comes_from(self, tmp_path):
        import hashlib

        path = tmp_path / "t.parquet"
        pq.write_table(make_table(), path)
        stages = []
        told = fit(path, command="widegp fit", progress=lambda stage, *_: stages.append(stage)).provenance
        assert told["table"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert (told["rows"], told["rows_held_out"], told["seed"]) == (81, 9, 0)
        assert told["versions"]["widegp"] == widegp.__version__ and told["seconds"] > 0
        assert told["peak_memory"] > 50 * 2**20 and told["command"] == "widegp fit"
        assert json.loads(json.dumps(told)) == told
        assert list(dict.fromkeys(stages)) == [
            "reading the table", "encoding the columns", "choosing a start", "fit",
            "predicting the held-out rows", "gradient boosting beside it",
        ]  # fmt: skip
        assert told["yardstick"]["rows"] == 81 and told["yardstick"]["rows_held_out"] == 9

    def test_warnings_are_heard_and_kept(self):
        table = make_table()
        x = table["x"].to_numpy().copy()
        chosen = np.random.default_rng(0).permutation(N)[:9]
        x[chosen[0]] = 1000.0
        with pytest.warns(UserWarning, match="not converged"):
            model = TableModel.fit(table.set_column(0, "x", pa.array(x)), "y", **(SETTINGS | {"max_iter": 1}))
        assert any(
            "1 value of 'x' outside the training range" in text for text in model.provenance["warnings"]
        )

    def test_an_unknown_target_is_found_before_the_rows_are_read(self, tmp_path, monkeypatch):
        path = tmp_path / "t.parquet"
        pq.write_table(make_table(), path)
        monkeypatch.setattr("widegp.data.tables.TableSource.read", lambda *_: pytest.fail("rows were read"))
        with pytest.raises(TableError, match="no column 'Y'; did you mean 'y'"):
            TableModel.fit(path, "Y")


class TestConformal:
    """Noise with t tails around a model of far too little noise: only calibration can make intervals hold."""

    WRONG = MappingProxyType(
        {"approximation": "exact", "start": {"sigma_u2": 0.5, "sigma_eps2": 1e-3}, "max_iter": 0}
    )

    def table(self, n, seed):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        return pa.table({"x": x, "y": np.sin(x) + 0.3 * rng.standard_t(2.5, size=n)})

    def model(self, seed, conformal):
        return fit(self.table(300, seed), conformal=conformal, test_fraction=0.4, seed=seed, **self.WRONG)

    def test_held_out_and_new_rows_are_covered_as_promised(self):
        held, new, own = [], [], []
        for seed in range(12):
            model, after = self.model(seed, True), self.table(200, 100 + seed)
            y = after["y"].to_numpy()
            predicted = model.predict_batch(after, level=0.9)
            new.append(np.mean((predicted.lower <= y) & (y <= predicted.upper)))
            held.append(model.held_out.scores()["coverage"])
            own.append(self.model(seed, False).held_out.scores()["coverage"])
        # 60 of 180 rows calibrate: coverage ceil(61 level) / 61, with an sd of 0.04 and 0.03 in each table.
        assert np.mean(new) == pytest.approx(55 / 61, abs=0.035)
        assert np.mean(held) == pytest.approx(58 / 61, abs=0.03)
        assert np.mean(own) < 0.85

    def test_the_report_counts_the_calibrated_intervals(self):
        from widegp.report.summary import summarise

        model = self.model(0, True)
        told = summarise(model.regressor, model.held_out)["held_out"]
        (at_level,) = (c for c in told["coverage"] if c["promised"] == model.held_out.level)
        assert at_level["held"] == told["inside"] == model.held_out.inside.mean()

    def test_the_file_keeps_the_calibrated_intervals(self, tmp_path):
        model, after = self.model(0, True), self.table(20, 100)
        model.save(tmp_path / "m.widegp")
        loaded = TableModel.load(tmp_path / "m.widegp")
        np.testing.assert_array_equal(loaded.held_out.depth, model.held_out.depth)
        for found, wanted in zip(loaded.predict_batch(after), model.predict_batch(after), strict=True):
            np.testing.assert_array_equal(found, wanted)


class TestFile:
    def test_everything_comes_back(self, model, tmp_path):
        model.save(tmp_path / "m.widegp")
        loaded = TableModel.load(tmp_path / "m.widegp")
        assert loaded.encoder == model.encoder and loaded.provenance == model.provenance
        for name, values in model.held_out.to_arrays().items():
            assert loaded.held_out.to_arrays()[name].tobytes() == values.tobytes(), name
        for found, wanted in zip(
            loaded.predict_batch(make_table()), model.predict_batch(make_table()), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)

    def test_the_regressor_alone_comes_back_too(self, model, tmp_path):
        model.save(tmp_path / "m.widegp")
        X = by_hand(make_table())
        np.testing.assert_array_equal(
            widegp.load(tmp_path / "m.widegp").predict(X), model.regressor.predict(X)
        )

    def test_a_plain_regressor_is_refused(self, model, tmp_path):
        model.regressor.save(tmp_path / "m.widegp")
        with pytest.raises(
            ModelFileError, match=r"without the columns of a table; read it with widegp\.load"
        ):
            TableModel.load(tmp_path / "m.widegp")

    def test_without_held_out_rows(self, tmp_path):
        fit(test_fraction=0).save(tmp_path / "m.widegp")
        assert TableModel.load(tmp_path / "m.widegp").held_out is None

    def test_columns_that_make_no_encoder(self, model, tmp_path):
        from widegp.persist import TablePart, save_model

        model.save(tmp_path / "m.widegp")
        _, (text, arrays) = load_with_table(tmp_path / "m.widegp", WideGPRegressor)
        for change in ({"encoder": {"columns": 3}}, {"encoder": None}, {"provenance": None, "encoder": []}):
            save_model(model.regressor, tmp_path / "m.widegp", TablePart(dict(text) | change, arrays))
            with pytest.raises(ModelFileError, match="fit the model again"):
                TableModel.load(tmp_path / "m.widegp")

    @pytest.mark.parametrize("approximation", ["vecchia", "exact", "vfe"])
    def test_rows_that_the_model_holds(self, approximation):
        held = fit(approximation=approximation, neighbors=3, predict_neighbors=4).inputs_held()
        rows = by_hand(make_table())
        assert held.shape[1] == 2 and len(held) >= 2
        assert rows.min() - 1e-9 <= held.min() and held.max() <= rows.max() + 1e-9
