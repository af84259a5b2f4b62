"""What every engine must do, whatever its machines: the tests that each of them inherits.

The functions mapped over blocks use operators and methods alone, so that NumPy and a tracing compiler both
run them; they are here, and not in a test module, so that the workers of a cluster can import them.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.kernels import Mixed

N, I, M = 230, 3, 6
NOISE = 0.1
KERNEL = Mixed(sigma_a2=0.7, sigma_u2=0.4, sigma_b2=0.3, sigma_v2=1.7, alpha=0.2, w=0.6)


def table():
    rng = np.random.default_rng(0)
    X, y, spread = rng.normal(size=(N, I)), rng.normal(size=N), rng.uniform(0.5, 2.0, size=N)
    neighbors = np.full((N, M), -1, np.int32)
    for i in range(1, N):
        some = rng.permutation(i)[:M]
        neighbors[i, : len(some)] = some
    return X, y, spread, neighbors


def moments(block):
    """Rows counted, sum of x, sum of y, over a block's own rows."""
    own = block.weight.shape[0]
    return block.weight.sum(), block.weight @ block.X[:own], block.weight @ block.y[:own]


def neighbor_products(scale, block):
    """scale sum_i y_i sum_{j in N(i)} y_j, and the same with spread_j."""
    own, there = block.weight.shape[0], block.neighbors >= 0
    weighted = block.weight * block.y[:own] * scale
    near = (block.spread[block.neighbors] * there).sum(1)
    return weighted @ (block.y[block.neighbors] * there).sum(1), weighted @ near


def naive_neighbor_products(scale, y, spread, neighbors):
    by_y, by_spread = 0.0, 0.0
    for i in range(len(y)):
        for j in neighbors[i][neighbors[i] >= 0]:
            by_y += scale * y[i] * y[j]
            by_spread += scale * y[i] * spread[j]
    return by_y, by_spread


def sum_and_rows(block):
    """The sum of y over a block's own rows, and y + spread of all its rows, 0 for those that pad it."""
    own = block.weight.shape[0]
    there = block.X[:, 0] != 0
    return block.weight @ block.y[:own], (block.y + block.spread) * there


