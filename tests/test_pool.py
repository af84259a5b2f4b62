"""Arrays of the pool: never shared by two holders, used again when nobody holds them."""

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from widegp.compute.native import NativeBackend
from widegp.compute.pool import LARGE, Pool

ROWS = LARGE // 100 + 1


def test_memory_is_used_again_when_nobody_holds_it():
    pool = Pool()
    address = pool.take(ROWS, 100).ctypes.data
    assert pool.take(ROWS, 100).ctypes.data == address


def test_free_memory_that_does_not_fit_makes_way():
    pool = Pool()
    pool.take(ROWS, 100)
    pool.take(8 * ROWS, 100)
    assert [buffer.size for buffer in pool._buffers] == [800 * ROWS]


def test_a_slice_keeps_its_memory():
    pool = Pool()
    first = pool.take(ROWS, 100)
    first[:] = 1.0
    part = first[5:7, ::3]
    del first
    pool.take(ROWS, 100)[:] = 2.0
    assert np.all(part == 1.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12))
def test_two_holders_never_share(steps):
    pool, held = Pool(), []
    for factor, keep in steps:
        array = pool.take(factor * ROWS, 100)
        array[:] = len(held)
        if keep:
            held.append(array.T)
    for k, array in enumerate(held):
        assert np.all(array == k)


def test_a_backend_is_sent_without_its_memory():
    backend = NativeBackend()
    held = backend.matmul(np.ones((ROWS, 2)), np.ones((2, 100)))
    sent = pickle.dumps(backend)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent).matmul(np.ones((ROWS, 2)), np.ones((2, 100))), held)
