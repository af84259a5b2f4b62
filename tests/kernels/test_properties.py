"""What holds for every kernel: positive semi-definite, equivariant, precise, clear about misuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from widegp.kernels import LeakyReLU, Mixed, Mixture, ReLU, Sigmoid, Tanh, exact_sigmoid, exact_tanh

KERNELS = {
    "tanh": Tanh(),
    "sigmoid": Sigmoid(),
    "relu": ReLU(),
    "leaky_relu": LeakyReLU(alpha=0.3),
    "mixed": Mixed(),
    "mixture": Mixture(("tanh", "sigmoid", "leaky_relu"), weights=[0.5, 0.2, 0.3]),
    "exact_tanh": exact_tanh,
    "exact_sigmoid": exact_sigmoid,
}
# One shape, so that each kernel compiles once.
N_ROWS, N_INPUTS = 6, 3

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
quick = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

entries = st.floats(-3, 3, allow_subnormal=False)
variances = st.sampled_from([0.0, 1e-8]) | st.floats(0.01, 4)


@st.composite
def tables(draw):
    """Rows in general position, with a duplicate, an opposite and a zero row now and then."""
    X = draw(arrays(float, (N_ROWS, N_INPUTS), elements=entries))
    source, factor = draw(st.integers(1, N_ROWS - 1)), draw(st.sampled_from([None, 1.0, -1.0, 0.0, 1 + 1e-9]))
    if factor is not None:
        X[0] = factor * X[source]
    return X


@st.composite
def parameters(draw):
    return {name: draw(variances) for name in ("sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2")}


def close(actual, expected, tolerance=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


@every_kernel
@quick
@given(X=tables(), values=parameters())
def test_matrix_is_symmetric_and_positive_semi_definite(kernel, X, values):
    K = kernel.replace(**values)(X)
    assert np.all(np.isfinite(K))
    close(K, K.T, 1e-14)
    assert np.linalg.eigvalsh((K + K.T) / 2).min() >= -1e-10 * np.trace(K)


@every_kernel
@quick
@given(X=tables(), values=parameters(), order=st.permutations(range(N_ROWS)))
def test_matrix_follows_the_order_of_the_rows(kernel, X, values, order):
    kernel = kernel.replace(**values)
    close(kernel(X[order]), kernel(X)[np.ix_(order, order)])
    close(kernel(X, X[order]), kernel(X)[:, order])


@every_kernel
@quick
@given(X=tables(), values=parameters())
def test_diag_is_the_diagonal_of_the_matrix(kernel, X, values):
    kernel = kernel.replace(**values)
    close(kernel.diag(X), np.diag(kernel(X)))


@every_kernel
@quick
@given(X=tables(), scale=arrays(float, N_INPUTS, elements=st.floats(0.1, 3)))
def test_sigma_u2_scales_the_inputs(kernel, X, scale):
    close(kernel.replace(sigma_u2=scale**2)(X), kernel.replace(sigma_u2=1.0)(X * scale))
    close(kernel.replace(sigma_u2=scale[0])(X), kernel.replace(sigma_u2=np.full(N_INPUTS, scale[0]))(X))


@every_kernel
@quick
@given(X=tables(), values=parameters())
def test_gradient_is_finite_everywhere(kernel, X, values):
    with jax.enable_x64(True):
        moved = jax.tree.map(jnp.asarray, kernel.replace(**values))
        slope = _gradient_of_total(moved, jnp.asarray(X))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))


_gradient_of_total = jax.jit(jax.grad(lambda kernel, X: kernel(X).sum()))


@every_kernel
@quick
@given(X=tables())
def test_outer_parameters_enter_linearly(kernel, X):
    moment = kernel.replace(sigma_b2=0.0, sigma_v2=1.0)(X)
    close(kernel.replace(sigma_b2=0.7, sigma_v2=2.5)(X), 0.7 + 2.5 * moment)


@every_kernel
def test_numpy_gives_float64_whatever_the_global_setting(kernel):
    assert not jax.config.jax_enable_x64
    X = np.random.default_rng(0).normal(size=(N_ROWS, N_INPUTS))
    whole, half = X.round().astype(int), X.astype(np.float32)
    for result in (kernel(X), kernel(X, X), kernel.diag(X), kernel(half), kernel(whole)):
        assert isinstance(result, np.ndarray) and result.dtype == np.float64
    with jax.enable_x64(True):
        np.testing.assert_array_equal(kernel(jnp.asarray(X)), kernel(X))


@every_kernel
def test_jax_arrays_keep_their_precision(kernel):
    X = np.random.default_rng(0).normal(size=(N_ROWS, N_INPUTS))
    X32 = jnp.asarray(X, jnp.float32)
    assert isinstance(kernel(X32), jax.Array) and kernel(X32).dtype == kernel.diag(X32).dtype == jnp.float32
    close(kernel(X32), kernel(X), 1e-6)


@every_kernel
def test_jit_grad_and_vmap(kernel):
    with jax.enable_x64(True):
        X = jnp.asarray(np.random.default_rng(0).normal(size=(N_ROWS, N_INPUTS)))
        close(jax.jit(lambda k, a: k(a))(kernel, X), kernel(X))
        scales = jnp.array([0.5, 1.0, 2.0])
        stacked = jax.vmap(lambda s: kernel.replace(sigma_u2=s)(X))(scales)
        close(stacked, np.stack([kernel.replace(sigma_u2=float(s))(np.asarray(X)) for s in scales]))
        slope = jax.grad(lambda s: kernel.replace(sigma_u2=s)(X).sum())(1.3)
        nearby = [kernel.replace(sigma_u2=1.3 + h)(np.asarray(X)).sum() for h in (-1e-5, 1e-5)]
    assert slope == pytest.approx((nearby[1] - nearby[0]) / 2e-5, rel=1e-7)


@every_kernel
def test_pytree_round_trip_and_free_parameters(kernel):
    leaves, structure = jax.tree.flatten(kernel)
    X = np.random.default_rng(0).normal(size=(N_ROWS, N_INPUTS))
    np.testing.assert_array_equal(jax.tree.unflatten(structure, leaves)(X), kernel(X))
    moved = kernel.replace(**{name: 0.5 * np.asarray(value) for name, value in kernel.parameters().items()})
    assert set(moved.parameters()) == set(kernel.free)
    assert np.abs(moved(X) - kernel(X)).max() > 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3),), r"shape \(n, I\); got \(3,\)\. Reshape one row"),
        ((np.zeros((2, 3)), np.zeros(3)), r"got \(\(2, 3\), \(3,\)\)"),
        ((np.zeros((2, 3)), np.zeros((2, 4))), "X has 3 inputs and Y has 4"),
        ((np.zeros((2, 5)),), "sigma_u2 has 3 entries but the rows have 5 inputs"),
    ],
)
@every_kernel
def test_wrong_shapes_say_what_to_pass(kernel, arguments, message):
    with pytest.raises(ValueError, match=message):
        kernel.replace(sigma_u2=np.ones(3))(*arguments)


def test_diag_checks_shapes_too():
    with pytest.raises(ValueError, match="Reshape one row"):
        Mixed().diag(np.zeros(3))


def test_compiled_functions_tell_kernels_apart():
    """A function jitted for one kernel must not answer for another with the same parameters."""
    structures = [jax.tree.structure(kernel) for kernel in (Tanh(), Sigmoid(), ReLU())]
    assert all(a != b for i, a in enumerate(structures) for b in structures[:i])
