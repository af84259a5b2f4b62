"""Table models: what settings of any kind, calibration and several outputs come to."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import widegp
from widegp.data.errors import TableError
from widegp.data.preprocessing import TargetScaler
from widegp.likelihoods import make_likelihood
from widegp.response_predictive import ResponsePredictive
from widegp.table_model import TableModel
from widegp.table_split import Split, TableSettings, split_table
from widegp.table_targets import OneNumber

PLAIN = {
    "metric": "iso", "noise": "constant", "scale_inputs": "standard", "target_transform": None,
    "trees": "none", "posterior": "map",
}  # fmt: skip


def test_calibrated_intervals_come_from_a_model_that_knows_no_calibrating_row():
    """Else a model that is wrong is calibrated by errors larger than those it makes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=120), "y": rng.normal(size=120)})
    settings = {"kernel": "matern12", "max_iter": 0, "start": {"sigma_eps2": 1e-6}, "seed": 1, **PLAIN}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = TableModel.fit(frame, "y", conformal=True, yardstick=False, **settings)
        kept = TableModel.fit(frame, "y", conformal=True, yardstick=False, keep_held_out=True, **settings)
    np.testing.assert_array_equal(made.predict_interval(frame), kept.predict_interval(frame))
    assert made.provenance["rows"] == 108 and made.provenance["rows_conditioned_on"] == 72
    assert "36 rows to fit were kept apart to calibrate what is predicted." in made.provenance["remarks"]


def test_settings_that_json_does_not_know_are_saved_as_words(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=40), "y": rng.normal(size=40)})
    odd = {
        "kernel": widegp.kernels.Tanh(sigma_a2=1.0, sigma_u2=1.0, sigma_b2=0.1, sigma_v2=1.0),
        "rank": np.int64(20),
        "max_iter": 1,
    }
    odd |= {"priors": {"sigma_b2": widegp.InverseGamma(2.0, 1.0)}, "start": {"sigma_u2": np.array(0.5)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = TableModel.fit(frame, "y", yardstick=False, **odd, **PLAIN)
    made.save(tmp_path / "m.widegp")
    loaded = TableModel.load(tmp_path / "m.widegp")
    assert loaded.provenance == made.provenance and loaded.provenance["settings"]["rank"] == 20
    np.testing.assert_array_equal(loaded.predict(frame), made.predict(frame))


def test_every_output_tells_of_the_levels_of_a_column():
    rng = np.random.default_rng(0)
    level, x = rng.integers(0, 30, 300), rng.normal(size=300)
    frame = pd.DataFrame({"level": [f"L{i}" for i in level], "x": x})
    frame["first"], frame["second"] = x + 0.1 * rng.normal(size=300), rng.normal(size=30)[level]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = TableModel.fit(frame, ["first", "second"], yardstick=False, **PLAIN)
    assert all(one.scores()["r2"] > 0.8 for one in made.held_out)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"likelihood": "gamma"}, "is 0 in row 41"),
        ({"likelihood": "poisson"}, "is 2.5 in row 51"),
        ({"target_transform": "log"}, "positive target, and row 41 has 0;"),
    ],
)
def test_a_target_that_cannot_be_fitted_is_named_by_its_row_of_the_table(settings, words):
    y = np.full(60, 3.0) + np.arange(60) % 4
    y[40], y[50], y[10] = 0.0, 2.5, np.nan
    frame = pd.DataFrame({"x": np.arange(60.0), "y": y})
    with pytest.raises(ValueError, match=words):
        TableModel.fit(frame, "y", seed=2, **settings)


