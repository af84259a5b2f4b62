"""Effects, bands and parts of the kernel, against functions and integrals that are known."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import erf
from sklearn.inspection import partial_dependence as sklearn_partial_dependence

from widegp import WideGPRegressor, kernels
from widegp.explain import (
    Source,
    balance,
    explain,
    kernel_shape,
    partial_dependence,
)
from widegp.importance import rank_columns


def sample(n, seed):
    X = np.random.default_rng(seed).uniform(-1, 1, size=(n, 4))
    X[:, 3] = np.round(X[:, 3])
    return X


def fit(function, **settings):
    X = sample(150, 0)
    y = function(X) + 0.01 * np.random.default_rng(1).normal(size=len(X))
    defaults = {"approximation": "exact", "max_iter": 60, "random_state": 0}
    return WideGPRegressor.plain(**(defaults | settings)).fit(X, y)


@pytest.fixture(scope="module")
def additive():
    """5 + 3 x_0 - x_1 over independent inputs of equal variance: 9 to 1."""
    return fit(lambda X: 5 + 3 * X[:, 0] - X[:, 1], ard=True)


@pytest.fixture(scope="module")
def product():
    return fit(lambda X: 2 * X[:, 0] * X[:, 1] + X[:, 2])


def test_partial_dependence_is_that_of_scikit_learn(product):
    X = sample(30, 3)
    ours = partial_dependence(product.fitted_, X, Source("x", (2,)))
    theirs = sklearn_partial_dependence(
        product, X, [2], method="brute", custom_values={2: np.array(ours["x"])}, kind="average"
    )
    # Batches of another size are rounded differently: by 5e-9 at the estimates of this fit, sigma_v2 = 3e4.
    assert np.allclose(ours["mean"], theirs["average"][0], rtol=0, atol=1e-7)


def test_the_band_is_no_narrower_than_the_interval_of_the_average(additive):
    """The posterior covariance of f at the shifted rows, from dense matrices, gives the exact interval."""
    X = sample(25, 4)
    curve = partial_dependence(additive.fitted_, X, Source("x", (0,)), level=0.9)
    train = additive.fitted_.inputs.transform(sample(150, 0))
    K, noise = additive.kernel_, additive.params_["sigma_eps2"]
    precision = np.linalg.inv(K(train) + noise * np.eye(len(train)))
    for g in (0, -1):
        rows = X.copy()
        rows[:, 0] = curve["x"][g]
        rows = additive.fitted_.inputs.transform(rows)
        covariance = K(rows) - K(rows, train) @ precision @ K(train, rows)
        exact = 2 * 1.6448536 * np.sqrt(covariance.mean()) * additive.fitted_.target.sd
        width = curve["upper"][g] - curve["lower"][g]
        assert exact < width < 20 * exact
        assert (curve["upper"][g] + curve["lower"][g]) / 2 == pytest.approx(curve["mean"][g], rel=1e-6)


def test_rows_differ_in_shape_only_where_inputs_interact(product):
    X = sample(60, 5)
    spread = [
        float(np.mean(np.subtract(c["rows_upper"], c["rows_lower"])))
        for c in (partial_dependence(product.fitted_, X, Source("x", (j,))) for j in (0, 2))
    ]
    assert spread[0] > 0.5 > 10 * spread[1]


def test_an_input_of_few_values_gets_those(product):
    curve = partial_dependence(product.fitted_, sample(60, 5), Source("x", (3,)))
    assert curve["discrete"] and curve["x"] == [-1.0, 0.0, 1.0]


def test_explanation_ranks_names_and_is_json(additive):
    told = explain(additive, sample(120, 6), ["a", "b", "c", "d"], top=2)
    assert [item["name"] for item in told["inputs"]][:2] == ["a", "b"]
    assert [curve["name"] for curve in told["partial_dependence"]] == ["a", "b"]
    assert sum(item["weight"] for item in told["inputs"]) == pytest.approx(1)
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_columns_are_ranked_by_importance_and_drawn_in_that_order(additive):
    """Of 5 + 3 x_0 - x_1: both columns at once, then idle ones."""
    sources = [Source("d", (3,)), Source("both", (0, 1)), Source("c", (2,))]
    X = sample(120, 6)
    told = explain(additive, X, list("wxyz"), y=5 + 3 * X[:, 0] - X[:, 1], sources=sources, top=2)
    first = told["inputs"][0]
    assert first["name"] == "both" and first["inputs"] == ["w", "x"]
    assert first["effect"] == pytest.approx(1, abs=0.15) and first["importance"] == pytest.approx(1, abs=0.15)
    assert sum(item["weight"] for item in told["inputs"]) == pytest.approx(1)
    names = [item["name"] for item in told["inputs"]]
    assert [curve["name"] for curve in told["partial_dependence"]] == names[:2]


def test_a_ranking_of_other_columns_is_refused(additive):
    X = sample(20, 0)
    told = rank_columns(additive.fitted_, X, None, [Source("w", (0,))])
    with pytest.raises(ValueError, match="other columns"):
        explain(additive, X, ranking=told)


def test_progress_is_told(additive):
    seen = []
    explain(additive, sample(20, 0), top=2, progress=seen.append)
    steps = [(event.stage, event.iteration, event.total) for event in seen]
    assert steps == [*(("shuffling", i, 4) for i in range(4)), *(("drawing effects", i, 2) for i in range(2))]


def test_frames_give_their_names_without_a_warning(recwarn):
    X = pd.DataFrame(sample(60, 0), columns=list("wxyz"))
    model = WideGPRegressor.plain(approximation="exact", max_iter=5, optimizer="adam").fit(X, X["x"] + 1)
    told = explain(model, X)
    assert told["inputs"][0]["name"] == "x" and told["inputs"][0]["weight"] is None
    assert not recwarn.list


@pytest.mark.parametrize(
    ("X", "names", "says"),
    [
        (sample(1, 0), None, "at least two rows"),
        (sample(9, 0)[:, :2], None, "4 inputs"),
        (sample(9, 0), ["a"], "1 feature"),
    ],
)
def test_wrong_shapes_are_named(additive, X, names, says):
    with pytest.raises(ValueError, match=says):
        explain(additive, X, names)


@pytest.mark.parametrize("rho", [-0.7, 0.3, 0.95])
def test_parts_of_the_kernel_are_moments_of_a_network(rho):
    """E h(Z) h(Z') by Monte Carlo: h(z) = erf(sqrt(pi) z / 2) is smooth, the leaky ReLU angular."""
    kernel = kernels.Mixed(sigma_b2=0.4, sigma_v2=2.0, alpha=0.3, w=0.6)
    d, e = 1.5, 0.7
    c = rho * np.sqrt(d * e)
    parts = kernel.entries(*(np.array([v]) for v in (c, d, e)))
    z = np.random.default_rng(0).multivariate_normal([0, 0], [[d, c], [c, e]], size=400_000)
    smooth = np.prod(erf(np.sqrt(np.pi) / 2 * z), axis=1)
    angular = np.prod(np.maximum(z, 0.3 * z), axis=1)
    for name, weight, draws in (("smooth", 1.2, smooth), ("angular", 0.8, angular)):
        error = weight * draws.std() / np.sqrt(len(draws))
        assert parts[name][0] == pytest.approx(weight * draws.mean(), abs=4.5 * error)
    assert parts["level"][0] == 0.4


def test_balance_adds_up_to_the_prior_variance(additive):
    rows = additive.fitted_.inputs.transform(sample(50, 7))
    told = balance(additive, rows)
    whole = additive.kernel_.diag(rows).mean() + additive.params_["sigma_eps2"]
    assert sum(told["variance"].values()) == pytest.approx(whole, rel=1e-12)
    assert sum(told["share"].values()) == pytest.approx(1)
    assert told["w"] == additive.params_["w"]


@pytest.mark.parametrize("kernel", [kernels.Mixed(w=0.2), kernels.Sigmoid(), kernels.exact_tanh])
def test_kernel_shape_is_the_kernel_between_two_rows(kernel):
    """Rows (s, 0), (s rho, s sqrt(1 - rho^2)) without bias: correlation rho, variance s^2 sigma_u2."""
    kernel = kernel.replace(sigma_a2=0.0, sigma_u2=0.5, sigma_b2=0.3)
    shape = kernel_shape(kernel, np.array([[2.0, 0.0], [0.0, 2.0]]), points=9)
    rho = np.array(shape["rho"])
    turned = 2 * np.column_stack([rho, np.sqrt(1 - rho**2)])
    whole = np.sum([np.array(part) for part in shape["parts"].values()], axis=0)
    assert shape["preactivation_variance"] == pytest.approx(2.0)
    assert whole == pytest.approx(kernel(np.array([[2.0, 0.0]]), turned)[0], rel=1e-9)
