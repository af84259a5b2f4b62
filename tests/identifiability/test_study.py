"""Designs against each other, with designs whose spread is known."""

from __future__ import annotations

import numpy as np
import pytest

from widegp.identifiability import design_study
from widegp.identifiability.study import spread


def uniform(n, n_inputs, rng):
    return rng.uniform(-0.5, 0.5, (n, n_inputs))


def radial(n, n_inputs, rng):
    """Uniform rows shrunk by factors from 0.1 to 1: norms spread whatever the number of inputs."""
    return uniform(n, n_inputs, rng) * np.linspace(0.1, 1.0, n)[:, None]


def test_spread_norms_help_more_the_more_inputs_there_are():
    study = design_study(400, (5, 40), {"uniform": uniform, "radial": radial})
    rows = {(r["design"], r["n_inputs"]): r for r in study.to_dict()}
    assert list(rows) == [("uniform", 5), ("radial", 5), ("uniform", 40), ("radial", 40)]
    assert rows["radial", 40]["norm_sd"] > 4 * rows["uniform", 40]["norm_sd"]
    assert rows["uniform", 40]["condition_number"] > 3 * rows["radial", 40]["condition_number"]
    assert rows["uniform", 40]["smallest_eigenvalue"] < rows["radial", 40]["smallest_eigenvalue"]
    assert str(study).count("\n") == 4


def test_spread_is_that_of_a_naive_loop():
    X = uniform(30, 4, np.random.default_rng(0))
    squares = [sum(v * v for v in x) for x in X]
    cosines = [
        sum(a * b for a, b in zip(X[i], X[j], strict=True)) / np.sqrt(squares[i] * squares[j])
        for i in range(30)
        for j in range(i)
    ]
    assert spread(X) == pytest.approx((np.std(squares) / np.mean(squares), np.std(cosines)))


def test_the_package_designs_are_the_default():
    pytest.importorskip("widegp.designs")
    study = design_study(400, (20,))
    by_name = {result.design: result for result in study.results}
    assert set(by_name) == {"uniform", "latin hypercube", "stratified"}
    assert by_name["stratified"].norm_sd > by_name["uniform"].norm_sd


def test_a_design_of_the_wrong_shape_is_named():
    with pytest.raises(ValueError, match="Design 'flat' gave shape"):
        design_study(10, (3,), {"flat": lambda n, n_inputs, rng: np.zeros((n, 2))})
