"""Table models against the regressor on features made by hand, and through a file."""

from __future__ import annotations

import json
import warnings
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import r2_score

import widegp
from widegp import WideGPRegressor
from widegp.data.arrays import is_mapped
from widegp.data.errors import TableError
from widegp.data.tables import TableSource
from widegp.notices import Notice
from widegp.persist import ModelFileError, load_with_table
from widegp.table_model import TableModel
from widegp.table_split import TableSettings, split_table

N = 90
SETTINGS = {"approximation": "vfe", "rank": 8, "max_iter": 3}
# Nothing is chosen on held-out rows.
UNCHOSEN = {"metric": "iso", "noise": "constant", "scale_inputs": "standard", "target_transform": None}
UNCHOSEN |= {"trees": "none"}


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
        split = split_table(table, TableSettings("y", test_fraction=0.3, seed=5))
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
        split = split_table(table, TableSettings("y", test_fraction=0.3))
        assert [n for n in split.encoder.feature_names if n.startswith("word")] == [
            "word=often",
            "word=sometimes",
        ]
        assert split.warnings[Notice("unseen", "word")] == 4

    @pytest.mark.parametrize("row", [0, 41, N - 1])
    def test_a_bad_cell_is_named_by_its_row_in_the_file(self, row):
        for name in ("x", "y"):
            table = make_table()
            values = table[name].to_numpy().copy()
            values[row] = np.inf
            bad = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
            with pytest.raises(TableError, match=rf"'{name}'.* row {row + 1}\b"):
                split_table(bad, TableSettings("y"))

    @pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
    def test_a_share_that_is_none(self, fraction):
        with pytest.raises(TableError, match="test fraction"):
            split_table(make_table(), TableSettings("y", test_fraction=fraction))


