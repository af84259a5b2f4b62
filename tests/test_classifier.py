"""WideGPClassifier: scikit-learn's contract, weights, calibration and what it learns."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import widegp
from widegp import WideGPRegressor, metrics
from widegp.classifier import WideGPClassifier
from widegp.inference import starts
from widegp.latent_fit import merged_rows

RNG = np.random.default_rng(0)
PLAIN = {"metric": "iso", "scale_inputs": "standard", "trees": "none"}  # nothing is chosen on held-out rows


def table(n, seed=0):
    """Two inputs of which a curve parts the classes, with noise; the true probabilities are known."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    p = 1 / (1 + np.exp(-(3 * np.sin(2 * X[:, 0]) + 2 * X[:, 1])))
    return X, (rng.random(n) < p).astype(int), p


@parametrize_with_checks([WideGPClassifier(**PLAIN, max_iter=3, random_state=0)])
def test_scikit_learns_contract(estimator, check, monkeypatch):
    monkeypatch.setattr(starts, "START_ROWS", 40)  # a good start is not what is checked
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([WideGPClassifier(max_iter=5, random_state=0)])
def test_scikit_learns_contract_with_choices_on_held_out_rows(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_probabilities_are_learned_and_calibrated():
    X, y, p = table(900)
    model = WideGPClassifier(rank=60, neighbors=10, random_state=0).fit(X[:600], y[:600])
    assert model.converged_ and model.fitted_[0].result.approximation == "full-scale"
    q = model.predict_proba(X[600:])[:, 1]
    # The true probabilities cannot be beaten by much; a constant is far behind.
    assert metrics.log_loss(y[600:], q) < metrics.log_loss(y[600:], p[600:]) + 0.06
    assert metrics.auc(y[600:], q) > 0.85
    assert metrics.ece(y[600:], q) < metrics.ece_by_chance(q, draws=300, level=0.99)[1]
    np.testing.assert_array_equal(model.predict(X[600:]), (q > 0.5).astype(int))


def test_strings_three_classes_and_copies():
    X, y, _ = table(150, seed=1)
    names = np.array(["no", "yes", "perhaps"])[np.where(X[:, 1] > 1, 2, y)]
    model = WideGPClassifier(random_state=0, max_iter=10)
    with _quiet():
        model.fit(X, names)
    proba = model.predict_proba(X)
    assert list(model.classes_) == ["no", "perhaps", "yes"] and proba.shape == (150, 3)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert np.mean(model.predict(X) == names) > 0.7
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), proba)


def test_integer_weights_are_repeated_rows_and_zero_weights_no_rows():
    X, y, _ = table(60, seed=2)
    weight = np.random.default_rng(3).integers(0, 4, 60)
    model = WideGPClassifier(random_state=0, max_iter=20)
    with _quiet():
        weighted = clone(model).fit(X, y, sample_weight=weight).predict_proba(X)
        repeated = clone(model).fit(np.repeat(X, weight, 0), np.repeat(y, weight)).predict_proba(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-8)


def test_class_weights_move_the_probabilities():
    X, y, _ = table(120, seed=4)
    with _quiet():
        plain = WideGPClassifier(random_state=0, max_iter=10).fit(X, y).predict_proba(X)[:, 1]
        heavy = WideGPClassifier(random_state=0, max_iter=10, class_weight={1: 5.0}).fit(X, y)
    assert heavy.predict_proba(X)[:, 1].mean() > plain.mean() + 0.05


def test_merged_rows():
    X = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0], [1.0, 2.0]])
    rows, y, weight = merged_rows(X, np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 2.0, 0.0, 4.0]))
    np.testing.assert_array_equal(rows, [[1, 2], [1, 2]])
    np.testing.assert_array_equal(y, [0, 1])
    np.testing.assert_array_equal(weight, [4, 3])


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="one class"):
        WideGPClassifier().fit(np.zeros((3, 1)), ["a", "a", "a"])


