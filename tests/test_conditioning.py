"""New rows given the training rows of their cell: against dense formulas, alone and in company."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widegp.approximations.posterior import FamilyPosterior
from widegp.caches import Cache, FileCache
from widegp.compute.backend import choose_backend
from widegp.compute.panels import LowerPanels
from widegp.compute.xla_cells import Slots
from widegp.conditioning import TrainingRows
from widegp.engines.local import LocalEngine
from widegp.kernels import Mixed
from widegp.neighbors import Cells
from widegp.neighbors.cells import PROPOSED
from widegp.prediction import make_predictor

N, I, R, NOISE = 240, 3, 5, 0.13
KERNEL = Mixed(sigma_u2=np.array([0.3, 0.9, 0.4]), w=0.3)


class Elsewhere(LocalEngine):
    """An engine that is no local one to a predictor: every block is worked on by itself."""

    name = "elsewhere"
    parallel_blocks = 2


compiled = jax.jit(lambda X: KERNEL(X, X))


def matrix(X):
    """K(X, X) by one program: JAX would compile every operation of it for every number of rows."""
    with jax.enable_x64(True):
        return np.asarray(compiled(X))


def posterior(rank=R):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(rank, I))
    L_B = np.tril(rng.normal(size=(rank, rank)), -1) + np.diag(rng.uniform(1, 2, rank))
    W = np.linalg.inv(np.linalg.cholesky(matrix(Z))).T if rank else np.zeros((0, 0))
    return FamilyPosterior("full-scale", KERNEL, NOISE, Z, W, rng.normal(size=rank), L_B)


def rows(count=24, cells=True, n=N, spread=True):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, I)), rng.normal(size=n)
    X[9] = X[4]  # duplicate rows are legitimate
    return TrainingRows(X, y, KERNEL, count, rng.uniform(0.3, 3, n) if spread else None, cells)


def new_rows(q=30, seed=2):
    return np.random.default_rng(seed).normal(size=(q, I))


def naive(post, training, near, i, K):
    """Mean and variance of f(x_i) from the joint covariance of f(x_i) and y_N, and the weights' posterior.

    K is that of new rows, training rows and anchors, one after the other.
    """
    anchors = np.arange(len(K) - len(post.Z), len(K))
    rows = np.concatenate([[i], len(K) - len(post.Z) - len(training.X) + near])
    phi = K[np.ix_(rows, anchors)] @ post.W
    cov = K[np.ix_(rows, rows)] - phi @ phi.T
    noise = NOISE * (np.ones(len(near)) if training.spread is None else training.spread[near])
    a = np.linalg.solve(cov[1:, 1:] + np.diag(noise), cov[1:, 0])
    left = phi[0] - a @ phi[1:]
    mean = a @ training.y[near] + left @ post.beta
    B = post.L_B @ post.L_B.T
    return mean, cov[0, 0] - a @ cov[1:, 0] + left @ np.linalg.solve(B, left)


@pytest.mark.parametrize("backend", ["native", "xla"])
@pytest.mark.parametrize("rank", [0, R])
@pytest.mark.parametrize("cells", [True, False])
def test_moments_are_those_of_dense_conditioning(backend, rank, cells):
    post, training, X = posterior(rank), rows(cells=cells), new_rows()
    mean, variance = make_predictor(post, training, backend).predict(X)
    groups, K = training.groups(X), matrix(np.concatenate([X, training.X, post.Z]))
    assert sorted(np.concatenate([group.rows for group in groups])) == list(range(len(X)))
    assert (len(groups) < len(X)) == cells
    for group in groups:
        assert len(group.near) == (48 if cells else 24)
        for i in group.rows:
            np.testing.assert_allclose(
                [mean[i], variance[i]], naive(post, training, group.near, i, K), rtol=1e-9
            )


def test_a_table_no_larger_than_the_set_is_conditioned_on_as_a_whole():
    training, X = rows(n=40), new_rows()
    (group,) = training.groups(X)
    assert sorted(group.near) == list(range(40))


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_a_row_is_predicted_alike_in_any_company(backend):
    predictor, X = make_predictor(posterior(), rows(), backend), new_rows()
    mean, variance = predictor.predict(X)
    order = np.random.default_rng(3).permutation(len(X))
    shuffled = make_predictor(posterior(), rows(), backend).predict(X[order])
    np.testing.assert_allclose(shuffled, (mean[order], variance[order]), rtol=1e-11, atol=1e-13)
    for i in range(0, len(X), 7):
        np.testing.assert_allclose(
            np.ravel(predictor.predict(X[i : i + 1])), (mean[i], variance[i]), rtol=1e-11, atol=1e-13
        )


@pytest.mark.parametrize("backend", ["native", "xla"])
@pytest.mark.parametrize("cells", [True, False])
def test_means_alone_and_joint_covariances_agree_with_the_moments(backend, cells):
    predictor, X = make_predictor(posterior(), rows(cells=cells), backend), new_rows()
    mean, variance = predictor.predict(X)
    np.testing.assert_allclose(predictor.mean(X), mean, rtol=1e-10)
    joint, covariance = predictor.joint(X)
    np.testing.assert_allclose(joint, mean, rtol=1e-9)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-9)
    assert np.linalg.eigvalsh(covariance + NOISE * np.eye(len(X))).min() > 0


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_other_engines_predict_the_same(backend):
    post, X = posterior(), new_rows()
    here = make_predictor(post, rows(), backend)
    there = make_predictor(post, rows(), backend, Elsewhere())
    assert here.engine.name == "local" and there.engine.name == "elsewhere"
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-10)
    np.testing.assert_allclose(there.mean(X), here.mean(X), rtol=1e-10)


def test_nothing_is_factorised_again_and_memory_is_bounded(monkeypatch):
    predictor, X = make_predictor(posterior(), rows(), "native"), new_rows()
    first, made = predictor.predict(X), []
    monkeypatch.setattr(FamilyPosterior, "given", staticmethod(lambda *a: made.append(a)))
    np.testing.assert_array_equal(predictor.predict(X), first)
    assert not made and predictor.factors.bytes > 0
    monkeypatch.undo()
    size = predictor.factors.bytes // len(predictor.factors)
    predictor.factors = Cache(3 * size)
    np.testing.assert_array_equal(predictor.predict(X), first)
    assert len(predictor.factors) == 3 and predictor.factors.bytes <= 3 * size


@pytest.mark.parametrize("rank", [0, 1, 5])
@pytest.mark.parametrize("backend", ["native", "xla"])
def test_the_inverse_factor_of_what_anchors_leave_over(backend, rank):
    rng = np.random.default_rng(rank)
    X, noise, backend = rng.normal(size=(70, I)), rng.uniform(0.05, 0.2, 70), choose_backend(KERNEL, backend)
    with backend.scope():
        K = np.asarray(backend.cross(KERNEL, X, X))
        features = np.linalg.cholesky(K)[:, :rank]
        found = np.asarray(backend.residual_inverse(KERNEL, X, features, noise))
        none = np.asarray(backend.residual_inverse(KERNEL, X, features, noise - 10))
    expected = np.linalg.inv(np.linalg.cholesky(K - features @ features.T + np.diag(noise)))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    assert np.isnan(none).any()


def test_what_is_kept_in_a_file_predicts_the_same_to_the_last_bit(monkeypatch):
    predictor, X = make_predictor(posterior(), rows(), "native"), new_rows()
    first, made = predictor.predict(X), []
    predictor.keep_in_file()
    np.testing.assert_array_equal(predictor.predict(X), first)
    assert len(predictor.factors) == len(rows().groups(X)) > 3
    monkeypatch.setattr(FamilyPosterior, "given", staticmethod(lambda *a: made.append(a)))
    np.testing.assert_array_equal(predictor.predict(X), first)
    assert not made


def test_a_full_file_keeps_what_came_first(monkeypatch):
    predictor, X = make_predictor(posterior(), rows(), "native"), new_rows()
    first = predictor.predict(X)
    size = predictor.factors.bytes // len(predictor.factors)
    predictor.factors = FileCache(2 * size)
    for _ in range(2):
        np.testing.assert_array_equal(predictor.predict(X), first)
        assert len(predictor.factors) == 2 and predictor.factors.bytes == 2 * size
    kept = set(predictor.factors._made)
    predictor.factors.put(10**6, (np.zeros(1),))
    assert set(predictor.factors._made) == kept and predictor.factors.get(None) is None


def test_a_full_disk_stops_no_prediction(monkeypatch):
    class Full:
        write = readinto = None

        def seek(self, place):
            raise OSError(28, "No space left on device")

    predictor, X = make_predictor(posterior(), rows(), "native"), new_rows()
    first = predictor.predict(X)
    predictor.keep_in_file()
    monkeypatch.setattr(predictor.factors, "_file", Full())
    np.testing.assert_array_equal(predictor.predict(X), first)
    assert len(predictor.factors) == 0


def test_a_disk_that_fills_up_leaves_what_is_there_to_be_read():
    class Filling:
        room, bytes, place = 100, bytearray(1000), 0

        def seek(self, place):
            self.place = place

        def write(self, view):
            moved = min(len(view), 7, self.room - self.place)
            if moved == 0:
                raise OSError(28, "No space left on device")
            self.bytes[self.place : self.place + moved] = view[:moved]
            self.place += moved
            return moved

        def readinto(self, view):
            moved = min(len(view), 5)
            view[:moved] = self.bytes[self.place : self.place + moved]
            self.place += moved
            return moved

    cache = FileCache(1000)
    cache._file = Filling()
    first, second = ((np.arange(6.0), np.arange(2.0)), (np.arange(5.0), np.arange(3.0)))
    cache.put(1, first)
    cache.put(2, second)
    for kept, expected in zip(cache.get(1), first, strict=True):
        np.testing.assert_array_equal(kept, expected)
    assert cache.get(2) is None and len(cache) == 1


def test_no_folder_for_a_file_is_a_cache_without_room(monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/no/such/folder")
    cache = FileCache(1000)
    cache.put(1, (np.arange(3.0),))
    assert cache.get(1) is None and cache.limit == 0


@pytest.mark.parametrize("capacity", [1, 3])
def test_a_device_with_room_for_few_cells_predicts_the_same(monkeypatch, capacity):
    post, X = posterior(), new_rows()
    assert len(rows().groups(X)) > 3
    expected = make_predictor(post, rows(), "native").predict(X)
    predictor = make_predictor(post, rows(), "xla")
    monkeypatch.setitem(vars(predictor.stacks), "slots", Slots(capacity))
    for _ in range(2):
        np.testing.assert_allclose(predictor.predict(X), expected, rtol=1e-10)
        np.testing.assert_allclose(predictor.mean(X[:9]), expected.mean[:9], rtol=1e-10)


def test_a_device_makes_nothing_of_a_cell_twice(monkeypatch):
    predictor, X = make_predictor(posterior(), rows(), "xla"), new_rows()
    first = predictor.predict(X)
    monkeypatch.setattr(Slots, "put", None)
    np.testing.assert_array_equal(predictor.predict(X), first)


def test_no_new_rows_no_predictions():
    for backend in ("native", "xla"):
        assert make_predictor(posterior(), rows(), backend).predict(np.empty((0, I))).mean.shape == (0,)


def test_models_of_an_average_share_the_memory_of_one():
    whole = make_predictor(posterior(), rows(), "native")
    half = make_predictor(posterior(), rows(), "native", share=0.5)
    assert half.factors.limit == whole.factors.limit // 2


@pytest.mark.parametrize("m", [0, 1, 63, 64, 65, 130])
def test_panels_are_the_triangular_matrix(m):
    rng = np.random.default_rng(m)
    V, right = np.tril(rng.normal(size=(m, m))), rng.normal(size=(m, 5))
    packed = LowerPanels(V)
    np.testing.assert_array_equal(np.asarray(packed), V)
    np.testing.assert_allclose(packed @ right, V @ right, atol=1e-13)
    np.testing.assert_allclose(packed @ right[:, 0], V @ right[:, 0], atol=1e-13)
    assert m < 130 or packed.nbytes < 0.8 * V.nbytes


def test_the_least_recently_used_makes_way():
    cache, one = Cache(20), (np.zeros(1),)
    cache.put(1, one), cache.put(2, one)
    assert cache.get(1) is one
    cache.put(3, one)
    assert 1 in cache and 3 in cache and 2 not in cache and cache.bytes == 16
    cache.put(4, (np.zeros(9),))
    cache.put(None, one)
    assert 4 not in cache and len(cache) == 2 and cache.get(None) is None


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 90), st.integers(1, 40), st.integers(1, 30), st.integers(0, 5))
def test_cells_part_the_rows_and_their_sets_have_distinct_rows(n, cell_rows, count, seed):
    points = np.random.default_rng(seed).integers(0, 4, size=(n, 2)).astype(float)
    count = min(count, n)
    cells = Cells.of(points, cell_rows, count)
    assert sorted(np.concatenate(cells.members)) == list(range(n))
    new = points + 0.1
    apart = np.linalg.norm(new[:, None] - points, axis=2)
    if len(cells.centres) <= PROPOSED:
        for i, cell in enumerate(cells.holding(new)):
            assert apart[i, cells.members[cell]].min() == pytest.approx(apart[i].min())
    np.testing.assert_array_equal(cells.holding(new)[::-1], cells.holding(new[::-1]))
    for near in cells.around(np.arange(len(cells.centres))):
        assert len(set(near)) == count


def test_every_member_has_its_own_nearest_rows_in_the_set():
    # A dense clump and a thin one: by distance alone the clump would fill the sets of both.
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(150, 2)), 6 + 3 * rng.normal(size=(50, 2))])
    cells = Cells.of(points, 10, 40)
    for k, near in enumerate(cells.around(np.arange(len(cells.centres)))):
        apart = np.linalg.norm(points[:, None] - points[cells.members[k]], axis=2)
        ranks = np.argsort(np.argsort(apart, axis=0), axis=0).min(axis=1)
        depth = 40 // len(cells.members[k])
        assert set(np.flatnonzero(ranks < depth)) <= set(near)


def test_no_factor_is_a_named_failure():
    training = rows(spread=False)
    training.X[:] = training.X[0]
    post = posterior(0)
    bad = FamilyPosterior("vecchia", KERNEL, -1.0, post.Z, post.W, post.beta, post.L_B)
    with pytest.raises(ArithmeticError, match="predict_neighbors"):
        make_predictor(bad, training, "native").predict(new_rows(2))
