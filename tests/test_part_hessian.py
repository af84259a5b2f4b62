"""How a table's loss curves, told by a part of its rows, beside the whole of them."""

from __future__ import annotations

import numpy as np
import pytest

from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.inference import part_hessian
from widegp.inference.objective import Problem, start_values
from widegp.inference.optimizers import curvature_at
from widegp.inference.parameters import ParameterSpace
from widegp.inference.part_hessian import PartHessian
from widegp.kernels import Mixed
from widegp.measure import table
from widegp.warps import make_warp


@pytest.fixture
def asked(monkeypatch):
    """A builder, a problem and its parameters, at estimates that suit the table."""
    monkeypatch.setattr(part_hessian, "LEAST_ROWS", 500)
    X, y = table(4000, 3)
    kernel = Mixed(sigma_u2=1.0)
    builder = Builder(X, Dials("vfe", 40, 0, "kmeans", "random", None), choose_backend(kernel), 0)
    problem = Problem(kernel, (y - y.mean()) / y.std(), make_warp("none"), {})
    values = start_values(kernel, 0.1, np.empty(0), None)
    return builder, problem, ParameterSpace.of(kernel, values, (), log=True), values


def test_it_is_that_of_the_whole_table_up_to_chance(asked):
    builder, problem, space, values = asked
    z = space.pack(values)
    part = PartHessian.of(lambda objective: objective, builder, problem, space)
    assert part is not None and part.n_part == 500
    with builder.backend.scope():
        found = part(z)
        whole = problem.on(builder.build(problem.kernel), space)
        exact = curvature_at(whole, z, whole(z).gradient, whole.n_rows)
    # 500 rows of 4,000 tell a mean of squares to within some twentieth.
    assert np.linalg.norm(found - exact) < 0.15 * np.linalg.norm(exact)


def test_small_and_dense_tables_have_none(asked):
    builder, problem, space, _ = asked

    def of(builder: Builder) -> PartHessian | None:
        return PartHessian.of(lambda objective: objective, builder, problem, space)

    assert of(builder.subset(np.arange(3999))) is None
    dense = Builder(builder.X, Dials("exact", 0, 0, "kmeans", "random", None), builder.backend, 0)
    assert of(dense) is None
