"""Shape correlations against 50-digit curves and the published table."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import reference_value

from widegp.identifiability import plot_shapes, shape_correlations

UNIT = {"sigma_a2": 1e-300, "sigma_u2": 1.0, "sigma_b2": 0.0, "sigma_v2": 1.0}


def test_the_published_table_comes_back_to_four_digits():
    table = shape_correlations().table()
    assert [round(row["correlation"], 4) for row in table] == [0.9999, 0.9983, 0.9919]
    assert [row["published"] for row in table] == [0.9999, 0.9983, 0.9919]


def test_curves_equal_the_reference_formulas():
    rho = np.linspace(-1, 1, 9)
    shapes = shape_correlations(rho)
    # Unit vectors at angle arccos(rho), no hidden bias: the pre-activations have variance 1, correlation rho.
    x = np.array([1.0, 0.0])
    for name, curve in zip(shapes.names, shapes.curves, strict=True):
        kind, _, alpha = name.rstrip(")").partition("(")
        parameters = UNIT | ({"alpha": float(alpha)} if alpha else {})
        expected = [reference_value(kind, x, np.array([r, np.sqrt(1 - r**2)]), parameters) for r in rho]
        np.testing.assert_allclose(curve, expected, atol=1e-12)


def test_correlations_are_those_of_numpy_and_ignore_level_and_scale():
    shapes = shape_correlations(np.linspace(-1, 1, 51))
    a, b = shapes.curves[0], shapes.curves[3]
    by_hand = np.mean((a - a.mean()) * (b - b.mean())) / (a.std() * b.std())
    assert shapes.between("tanh", "leaky_relu(0.1)") == pytest.approx(by_hand, abs=1e-12)


def test_bad_grids_and_names_are_refused():
    with pytest.raises(ValueError, match="between -1 and 1"):
        shape_correlations([0.0, 0.5, 1.5])
    with pytest.raises(ValueError, match="no curve 'gelu'"):
        shape_correlations().between("gelu", "tanh")


def test_the_picture_has_a_line_per_kernel():
    figure = plot_shapes(shape_correlations(np.linspace(-1, 1, 21)))
    assert len(figure.axes[0].lines) == 5