def test_a_fit_that_fails_leaves_the_one_before_as_it_was():
    X = np.repeat([[0.0], [1.0]], 6, axis=0)
    with _quiet():
        model = WideGPClassifier(max_iter=2, metric="iso", trees="none").fit(X, np.repeat(["no", "yes"], 6))
    before = model.predict(X)
    with pytest.raises(ValueError, match="approximation"):
        model.set_params(approximation="nearly").fit(X, np.repeat(["cat", "dog"], 6))
    with pytest.raises(ValueError, match="of one class, a;"):
        model.fit(np.ones((3, 4)), ["a", "a", "a"])
    np.testing.assert_array_equal(model.predict(X), before)
    assert list(model.classes_) == ["no", "yes"]


def test_inputs_by_rank_and_weights_of_classes_by_number_go_into_the_file(tmp_path):
    X = np.exp(RNG.normal(size=(40, 2)))
    y = (X[:, 0] > 1).astype(int)
    settings = {"scale_inputs": "quantile", "class_weight": {0: 1.0, 1: 5.0}, "max_iter": 3}
    with _quiet():
        model = WideGPClassifier(**settings, metric="iso", trees="none", random_state=0).fit(X, y)
        model.save(tmp_path / "m.widegp")
        loaded = widegp.load(tmp_path / "m.widegp")
        assert loaded.get_params()["class_weight"] == {0: 1.0, 1: 5.0}
        np.testing.assert_array_equal(loaded.fit(X, y).predict_proba(X), model.predict_proba(X))
    # Ranks are all that counts.
    with _quiet():
        curved = WideGPClassifier(**settings, metric="iso", trees="none", random_state=0).fit(X**3, y)
    np.testing.assert_allclose(curved.predict_proba(X**3), model.predict_proba(X), atol=0.02)


def _quiet():
    # Few iterations, which are too few to converge, keep the test short.
    return warnings.catch_warnings(action="ignore")


LABELS = [np.array(["no", "yes"]), np.array([3, 7, 9]), np.array(["b", "a"], object)]


@pytest.mark.parametrize("labels", LABELS)
def test_a_saved_classifier_predicts_the_same(labels, tmp_path):
    X, y, _ = table(90, seed=6)
    names = labels[np.where(X[:, 1] > 1, len(labels) - 1, y)]
    with _quiet():
        model = WideGPClassifier(random_state=0, max_iter=3).fit(X, names)
    model.save(tmp_path / "model.widegp")
    again = widegp.load(tmp_path / "model.widegp")
    assert isinstance(again, WideGPClassifier) and again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.slow
def test_trees_join_the_inputs_of_classes_where_held_out_rows_are_likelier():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 4))
    boxes = (X[:, 0] > 0.2) ^ (X[:, 1] > -0.1) ^ (X[:, 2] > 0.3)
    y = (rng.uniform(size=3000) < np.where(boxes, 0.95, 0.05)).astype(int)
    settings = {"scale_inputs": "standard", "rank": 50, "max_iter": 5, "random_state": 0}
    loss = {}
    for trees in ("none", "auto"):
        model = WideGPClassifier(**settings, trees=trees).fit(X[:1500], y[:1500])
        loss[trees] = log_loss(y[1500:], model.predict_proba(X[1500:]))
    assert any("trees beside" in note for note in model.fitted_[0].result.notes)
    assert loss["auto"] < loss["none"]


def test_a_warning_of_a_fit_points_to_who_called_it():
    X, y, _ = table(60)
    with pytest.warns(ConvergenceWarning) as caught:
        WideGPRegressor.plain(max_iter=1).fit(X, y)
    (own,) = [warning for warning in caught if warning.category is ConvergenceWarning]
    assert own.filename == __file__


@pytest.mark.parametrize("words", [["a", "b", "c"], np.array(["a", "b", "c"], dtype=object)])
def test_a_regressor_sends_words_to_the_classifier(words):
    with pytest.raises(ValueError, match="use WideGPClassifier"):
        WideGPRegressor().fit(np.zeros((3, 1)), words)
