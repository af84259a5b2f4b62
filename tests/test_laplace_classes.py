"""The softmax over several classes, against dense matrices, two classes as one function, and differences."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from naive_laplace import mode_and_evidence, softmax_mode_and_evidence
from test_laplace import THETA, DenseProblem, NeighborProblem, X, covariance

from widegp.laplace import Solved
from widegp.laplace_classes import ClassResponse, class_evidence, find_class_mode
from widegp.likelihoods import Bernoulli
from widegp.likelihoods.softmax import Softmax

LEVEL = {2: np.array([-0.2, 0.2]), 3: np.array([0.3, -0.4, 0.1]), 5: np.array([0.5, -0.6, 0.0, 0.4, -0.3])}


def seen(C, seed=1, weight=1.0):
    rng = np.random.default_rng(seed)
    f = 1.5 * np.linalg.cholesky(covariance(THETA)[0]) @ rng.standard_normal((len(X), C))
    likelihood = Softmax(C)
    return ClassResponse(likelihood, likelihood.sample(f + LEVEL[C], rng), LEVEL[C], weight)


@pytest.mark.parametrize("C", [2, 3, 5])
def test_the_mode_is_the_dense_one_and_the_evidence_below_the_dense_one(C):
    weight = np.tile([1.0, 2.0], 20)
    response = seen(C, weight=weight)
    problem = DenseProblem(THETA)
    mode = find_class_mode(problem, response)
    f, value, _ = softmax_mode_and_evidence(problem.K, response.y, LEVEL[C], weight)
    assert mode.problem is None and mode.steps < 15
    np.testing.assert_allclose(mode.f, f, atol=1e-6)
    # A bound of the evidence from below: -log q is at least that of the coupled determinant, and near it.
    assert value - 1e-7 <= mode.value < value + 0.5
    if C == 2:
        assert mode.value == pytest.approx(value, abs=1e-7)


def test_two_classes_are_one_function_of_twice_the_variance():
    response = seen(2)
    mode = find_class_mode(DenseProblem(THETA), response)
    f, value = mode_and_evidence(2 * covariance(THETA)[0], Bernoulli(), response.y, LEVEL[2] @ [-1, 1])
    np.testing.assert_allclose(mode.f @ [-1, 1], f, atol=1e-6)
    assert mode.value == pytest.approx(value, abs=1e-7)


def test_where_all_classes_are_equally_likely_the_bound_is_the_evidence():
    """Rows that say next to nothing: P stays 1/C."""
    C = 4
    response = ClassResponse(Softmax(C), np.arange(40) % C, 0.0, 1e-5)
    mode = find_class_mode(DenseProblem(THETA), response)
    value = softmax_mode_and_evidence(covariance(THETA)[0], response.y, np.zeros(C), 1e-5)[1]
    assert mode.value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("C", [2, 3, 5])
def test_gradient_is_that_of_the_whole_evidence(C):
    response = seen(C, weight=np.tile([1.0, 2.0], 20))
    found = class_evidence(DenseProblem(THETA), response, None, 1e-10)
    for k, h in enumerate(1e-5 * np.eye(2)):
        ends = [
            find_class_mode(DenseProblem(THETA + side * h), response, found.mode.f, 1e-11).value
            for side in (1, -1)
        ]
        numeric = (ends[0] - ends[1]) / 2e-5
        assert float(found.gradient[f"theta{k}"]) == pytest.approx(numeric, rel=1e-6, abs=1e-6)


def test_with_neighbours_the_gradient_is_still_that_of_the_evidence():
    with jax.enable_x64(True):
        response, problem = seen(3), NeighborProblem(THETA, 4)
        found = class_evidence(problem, response, None, 1e-10)
        assert abs(found.value - find_class_mode(DenseProblem(THETA), response).value) > 1e-4
        numeric = []
        for h in 1e-5 * np.eye(2):
            ends = []
            for side in (1, -1):
                problem.theta = THETA + side * h
                ends.append(find_class_mode(problem, response, found.mode.f, 1e-11).value)
            numeric.append((ends[0] - ends[1]) / 2e-5)
        np.testing.assert_allclose(found.gradient["theta"], numeric, rtol=1e-5, atol=1e-5)


def test_integer_weights_are_repeated_rows():
    weight = np.tile([1.0, 2.0, 3.0, 1.0], 10)
    response = seen(3, weight=weight)
    rows = np.repeat(np.arange(40), weight.astype(int))
    once, again = class_evidence(DenseProblem(THETA), response, None, 1e-10), DenseProblem(THETA)
    again.K, again.slopes = again.K[np.ix_(rows, rows)], [s[np.ix_(rows, rows)] for s in again.slopes]
    repeated = class_evidence(again, ClassResponse(Softmax(3), response.y[rows], LEVEL[3]), None, 1e-10)
    assert repeated.value == pytest.approx(once.value, rel=1e-8)
    np.testing.assert_allclose(repeated.mode.f, once.mode.f[rows], atol=1e-8)
    for name, slope in once.gradient.items():
        assert float(repeated.gradient[name]) == pytest.approx(float(slope), rel=1e-7, abs=1e-8)


def test_a_failure_is_named():
    def broken(z, noise, gradient=False):
        return Solved(np.inf, z, z, None, "the matrix has no factor")

    found = class_evidence(broken, seen(3))
    assert (found.value, found.problem) == (np.inf, "the matrix has no factor")
