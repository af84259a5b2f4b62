"""Shuffled columns against plain loops, integrals that are known, and scikit-learn."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from benchmarks.tables import FOLDER
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import permutation_importance

from widegp.data.tables import open_table
from widegp.importance import (
    PREDICTIONS,
    Sample,
    correlations,
    groups_together,
    pair_mean,
    prepare,
    rank_columns,
    shuffle,
)
from widegp.sources import Source, source_columns
from widegp.table_model import TableModel
from widegp.table_split import TableSettings, split_table


class Known:
    """A model that predicts f(x) with unit variance."""

    rows = None

    def __init__(self, function):
        self.function, self.seen = function, []

    def predictive(self, X):
        mean = self.function(X)
        self.seen.append(X)
        return SimpleNamespace(mean=mean, log_density=lambda y: -0.5 * (y - mean) ** 2)


def ranked(function, X, y=None, sources=None, **options):
    sources = sources or [Source(str(j), (j,)) for j in range(X.shape[1])]
    told = rank_columns(Known(function), X, y, sources, **options)
    return told | {"inputs": {item["name"]: item for item in told["inputs"]}}


class TestShuffle:
    def test_is_a_plain_loop_over_pairs(self):
        rng = np.random.default_rng(0)
        X, noise = rng.normal(size=(30, 3)), rng.normal(size=30)
        model = Known(lambda X: X[:, 0] * X[:, 1] + np.sin(X[:, 2]))
        base = prepare(model, X, model.function(X) + noise, 5, Sample(seed=3))
        told = shuffle(model, base, [1, 2])
        errors, losses, effects, both = [], [], [], []

        def f(row, giver):
            changed = base.X[row].copy()
            changed[[1, 2]] = base.X[giver][[1, 2]]
            return model.function(changed[None])[0]

        for shift in base.shifts:
            for i in range(30):
                k = (i - shift) % 30
                errors.append((base.y[i] - f(i, k)) ** 2 - (base.y[i] - f(i, i)) ** 2)
                losses.append(0.5 * errors[-1])
                effects.append((f(i, k) - f(i, i)) ** 2 / 2)
                both.append((f(i, i) - f(i, k) - f(k, i) + f(k, k)) ** 2 / 4)
        variance, variance_y = (
            np.mean([(v[i] - v[i - s]) ** 2 / 2 for s in base.shifts for i in range(30)])
            for v in (base.mean, base.y)
        )
        assert len(base.shifts) == 28 and variance == pytest.approx(np.var(base.mean), rel=0.1)
        assert told["error_rise"] == pytest.approx(np.mean(errors))
        assert told["importance"] == pytest.approx(np.mean(errors) / (2 * variance_y))
        assert told["log_loss_rise"] == pytest.approx(np.mean(losses))
        assert told["effect"] == pytest.approx(np.mean(effects) / variance)
        assert told["interactions"] == pytest.approx(np.mean(both) / variance)

    def test_shares_of_a_linear_function(self):
        """y = 3 x_0 - x_1 + eps, Var 9/3, 1/3 and 1: nothing interacts, and noise is nobody's."""
        rng = np.random.default_rng(1)
        X = rng.uniform(-1, 1, (3000, 3))
        told = ranked(lambda X: 3 * X[:, 0] - X[:, 1], X, 3 * X[:, 0] - X[:, 1] + rng.normal(size=3000))
        for name, importance, effect in (("0", 9 / 13, 0.9), ("1", 1 / 13, 0.1), ("2", 0, 0)):
            item = told["inputs"][name]
            assert abs(item["importance"] - importance) <= 3 * item["importance_se"]
            assert abs(item["effect"] - effect) <= 3 * item["effect_se"]
            assert item["interactions"] == pytest.approx(0, abs=1e-12)
        assert json.loads(json.dumps(told, allow_nan=False)) == told

    def test_interactions_are_told_from_main_effects(self):
        """Var 2 x_0 x_1 = 4/9 and Var x_2 = 1/3; neither x_0 nor x_1 does anything alone."""
        X = np.random.default_rng(2).uniform(-1, 1, (3000, 3))
        told = ranked(lambda X: 2 * X[:, 0] * X[:, 1] + X[:, 2], X)["inputs"]
        for name, effect, interactions in (("0", 4 / 7, 4 / 7), ("1", 4 / 7, 4 / 7), ("2", 3 / 7, 0)):
            assert told[name]["effect"] == pytest.approx(effect, abs=0.06)
            assert told[name]["interactions"] == pytest.approx(interactions, abs=0.06)
            assert told[name]["importance"] is None

    def test_levels_of_a_category_are_shuffled_together(self):
        """f = x + (0, 2, 4) by level: no row of two levels or none, and rows that stay are not predicted."""
        rng = np.random.default_rng(0)
        level = rng.choice(3, size=1000, p=[0.98, 0.01, 0.01])
        X = np.column_stack([rng.normal(size=1000), np.eye(3)[level]])
        model = Known(lambda X: X @ [1.0, 0.0, 2.0, 4.0])
        told = rank_columns(model, X, None, [Source("x", (0,)), Source("c", (1, 2, 3), "category")])
        assert np.all(np.concatenate(model.seen)[:, 1:].sum(1) == 1)
        assert len(model.seen[2]) < 0.1 * len(model.seen[1])
        variance = np.var(np.array([0.0, 2.0, 4.0])[level])
        effect = next(item["effect"] for item in told["inputs"] if item["name"] == "c")
        assert effect == pytest.approx(variance / (variance + 1), abs=0.03)

    def test_constants_have_no_shares(self):
        told = ranked(lambda X: np.ones(len(X)), np.random.default_rng(0).normal(size=(20, 2)), np.ones(20))
        assert told["inputs"]["0"]["importance"] is None and told["inputs"]["0"]["effect"] is None
        assert told["inputs"]["0"]["error_rise"] == 0