def test_an_update_says_which_rows_it_passes_over_and_which_file_it_has_seen(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TableModel.fit(tmp_path / "t.csv", "y", max_iter=1, yardstick=False, **PLAIN)
    with pytest.warns(UserWarning, match="this very file before"):
        model.update(tmp_path / "t.csv")
    frame.loc[3, "y"] = np.nan
    with pytest.warns(UserWarning, match="1 row without the target 'y' left out"):
        grown = model.update(frame)
    assert grown.provenance["rows_conditioned_on"] == 60 + 59


class TestGroups:
    FRAME = pd.DataFrame({
        "g": [f"p{k}" for k in np.repeat(np.arange(20), np.arange(20) % 4 + 3)] + [None] * 4,
    }).assign(x=lambda t: np.arange(len(t)) % 7 * 1.0, y=lambda t: np.sin(np.arange(len(t))))  # fmt: skip

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("fraction", [0.1, 0.3])
    def test_a_group_is_held_out_whole_or_not_at_all(self, seed, fraction):
        split = split_table(self.FRAME, TableSettings("y", group="g", test_fraction=fraction, seed=seed))
        kinds = self.FRAME.g.fillna("none").to_numpy()[split.numbers - 1]
        fitted, held = set(kinds[: split.n_train]), set(kinds[split.n_train :])
        assert held and not fitted & held and len(fitted | held) == 21
        # As near as whole groups of at most six rows come to the share.
        assert abs(len(split.y_test) - int(fraction * len(self.FRAME))) <= 3
        assert split.encoder.feature_names == ("x",)
        np.testing.assert_array_equal(split.targets, self.FRAME.y.to_numpy()[split.numbers - 1])

    def test_which_groups_were_held_out_is_said(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TableModel.fit(self.FRAME, "y", group="g", max_iter=1, yardstick=False, **PLAIN)
        (told,) = [line for line in model.provenance["remarks"] if "held out whole" in line]
        assert told.startswith("Column 'g': ") and " of its 21 values" in told
        assert model.provenance["group"] == "g"
        # A new row needs no group.
        assert len(model.predict(self.FRAME[["x"]])) == len(self.FRAME)

    @pytest.mark.parametrize(
        "group, words",
        [
            ("G", "no column .G. to group by; did you"),
            ("y", "'y' is the target"),
            ("one", "one value"),
        ],
    )
    def test_what_cannot_group_is_refused(self, group, words):
        with pytest.raises(TableError, match=words):
            split_table(self.FRAME.assign(one=1), TableSettings("y", group=group))


def test_a_target_of_several_is_named_by_its_row_too():
    frame = pd.DataFrame({"x": np.arange(60.0), "y": np.arange(60.0) + 1, "z": np.arange(60.0) + 1})
    frame.loc[30, "z"] = -2.0
    with pytest.raises(ValueError, match="row 31 has -2;"):
        TableModel.fit(frame, ["y", "z"], target_transform="log")


def test_a_group_may_be_dropped_by_name_and_must_part_the_rows_that_have_a_target():
    frame = TestGroups.FRAME
    split = split_table(frame, TableSettings("y", group="g", drop=("g",)))
    assert split.encoder.feature_names == ("x",)
    with pytest.raises(TableError, match="parts no rows"):
        split_table(frame.assign(y=frame.y.where(frame.g == "p3")).iloc[:60], TableSettings("y", group="g",
                    test_fraction=0.5))  # fmt: skip


def test_poisson_counts_that_are_worse_than_the_mean_are_pointed_out():
    rng = np.random.default_rng(0)
    y = rng.poisson(5.0, 40).astype(float)
    split = Split(None, np.zeros((80, 1)), np.tile(y, 2), 40, np.arange(1, 81))

    def noted(f: np.ndarray) -> None:
        likelihood = make_likelihood("poisson")
        found = ResponsePredictive(likelihood, f, np.full(40, 0.1), TargetScaler(0.0, 1.0))
        model = SimpleNamespace(
            fitted_=SimpleNamespace(likelihood=likelihood), predict_distribution=lambda X: found
        )
        OneNumber(("y",)).noted(model, split)

    with pytest.warns(UserWarning, match="negative-binomial"):
        noted(rng.normal(1.6, 1.0, 40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noted(np.log(y + 0.5))
