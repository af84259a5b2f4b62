"""BLAS and LAPACK inside compiled loops, by the addresses that SciPy exports.

Numba has `np.dot` and `np.linalg` too, but compiles so much around each call that a handful of them takes ten
seconds. Here a call is a call: arrays are C-ordered, and Fortran is told of their transposes.
"""

from __future__ import annotations

import numpy as np

from widegp.jit import COMPILED, njit

UPPER, PLAIN, TRANSPOSED = (np.frombuffer(letter, np.uint8).copy() for letter in (b"U", b"N", b"T"))
ZERO, ONE, MINUS, STEP = np.zeros(1), np.ones(1), -np.ones(1), np.ones(1, np.int32)

if COMPILED:
    from llvmlite.binding import add_symbol
    from numba import types
    from numba.extending import get_cython_function_address

    def _external(module: str, name: str, n_arguments: int) -> types.ExternalFunction:
        # A name, not the address itself: compiled code that holds an address cannot be cached.
        add_symbol(f"widegp_{name}", get_cython_function_address(f"scipy.linalg.{module}", name))
        return types.ExternalFunction(f"widegp_{name}", types.void(*[types.voidptr] * n_arguments))

    _dgemm = _external("cython_blas", "dgemm", 13)
    _dtrsv = _external("cython_blas", "dtrsv", 8)
    _dsyrk = _external("cython_blas", "dsyrk", 10)
    _dpotrf = _external("cython_lapack", "dpotrf", 5)
    _dtrtri = _external("cython_lapack", "dtrtri", 6)


@njit(error_model="numpy", _nrt=False)
def inner_products(x, p, k, out):
    """out = x x' for x (p, k); p and k as arrays of one int32, as Fortran wants its numbers."""
    _dgemm(
        TRANSPOSED.ctypes, PLAIN.ctypes, p.ctypes, p.ctypes, k.ctypes, ONE.ctypes, x.ctypes, k.ctypes,
        x.ctypes, k.ctypes, ZERO.ctypes, out.ctypes, p.ctypes,
    )  # fmt: skip


@njit(error_model="numpy", _nrt=False)
def product(left, right, p, k, out):
    """out = left right for left (p, p), right (p, k)."""
    _dgemm(
        PLAIN.ctypes, PLAIN.ctypes, k.ctypes, p.ctypes, p.ctypes, ONE.ctypes, right.ctypes, k.ctypes,
        left.ctypes, p.ctypes, ZERO.ctypes, out.ctypes, k.ctypes,
    )  # fmt: skip


@njit(error_model="numpy", _nrt=False)
def factor(matrix, p, info):
    """The lower Cholesky factor of a matrix (p, p) in place of its lower triangle; False on a bad pivot.

    LAPACK says where it meets one that is not positive, but lets NaN through, which reaches the last one.
    """
    _dpotrf(UPPER.ctypes, p.ctypes, matrix.ctypes, p.ctypes, info.ctypes)
    return info[0] == 0 and matrix[-1, -1] > 0


@njit(error_model="numpy", _nrt=False)
def solve_lower(L, p, m, x):
    """x <- L^-1 x for the first m rows and columns of L (p, p)."""
    _dtrsv(
        UPPER.ctypes, TRANSPOSED.ctypes, PLAIN.ctypes, m.ctypes, L.ctypes, p.ctypes, x.ctypes, STEP.ctypes
    )  # fmt: skip


@njit(error_model="numpy", _nrt=False)
def solve_lower_transposed(L, p, m, x):
    """x <- L^-T x for the first m rows and columns of L (p, p)."""
    _dtrsv(UPPER.ctypes, PLAIN.ctypes, PLAIN.ctypes, m.ctypes, L.ctypes, p.ctypes, x.ctypes, STEP.ctypes)


@njit(cache=True, nogil=True, error_model="numpy")
def residual_inverse(K, features, noise, m, r, stride, info):
    """L^-1, L L' = K - features features' + diag(noise), in place of K (m, m); False where there is no L.

    features is (m, r), and ``stride`` as r but 1 where that is 0.

    SciPy's functions do not let go of the interpreter lock, so that threads would take turns.
    """
    _dsyrk(
        UPPER.ctypes, TRANSPOSED.ctypes, m.ctypes, r.ctypes, MINUS.ctypes, features.ctypes, stride.ctypes,
        ONE.ctypes, K.ctypes, m.ctypes,
    )  # fmt: skip
    for i in range(len(K)):
        K[i, i] += noise[i]
    if not factor(K, m, info):
        return False
    _dtrtri(UPPER.ctypes, PLAIN.ctypes, m.ctypes, K.ctypes, m.ctypes, info.ctypes)
    for i in range(len(K)):
        K[i, i + 1 :] = 0.0
    return info[0] == 0