class TestFit:
    def test_it_is_the_regressor_on_the_training_rows(self, model):
        split = split_table(make_table(), TableSettings("y", test_fraction=0.3))
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
        told = fit(path, command="widegp fit", progress=lambda event: stages.append(event.stage)).provenance
        assert told["table"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert (told["rows"], told["rows_held_out"], told["seed"]) == (81, 9, 0)
        assert told["versions"]["widegp"] == widegp.__version__ and told["seconds"] > 0
        assert told["peak_memory"] > 50 * 2**20 and told["command"] == "widegp fit"
        assert json.loads(json.dumps(told)) == told
        assert list(dict.fromkeys(stages)) == [
            "reading the table", "encoding the columns", "choices", "whole", "posterior", "curvature",
            "predicting the held-out rows", "shuffling the columns", "gradient boosting beside it",
            "conditioning on all rows",
        ]  # fmt: skip
        assert told["yardstick"]["rows"] == 81 and told["yardstick"]["rows_held_out"] == 9

    def test_warnings_are_heard_and_kept(self):
        table = make_table()
        x = table["x"].to_numpy().copy()
        chosen = np.random.default_rng(0).permutation(N)[:9]
        x[chosen[0]] = 1000.0
        settings = SETTINGS | UNCHOSEN | {"max_iter": 1}
        with pytest.warns(UserWarning, match="not converged"):
            model = TableModel.fit(table.set_column(0, "x", pa.array(x)), "y", **settings)
        assert any(
            "1 value of 'x' outside the training range" in text for text in model.provenance["details"]
        )

    def test_an_unknown_target_of_a_large_table_is_found_before_its_rows(self, tmp_path, monkeypatch):
        path = tmp_path / "t.parquet"
        pq.write_table(make_table(), path)
        monkeypatch.setattr("widegp.data.columns.QUICKLY_READ", 10)
        monkeypatch.setattr(
            "widegp.data.tables.TableSource.batches", lambda *_, **__: pytest.fail("rows were read")
        )
        with pytest.raises(TableError, match="no target 'Y'; did you mean 'y'"):
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


def awkward(n: int = 400) -> pd.DataFrame:
    """Categories of few and many levels, dates, gaps, and rows without a target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "x": rng.normal(size=n), "town": rng.choice([f"t{i}" for i in range(25)], n),
        "kind": rng.choice(["a", "b", None], n), "day": pd.date_range("2019-01-01", periods=n, freq="3D"),
    })  # fmt: skip
    level = frame["town"].str[1:].astype(float)
    frame["price"] = np.sin(2 * frame["x"]) + level / 10 + 0.1 * rng.normal(size=n)
    frame.loc[::7, "x"] = np.nan
    frame.loc[[3, 90], "price"] = np.nan
    return frame


class TestFrames:
    SETTINGS = MappingProxyType(
        {"approximation": "vfe", "rank": 30, "test_fraction": 0.25, "trees": "none", "max_iter": 10}
    )

    @pytest.fixture(scope="class")
    def fitted(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TableModel.fit(awkward(), target="price", **self.SETTINGS)

    def test_frames_of_every_library_give_the_same_model(self, fitted):
        frame = awkward()
        for other in (polars.from_pandas(frame), pa.Table.from_pandas(frame)):
            split = split_table(other, TableSettings("price", test_fraction=0.25))
            assert split.encoder == fitted.encoder
        mean = fitted.predict(frame)
        np.testing.assert_array_equal(fitted.predict(polars.from_pandas(frame)), mean)
        assert mean.shape == (len(frame),)

    def test_predictions_are_those_of_batches(self, fitted):
        frame = awkward().iloc[:50]
        batch = fitted.predict_batch(pa.Table.from_pandas(frame), level=0.7)
        np.testing.assert_array_equal(fitted.predict(frame), batch.mean)
        np.testing.assert_array_equal(fitted.predict_interval(frame, 0.7), [batch.lower, batch.upper])

    def test_the_score_is_scikit_learns(self, fitted):
        frame = awkward()
        here = frame["price"].notna()
        expected = r2_score(frame.loc[here, "price"], fitted.predict(frame)[here])
        assert fitted.score(frame) == pytest.approx(expected, rel=1e-10) and expected > 0.5

    def test_rows_without_a_target_are_left_out_with_a_line(self, fitted):
        assert fitted.provenance["rows"] + fitted.provenance["rows_held_out"] == 398
        assert "2 rows without the target 'price' left out." in fitted.provenance["remarks"]
        with pytest.raises(TableError, match=r"'price' is missing in row 4 \(2 of 400 rows\); drop"):
            TableModel.fit(awkward(), "price", missing_target="error")

    def test_what_is_odd_about_a_frame_is_one_warning(self, fitted):
        odd = awkward().iloc[:3].assign(town="nowhere", more=1)
        with pytest.warns(UserWarning, match=r"3 rows with the column 'more'.*3 values of 'town' not seen"):
            fitted.predict(odd)

    def test_the_saved_model_has_seen_all_rows(self, fitted):
        """At fixed parameters, the posterior is that of the formula of anchors, given all rows."""
        assert fitted.provenance["rows_conditioned_on"] == 398
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept = TableModel.fit(awkward(), target="price", keep_held_out=True, **self.SETTINGS)
            split = split_table(awkward(), TableSettings("price", test_fraction=0.25))
        assert kept.provenance["rows_conditioned_on"] == len(split.y)
        assert kept.regressor.params_ == fitted.regressor.params_
        own = fitted.regressor.fitted_
        rows, z, Z = own.inputs.transform(split.rows), own.standardised(split.targets), own.posterior.Z
        noise = own.params["sigma_eps2"] * own.spread(rows)
        K = np.asarray(own.kernel(rows, Z))
        inner = np.asarray(own.kernel(Z, Z)) + K.T @ (K / noise[:, None])
        weights = np.linalg.solve(inner, K.T @ (z / noise))
        expected = np.asarray(own.kernel(own.inputs.transform(split.X_test), Z)) @ weights
        # The anchors' matrix has a condition of 3e12: what is added to its diagonal moves means by 0.005.
        np.testing.assert_allclose(own.latent(split.X_test).mean, expected, atol=0.01)
        assert np.abs(kept.regressor.fitted_.latent(split.X_test).mean - expected).max() > 0.05
        mean = fitted.regressor.predict(split.X_test)
        np.testing.assert_array_equal(kept.held_out.mean, fitted.held_out.mean)
        np.testing.assert_array_equal(kept.held_out.mean, kept.regressor.predict(split.X_test))
        closer = np.mean((mean - split.y_test) ** 2)
        assert closer < np.mean((kept.held_out.mean - split.y_test) ** 2)
        assert fitted.regressor.result_.path == kept.regressor.result_.path


class TestStreamed:
    """A folder of Parquet in small batches, encoded into a file, gives the table in memory."""

    def test_the_split_is_that_of_the_table_in_memory(self, tmp_path, monkeypatch):
        frame = awkward()
        for i in range(4):
            frame.iloc[100 * i : 100 * (i + 1)].to_parquet(tmp_path / f"{i}.parquet")
        settings = TableSettings("price", test_fraction=0.25, seed=3)
        memory = split_table(frame, settings)
        monkeypatch.setattr("widegp.table_split.IN_MEMORY", 100)
        batches = TableSource.batches
        small = lambda self, rows=0, columns=None: batches(self, 37, columns)  # noqa: E731
        monkeypatch.setattr(TableSource, "batches", small)
        stored = split_table(tmp_path, settings)
        assert is_mapped(stored.rows) and is_mapped(stored.X) and not is_mapped(memory.rows)
        assert stored.encoder.feature_names == memory.encoder.feature_names
        np.testing.assert_allclose(stored.rows, memory.rows, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(stored.targets, memory.targets)
        assert stored.warnings == memory.warnings

    def test_a_fit_from_files(self, tmp_path, monkeypatch):
        frame = awkward()
        frame.iloc[:150].to_parquet(tmp_path / "0.parquet")
        frame.iloc[150:].to_parquet(tmp_path / "1.parquet")
        monkeypatch.setattr("widegp.table_split.IN_MEMORY", 100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Rows in files are fitted without the choices on held-out rows, which need them in memory.
            settings = {"approximation": "vfe", "rank": 30, "test_fraction": 0.25, "max_iter": 4}
            settings |= UNCHOSEN
            stored = TableModel.fit(tmp_path, "price", **settings)
            monkeypatch.undo()
            memory = TableModel.fit(frame, "price", **settings)
        np.testing.assert_allclose(stored.predict(frame), memory.predict(frame), rtol=1e-6)
        assert stored.provenance["table"]["sha256"] and stored.provenance["rows_conditioned_on"] == 398


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
        fit(test_fraction=0, **UNCHOSEN).save(tmp_path / "m.widegp")
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
        held = fit(approximation=approximation, neighbors=3, predict_neighbors=4, **UNCHOSEN).inputs_held()
        rows = by_hand(make_table())
        assert held.shape[1] == 2 and len(held) >= 2
        assert rows.min() - 1e-9 <= held.min() and held.max() <= rows.max() + 1e-9
