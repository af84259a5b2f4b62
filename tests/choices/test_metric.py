"""The learned metric as a function of gradients: closed forms, rotations, low rank."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power
from scipy.stats import ortho_group

from widegp.choices.metric import direction_shares, gradient_moment, learned_map


def rows_and_gradients(seed=0, n=200, I=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, I)) * np.arange(1, I + 1), rng.normal(size=(n, I)) @ rng.normal(size=(I, I))


@pytest.mark.parametrize("power", [0.25, 0.5])
@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_the_map_is_a_matrix_power_that_keeps_the_mean_square(power, shrinkage):
    X, G = rows_and_gradients()
    M = sum(np.outer(g, g) for g in G) / len(G)
    shrunk = (1 - shrinkage) * M + shrinkage * np.trace(M) / len(M) * np.eye(len(M))
    expected = fractional_matrix_power(shrunk, power)
    A = learned_map(gradient_moment(G), X, power, shrinkage)
    np.testing.assert_allclose(A / A[0, 0], expected / expected[0, 0], rtol=1e-8)
    assert np.mean((X @ A) ** 2) == pytest.approx(np.mean(X**2))


def test_rotated_inputs_have_the_same_distances():
    X, G = rows_and_gradients(1)
    Q = ortho_group.rvs(5, random_state=2)
    A, B = (learned_map(gradient_moment(g), x, 0.5, 0.1) for g, x in ((G, X), (G @ Q, X @ Q)))
    np.testing.assert_allclose(X @ Q @ B @ B.T @ Q.T @ X.T, X @ A @ A.T @ X.T, rtol=1e-9, atol=1e-9)


def test_gradients_by_mapped_inputs_are_brought_back():
    X, G = rows_and_gradients(3)
    A = np.random.default_rng(4).normal(size=(5, 3))
    by_mapped = np.random.default_rng(5).normal(size=(len(X), 3))
    np.testing.assert_allclose(
        gradient_moment(by_mapped, A), gradient_moment(by_mapped @ A.T), rtol=1e-12, atol=1e-12
    )


def test_low_rank_keeps_the_directions_that_matter():
    rng = np.random.default_rng(6)
    X, directions = rng.normal(size=(300, 20)), rng.normal(size=(2, 20))
    G = rng.normal(size=(300, 2)) @ directions + 1e-6 * rng.normal(size=(300, 20))
    A = learned_map(gradient_moment(G), X, 0.5, low_rank=True)
    assert A.shape == (20, 2)
    whole = learned_map(gradient_moment(G), X, 0.5)
    np.testing.assert_allclose(X @ A @ A.T @ X.T, X @ whole @ whole.T @ X.T, atol=1e-3)
    leading, shares = direction_shares(whole)
    assert shares[:2].sum() > 0.999
    np.testing.assert_allclose(leading[:, :2] @ leading[:, :2].T @ directions.T, directions.T, atol=1e-4)


def test_a_flat_function_leaves_the_inputs_as_they_are():
    np.testing.assert_array_equal(learned_map(np.zeros((3, 3)), np.ones((4, 3)), 0.5), np.eye(3))