class EngineContract:
    """Inherit, and give an ``engine`` fixture; ``backend`` names what computes its likelihoods."""

    backend = "native"
    compared = slice(None)  # rows of which a reference knows the derivatives

    def likelihood(self, engine, name="full-scale", block_rows=37):
        backend = choose_backend(KERNEL, self.backend)
        dials = Dials(name, 12, M, "kmeans", "random", block_rows)
        builder = Builder(table()[0], dials, backend, 0, engine)
        with backend.scope():
            return builder.build(KERNEL)

    def evaluate(self, likelihood, noise=NOISE, shift=0.0, gradient=True):
        _, y, spread, _ = table()
        with likelihood.backend.scope():
            return likelihood.evaluate(KERNEL, Observed(y + shift, noise, spread), True, gradient)

    @pytest.mark.parametrize("pad", [False, True])
    @pytest.mark.parametrize("block_rows", [10, 64, N])
    def test_sums_are_those_of_the_whole_table(self, engine, block_rows, pad):
        X, y, spread, neighbors = table()
        placed = engine.place(BlockedRows.cut(X, 0 * y, neighbors, block_rows, pad))
        rows = placed.with_target(y, spread)
        count, by_x, by_y = engine.map_sum(moments, rows)
        assert rows.n_rows == float(count) == N
        np.testing.assert_allclose(by_x, X.sum(0), rtol=1e-11)
        np.testing.assert_allclose(by_y, y.sum(), rtol=1e-11)
        summed = engine.map_sum(partial(neighbor_products, 1.5), rows)
        for ours, naive in zip(summed, naive_neighbor_products(1.5, y, spread, neighbors), strict=True):
            np.testing.assert_allclose(ours, naive, rtol=1e-10)

    def test_rows_that_were_not_placed_are_summed_too(self, engine):
        X, y, _, neighbors = table()
        count, by_x, _ = engine.map_sum(moments, BlockedRows.cut(X, y, neighbors[:, :0], 50))
        assert float(count) == N
        np.testing.assert_allclose(by_x, X.sum(0), rtol=1e-11)

    def test_results_by_block_come_in_order(self, engine):
        X, y, _, neighbors = table()
        out = engine.map_rows(moments, engine.place(BlockedRows.cut(X, y, neighbors, 50)))
        assert [float(count) for count, _, _ in out] == [50, 50, 50, 50, 30]
        parts = [y[k : k + 50].sum() for k in range(0, N, 50)]
        np.testing.assert_allclose([by_y for _, _, by_y in out], parts, rtol=1e-11)

    def test_the_target_can_change_while_the_rows_stay(self, engine):
        X, y, _, neighbors = table()
        rows = engine.place(BlockedRows.cut(X, y, neighbors, 40))
        for target in (y, y + 1.0, y + 1.0, 3.0 * y, y):
            _, _, by_y = engine.map_sum(moments, rows.with_target(target))
            np.testing.assert_allclose(by_y, target.sum(), rtol=1e-11)

    def test_a_batch_is_summed_over_its_rows_alone(self, engine):
        X, y, spread, neighbors = table()
        batch = np.arange(3, N, 7)
        rows = engine.place(BlockedRows.cut(X, y, neighbors, 40)).with_target(y, spread).restricted(batch)
        count, by_x, _ = engine.map_sum(moments, rows)
        assert float(count) == len(batch)
        np.testing.assert_allclose(by_x, X[batch].sum(0), rtol=1e-11)

    def reference(self, name):
        """What ``name`` must evaluate to: as with the local engine, which has a dense matrix for it."""
        return self.evaluate(self.likelihood(LocalEngine(), name))

    @pytest.mark.parametrize("name", ["vfe", "full-scale"])
    def test_value_and_gradient_are_those_of_the_reference(self, engine, name):
        reference, likelihood = self.reference(name), self.likelihood(engine, name)
        ours, alone = self.evaluate(likelihood), self.evaluate(likelihood, gradient=False)
        assert ours.value == pytest.approx(reference.value, rel=1e-10)
        assert set(ours.gradient) == set(reference.gradient) and not alone.gradient
        for parameter, expected in reference.gradient.items():
            np.testing.assert_allclose(ours.gradient[parameter], expected, rtol=1e-8, atol=1e-8)
        for found in (ours, alone):
            for by_row, expected in zip(found.by_row, reference.by_row, strict=True):
                compared = by_row[self.compared], expected[self.compared]
                np.testing.assert_allclose(*compared, rtol=1e-8, atol=1e-8)

    @pytest.mark.parametrize("pad", [False, True])
    def test_numbers_per_row_come_home_added_up_by_row(self, engine, pad):
        X, y, spread, neighbors = table()
        rows = engine.place(BlockedRows.cut(X, y, neighbors, 40, pad)).with_target(y, spread)
        total, parts = engine.map_sum_rows(sum_and_rows, rows)
        np.testing.assert_allclose(total, y.sum(), rtol=1e-11)
        times = np.ones(N)
        for start in range(0, N, 40):
            own = np.arange(start, min(start + 40, N))
            halo = np.setdiff1d(neighbors[own][neighbors[own] >= 0], own)
            times[halo] += 1
        np.testing.assert_allclose(rows.added(parts), times * (y + spread), rtol=1e-11)

    def test_the_size_of_blocks_does_not_matter(self, engine):
        values = [self.evaluate(self.likelihood(engine, block_rows=b)).value for b in (37, N)]
        np.testing.assert_allclose(values, values[0], rtol=1e-10)

    def test_a_numerical_failure_is_reported_and_not_raised(self, engine):
        likelihood = self.likelihood(engine)
        failed = self.evaluate(likelihood, noise=-50.0)
        assert failed.value == np.inf
        assert "no positive variance" in failed.problem
        # The engine works on afterwards.
        assert self.evaluate(likelihood).problem is None

    def test_no_rows_are_refused(self, engine):
        nothing = BlockedRows.cut(np.zeros((0, 2)), np.zeros(0), np.zeros((0, 0), np.int32), 10)
        with pytest.raises(ValueError, match="at least one row"):
            engine.map_sum(moments, nothing)