@pytest.mark.parametrize("repeats", [1, 4])
def test_standard_errors_are_those_of_fresh_rows(repeats):
    """The spread over many tables of 60 rows of y = x_0 + x_0 x_1, beside the mean of the variances."""
    rng = np.random.default_rng(0)
    model = Known(lambda X: X[:, 0] + X[:, 0] * X[:, 1])
    found = {name: [] for name in ("error_rise", "importance", "effect", "interactions")}
    for _ in range(800):
        X = rng.normal(size=(60, 2))
        base = prepare(model, X, model.function(X) + rng.normal(size=60), PREDICTIONS // (60 * repeats))
        told = shuffle(model, base, [1])
        for name in found:
            found[name].append((told[name], told[f"{name}_se"]))
    assert len(base.shifts) == repeats
    for name, pairs in found.items():
        value, se = np.array(pairs).T
        assert np.sqrt(np.mean(se**2)) == pytest.approx(value.std(), rel=0.2), name


class TestCorrelations:
    def test_of_two_numbers_is_spearmans(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=200)
        X = np.column_stack([x, np.exp(-x + 0.3 * rng.normal(size=200))])
        r = correlations(X, [[0], [1]])
        assert r[0, 1] == pytest.approx(abs(spearmanr(X[:, 0], X[:, 1])[0])) and r[0, 0] == pytest.approx(1)

    def test_of_two_categories_is_goodman_and_kruskals(self):
        """tau(a | b) = (sum p_ab^2 / p_b - sum p_a^2) / (1 - sum p_a^2), by counting."""
        rng = np.random.default_rng(0)
        a = rng.integers(4, size=500)
        b = np.where(rng.random(500) < 0.7, a // 2, rng.integers(2, size=500))
        table = np.histogram2d(a, b, [4, 2])[0] / 500

        def tau(p):
            own = np.sum(p.sum(1) ** 2)
            return (np.sum(p**2 / p.sum(0)) - own) / (1 - own)

        X = np.hstack([np.eye(4)[a], np.eye(2)[b]])
        r = correlations(X, [range(4), range(4, 6)])
        assert r[0, 1] == pytest.approx(np.sqrt(min(tau(table), tau(table.T))))

    def test_columns_that_move_together_are_shuffled_as_one(self):
        """f = x_0 + x_1 with x_1 nearly x_0: alone each moves a quarter of Var f, as one all of it."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=2000)
        X = np.column_stack([x, x + 0.05 * rng.normal(size=2000), rng.normal(size=2000), np.ones(2000)])
        told = ranked(lambda X: X[:, 0] + X[:, 1], X)
        (group,) = told["together"]
        assert group["names"] == ["0", "1"] and group["correlation"] > 0.99
        assert told["inputs"]["0"]["effect"] == pytest.approx(0.25, abs=0.03)
        assert group["effect"] == pytest.approx(1, abs=0.05)

    def test_no_group_holds_a_pair_below_the_limit(self):
        r = np.array([[1, 0.95, 0.8], [0.95, 1, 0.93], [0.8, 0.93, 1]])
        assert groups_together(r) == [([0, 1], 0.95)]
        assert groups_together(np.ones((1, 1))) == []


class OnFrames(RegressorMixin, BaseEstimator):
    """Predictions of the columns as they are, for scikit-learn."""

    def __init__(self, model):
        self.model = model

    def fit(self, *_):
        return self

    def predict(self, frame):
        return self.model.predict_batch(pa.Table.from_pandas(frame, preserve_index=False)).mean


def agrees_with_scikit_learn(table, target, repeats=10, **settings):
    """Both on the held-out rows; scikit-learn shuffles columns of the table, ours their inputs."""
    model = TableModel.fit(table, target, seed=0, keep_held_out=True, yardstick=False, **settings)
    order = np.random.default_rng(0).permutation(table.num_rows)
    test = np.sort(order[: int(table.num_rows * settings["test_fraction"])])
    frame = table.take(test).to_pandas()
    y = frame[target].to_numpy(float)
    frame = frame[list(model.encoder.input_names)]
    theirs = permutation_importance(
        OnFrames(model), frame, y, scoring="neg_mean_squared_error", n_repeats=repeats, random_state=0
    )
    ours = {item["name"]: item for item in model.study.ranking["inputs"]}
    for name, mean, sd in zip(frame.columns, theirs.importances_mean, theirs.importances_std, strict=True):
        error = np.hypot(ours[name]["error_rise_se"], sd / np.sqrt(repeats))
        assert abs(ours[name]["error_rise"] - mean) <= 2 * error, name
    return model, ours


@pytest.fixture(scope="module")
def simulated():
    rng = np.random.default_rng(0)
    n = 400
    x, town = rng.normal(size=n), rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    rare = np.where(rng.random(n) < 0.01, "yes", "no")
    y = 2 * x + np.where(town == "b", 3.0, 0.0) + 0.3 * rng.normal(size=n)
    return pa.table({"x": x, "town": town, "rare": rare, "idle": rng.normal(size=n), "y": y})


def test_agrees_with_scikit_learn(simulated):
    """And a column of nearly one level comes last, not second."""
    settings = {"approximation": "vfe", "rank": 40, "max_iter": 30, "test_fraction": 0.4}
    model, ours = agrees_with_scikit_learn(simulated, "y", **settings)
    assert ours["x"]["importance"] > ours["town"]["importance"] > 10 * abs(ours["rare"]["importance"])
    split = split_table(open_table(simulated), TableSettings("y", test_fraction=0.4))
    assert {tuple(row) for row in model.study.X} == {tuple(row) for row in split.X_test}
    assert len(source_columns(model.encoder)) == 4


def test_a_study_is_kept_with_the_model(simulated, tmp_path):
    quick = {"approximation": "vfe", "rank": 8, "max_iter": 3, "metric": "iso", "noise": "constant"}
    quick |= {"scale_inputs": "standard", "trees": "none", "posterior": "map", "target_transform": None}
    model = TableModel.fit(simulated, "y", **quick)
    model.save(tmp_path / "m")
    again = TableModel.load(tmp_path / "m")
    assert again.study.ranking == model.study.ranking
    np.testing.assert_array_equal(again.study.X, model.study.X)
    np.testing.assert_array_equal(again.inputs_held(), model.study.X)
    unseen = TableModel.fit(simulated, "y", test_fraction=0, **quick)
    assert unseen.study is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hotel_rates", "diamonds"])
def test_agrees_with_scikit_learn_on_real_tables(name):
    path = FOLDER / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"{name}.parquet is not in {FOLDER.name}; set WIDEGP_DATA to its folder")
    frame = pd.read_parquet(path).sample(2000, random_state=0)
    target = {"hotel_rates": "avg_price_per_room", "diamonds": "price"}[name]
    agrees_with_scikit_learn(
        pa.Table.from_pandas(frame, preserve_index=False), target, approximation="vfe", rank=100, ard=True,
        max_iter=30, test_fraction=0.3,
    )  # fmt: skip


def test_errors_of_means_do_not_overflow():
    base = SimpleNamespace(returned=lambda pairs: pairs[::-1])
    terms = np.random.default_rng(0).normal(size=(4, 10))
    small, large = (pair_mean(base, scale * terms) for scale in (1.0, 1e200))
    np.testing.assert_allclose(large, 1e200 * np.array(small), rtol=1e-12)
