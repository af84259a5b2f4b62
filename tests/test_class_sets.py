"""Sets of classes: exact ranks, coverage by simulation against its law, honest refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import widegp
from widegp import WideGPClassifier
from widegp.conformal import ClassCalibration, rows_needed


def draw(rng, n, sharp=1.0):
    """True probabilities of three classes (n, 3), classes, and probabilities that a model wrongly says."""
    true = rng.dirichlet([0.6, 1.0, 1.4], n)
    y = np.sum(rng.random((n, 1)) > np.cumsum(true, axis=1)[:, :-1], axis=1)
    said = true**sharp * [1.0, 2.0, 0.5]
    return said / said.sum(axis=1, keepdims=True), y


@settings(max_examples=40, deadline=None)
@given(n=st.integers(25, 60), level=st.sampled_from([0.5, 0.8, 0.9]), seed=st.integers(0, 10_000))
def test_sets_are_those_of_a_loop(n, level, seed):
    rng = np.random.default_rng(seed)
    p, y = draw(rng, n)
    q, _ = draw(rng, 7)
    s = sorted(1 - p[i][y[i]] for i in range(n))[math.ceil((n + 1) * level) - 1]
    want = [[1 - row[c] <= s or row[c] == max(row) for c in range(3)] for row in q]
    np.testing.assert_array_equal(ClassCalibration.fit(p, y).sets(q, level), want)


@pytest.mark.parametrize("sharp", [0.3, 3.0], ids=["shy model", "bold model"])
def test_coverage_over_many_draws_follows_its_law(sharp):
    """Given the calibration rows, coverage is a draw of Beta(k, n + 1 - k): new rows in the set are then
    beta-binomial, and their mean over 400 draws is normal about k / (n + 1), however wrong the model is.
    """
    rng, n, new, repeats, level = np.random.default_rng(3), 40, 25, 400, 0.8
    k = math.ceil((n + 1) * level)
    law = stats.betabinom(new, k, n + 1 - k)
    inside, at_least = np.empty(repeats), np.empty(repeats)
    for r in range(repeats):
        calibration = ClassCalibration.fit(*draw(rng, n, sharp))
        p, y = draw(rng, new, sharp)
        came = p[np.arange(new), y]
        # Without the likeliest class of rows whose set were empty, the law is exact.
        inside[r] = np.sum(1 - came <= calibration.scores[k - 1])
        at_least[r] = np.sum(calibration.sets(p, level)[np.arange(new), y])
    z = (inside.mean() - law.mean()) / (law.std() / math.sqrt(repeats))
    assert abs(z) < 3
    assert inside.var() == pytest.approx(law.var(), rel=0.25)
    assert np.all(at_least >= inside)
    assert calibration.coverage(level) == k / (n + 1)


def test_wrong_probabilities_without_calibration_do_not_hold_the_level():
    """What the calibration is for: the classes that the bold model itself says make up 80% hold fewer."""
    p, y = draw(np.random.default_rng(0), 4000, 8.0)
    order = np.argsort(-p, axis=1)
    sums = np.cumsum(np.take_along_axis(p, order, 1), axis=1)
    place = np.argmax(order == y[:, None], axis=1)
    own = np.mean(sums[np.arange(len(y)), place] - p[np.arange(len(y)), y] < 0.8)
    sets = ClassCalibration.fit(p[:2000], y[:2000]).sets(p[2000:], 0.8)
    assert own < 0.77 and np.mean(sets[np.arange(2000), y[2000:]]) > 0.77


def test_sets_are_never_empty_and_grow_with_the_level():
    rng = np.random.default_rng(1)
    calibration = ClassCalibration.fit(*draw(rng, 200))
    p, _ = draw(rng, 300)
    sizes = [calibration.sets(p, level).sum(axis=1) for level in (0.2, 0.5, 0.9, 0.99)]
    assert sizes[0].min() == 1
    assert all(np.all(a <= b) for a, b in itertools.pairwise(sizes))


def test_too_few_rows_give_every_class_and_say_so():
    p, y = draw(np.random.default_rng(0), 18)
    with pytest.warns(UserWarning, match=f"at least {rows_needed(0.95)}"):
        assert ClassCalibration.fit(p, y).sets(p, 0.95).all()


def test_a_class_that_the_model_does_not_know_is_never_held():
    p, y = draw(np.random.default_rng(0), 30)
    y[:10] = -1
    assert np.isinf(ClassCalibration.fit(p, y).scores).sum() == 10
    for bad in ([3], [0.5], [-2]):
        with pytest.raises(ValueError, match="whole numbers"):
            ClassCalibration.fit(p[:1], bad)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(420, 2))
    f = np.column_stack([X[:, 0], X[:, 1], -X.sum(1)]) * 1.5
    return X, np.array(["ant", "bee", "cat"])[np.argmax(f + rng.gumbel(size=f.shape), axis=1)]


def test_the_classifier_keeps_rows_apart_holds_its_level_and_is_saved(table, tmp_path):
    X, y = table
    settings = {"approximation": "vfe", "rank": 12, "max_iter": 10, "metric": "iso", "random_state": 0}
    model = WideGPClassifier(conformal=True, scale_inputs="standard", **settings).fit(X[:260], y[:260])
    assert model.calibration_.n_rows == 86  # a third of fewer than 297 rows
    assert not hasattr(model, "feature_names_in_") and model.n_features_in_ == 2
    sets = model.predict_set(X[260:], 0.9)
    place = np.searchsorted(model.classes_, y[260:])
    low = stats.betabinom(160, 79, 8).ppf(1e-4) / 160  # k = ceil(87 * 0.9) = 79
    assert np.mean(sets[np.arange(160), place]) >= low
    model.save(tmp_path / "m")
    again = widegp.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_set(X[260:], 0.9), sets)
    plain = WideGPClassifier(scale_inputs="standard", **settings).fit(X[:60], y[:60])
    with pytest.raises(ValueError, match="conformal=True"):
        plain.predict_set(X)
