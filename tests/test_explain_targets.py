"""Importance and effects of classes and several outputs against plain loops."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import softmax

from widegp.explain import CURVE_ROWS, class_dependence, explain
from widegp.importance import Sample, prepare, rank_columns, shuffle
from widegp.sources import Source, states_of

WEIGHTS = np.array([[1.5, -1.0, 0.2], [0.0, 1.0, -0.5], [0.3, 0.0, 0.0]])


class KnownClasses:
    """A classifier that knows its probabilities."""

    n_features_in_ = 3
    classes_ = np.array(["a", "b", "c"])
    fitted_ = (SimpleNamespace(input_importance=None, rows=None),)

    def predict_proba(self, X):
        return softmax(X @ WEIGHTS, axis=1)


def rows(n=24, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    p = KnownClasses().predict_proba(X)
    return X, np.array([rng.choice(3, p=row) for row in p])


def test_importance_of_classes_is_a_loop_over_log_losses():
    X, y = rows()
    model = KnownClasses()
    base = prepare(model, X, y, 4, Sample(seed=1))
    told = shuffle(model, base, [0])
    rise, moved, apart = [], [], []
    for shift in base.shifts:
        for i in range(len(base.X)):
            k = (i - shift) % len(base.X)
            changed = base.X[i].copy()
            changed[0] = base.X[k][0]
            own, other, there = (model.predict_proba(x[None])[0] for x in (base.X[i], changed, base.X[k]))
            came = int(base.y[i])
            rise.append(math.log(own[came]) - math.log(other[came]))
            moved.append(sum((own - other) ** 2))
            apart.append(sum((own - there) ** 2))
    shares = [np.mean(base.y == c) for c in range(3)]
    entropy = -sum(s * math.log(s) for s in shares)
    assert told["log_loss_rise"] == pytest.approx(np.mean(rise))
    assert told["importance"] == pytest.approx(np.mean(rise) / entropy)
    assert told["effect"] == pytest.approx(np.mean(moved) / np.mean(apart))
    assert 0 < told["importance_se"] < 1


def test_the_column_with_the_largest_weights_ranks_first_and_one_of_none_has_no_effect():
    X, y = rows(400)
    model = KnownClasses()
    told = explain(model, np.column_stack([X]), ["x", "y", "z"], y=y)
    assert [item["name"] for item in told["inputs"]] == ["x", "y", "z"]
    assert told["balance"] is None and "log loss" in told["words"]["importance"]
    assert told["inputs"][0]["importance"] > 5 * abs(told["inputs"][2]["importance"])


def test_effects_of_classes_are_means_of_probabilities():
    X, _ = rows(60)
    model, source = KnownClasses(), Source("x", (0,))
    found = class_dependence(model, X, source)
    for g, value in enumerate(states_of(source, X).x):
        changed = X[:CURVE_ROWS].copy()
        changed[:, 0] = value
        want = model.predict_proba(changed).mean(axis=0)
        np.testing.assert_allclose([curve["mean"][g] for curve in found], want, rtol=1e-12)
    curve = explain(model, X, outputs=["A", "B", "C"])["partial_dependence"][0]
    spread = [np.ptp(one["mean"]) for one in curve["outputs"]]
    assert curve["output"] == "ABC"[int(np.argmax(spread))]


def part(function, sd):
    def predictive(X):
        mean = function(X)
        return SimpleNamespace(mean=mean, log_density=lambda y: -0.5 * ((y - mean) / sd) ** 2)

    return SimpleNamespace(predictive=predictive, rows=None, target=SimpleNamespace(sd=sd))


def test_several_outputs_add_up_in_units_of_their_spread():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    functions = (lambda X: X[:, 0], lambda X: 1000 * X[:, 1])
    Y = np.column_stack([f(X) for f in functions]) + rng.normal(size=(40, 2)) * [0.5, 500]
    fitted = tuple(part(f, sd) for f, sd in zip(functions, (1.0, 1000.0), strict=True))
    sources = [Source("first", (0,)), Source("second", (1,))]
    told = rank_columns(fitted, X, Y, sources, Sample(seed=2))
    alone = [rank_columns(f, X, Y[:, t], sources, Sample(seed=2)) for t, f in enumerate(fitted)]
    for k in range(2):
        own = told["inputs"][k]
        want = alone[0]["inputs"][k]["error_rise"] + alone[1]["inputs"][k]["error_rise"] / 1000**2
        assert own["error_rise"] == pytest.approx(want)
        both = sum(one["inputs"][k]["log_loss_rise"] for one in alone)
        assert own["log_loss_rise"] == pytest.approx(both)
    # In their own units the second would be all there is.
    assert 0.2 < told["inputs"][0]["importance"] < 0.8
