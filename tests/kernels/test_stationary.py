"""Stationary kernels against 50-digit formulas and scikit-learn; sums and products by name."""

import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.gaussian_process import kernels as theirs

from widegp.kernels import RBF, Matern12, Matern32, Matern52, Mixed, Product, RationalQuadratic, Sum, Tanh

CLASSES = {
    "rbf": RBF, "matern12": Matern12, "matern32": Matern32, "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
}  # fmt: skip
SMOOTHNESS = {"rbf": math.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
PARAMETERS = {"sigma_u2": np.array([0.7, 1.3, 0.4]), "sigma_b2": 0.6, "sigma_v2": 1.7}
N_ROWS, N_INPUTS = 6, 3

every_kernel = pytest.mark.parametrize("name", CLASSES)
quick = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

x, y = np.array([0.126, -1.132, 0.640]), np.array([0.105, -0.536, 1.362])
PAIRS = {
    "generic": (x, y),
    "far apart": (10 * x, -10 * y),
    "duplicate": (x, x),
    "long duplicate": (1e3 * x, 1e3 * x),
    "1e-4 apart": (x, x + 1e-4 * y),
    "1e-8 apart": (x, x + 1e-8 * y),
    "1e-12 apart": (x, x + 1e-12 * y),
    "zero rows": (0 * x, 0 * x),
}


def reference(name, left, right, p):
    """sigma_b2 + sigma_v2 kappa in 50 digits: the Matérn kernel by its Bessel function."""
    s = mp.fsum(u * (a - b) ** 2 for u, a, b in zip(p["sigma_u2"], left, right, strict=True))
    nu = SMOOTHNESS.get(name)
    if nu is None:
        kappa = (1 + s / (2 * p.get("mixing", 1))) ** -p.get("mixing", mp.mpf(1))
    elif s == 0:
        kappa = mp.mpf(1)
    elif math.isinf(nu):
        kappa = mp.exp(-s / 2)
    else:
        q = mp.sqrt(2 * mp.mpf(nu) * s)
        kappa = 2 ** (1 - mp.mpf(nu)) / mp.gamma(nu) * q ** mp.mpf(nu) * mp.besselk(nu, q)
    return p["sigma_b2"] + p["sigma_v2"] * kappa


@pytest.mark.parametrize("pair", PAIRS)
@every_kernel
def test_value_and_gradient_agree_with_50_digits(name, pair):
    left, right = PAIRS[pair]
    with jax.enable_x64(True):
        kernel = jax.tree.map(jnp.asarray, CLASSES[name](**PARAMETERS))
        pair = jnp.asarray(left)[None], jnp.asarray(right)[None]
        value, slope = jax.value_and_grad(lambda k: k(*pair)[0, 0])(kernel)
    with mp.workdps(50):
        rows = [[mp.mpf(float(v)) for v in row] for row in (left, right)]
        p = {"sigma_u2": [mp.mpf(float(v)) for v in PARAMETERS["sigma_u2"]]}
        p |= {key: mp.mpf(PARAMETERS[key]) for key in ("sigma_b2", "sigma_v2")}
        assert float(value) == pytest.approx(float(reference(name, *rows, p)), rel=1e-14)
        for i in range(N_INPUTS):

            def along(t, i=i):
                moved = [*p["sigma_u2"][:i], t, *p["sigma_u2"][i + 1 :]]
                return reference(name, *rows, p | {"sigma_u2": moved})

            expected = float(mp.diff(along, p["sigma_u2"][i], h=mp.mpf(10) ** -20))
            np.testing.assert_allclose(slope.sigma_u2[i], expected, rtol=1e-12, atol=1e-15)
        kappa = (reference(name, *rows, p) - p["sigma_b2"]) / p["sigma_v2"]
    assert float(slope.sigma_b2) == 1.0
    assert float(slope.sigma_v2) == pytest.approx(float(kappa), rel=1e-14)


@every_kernel
def test_scikit_learn_has_the_same_kernel(name):
    X = np.random.default_rng(0).normal(size=(9, 3))
    length, nu = 1 / np.sqrt(PARAMETERS["sigma_u2"]), SMOOTHNESS.get(name)
    if nu is None:
        pytest.skip("scikit-learn's has one length scale for all inputs: below")
    shape = theirs.RBF(length) if math.isinf(nu) else theirs.Matern(length, nu=nu)
    expected = (theirs.ConstantKernel(0.6) + theirs.ConstantKernel(1.7) * shape)(X)
    np.testing.assert_allclose(CLASSES[name](**PARAMETERS)(X), expected, rtol=1e-13)


@pytest.mark.parametrize("mixing", [0.06, 0.7, 3.0, 90.0])
@pytest.mark.parametrize("pair", PAIRS)
def test_rational_quadratic_agrees_with_50_digits_and_its_slope_by_the_mixing(pair, mixing):
    with jax.enable_x64(True):
        rows = [jnp.asarray(row)[None] for row in PAIRS[pair]]
        value, slope = jax.value_and_grad(
            lambda a: RationalQuadratic(**PARAMETERS, mixing=a)(*rows)[0, 0]
        )(jnp.asarray(mixing))
    with mp.workdps(50):
        left, right = [[mp.mpf(float(v)) for v in row] for row in PAIRS[pair]]
        p = {"sigma_u2": [mp.mpf(float(v)) for v in PARAMETERS["sigma_u2"]]}
        p |= {key: mp.mpf(PARAMETERS[key]) for key in ("sigma_b2", "sigma_v2")}
        along = lambda a: reference("rational_quadratic", left, right, p | {"mixing": a})  # noqa: E731
        assert float(value) == pytest.approx(float(along(mp.mpf(mixing))), rel=1e-14)
        expected = float(mp.diff(along, mp.mpf(mixing), h=mp.mpf(10) ** -20))
    assert float(slope) == pytest.approx(expected, rel=1e-11, abs=1e-15)


@pytest.mark.parametrize("mixing", [0.2, 1.0, 8.0])
def test_scikit_learn_has_the_same_rational_quadratic(mixing):
    X = np.random.default_rng(0).normal(size=(9, 3))
    ours = RationalQuadratic(sigma_u2=0.7, sigma_b2=0.6, sigma_v2=1.7, mixing=mixing)(X)
    shape = theirs.RationalQuadratic(1 / np.sqrt(0.7), mixing)
    np.testing.assert_allclose(ours, (theirs.ConstantKernel(0.6) + theirs.ConstantKernel(1.7) * shape)(X))


def test_many_units_of_one_variance_are_the_rbf():
    X = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_allclose(RationalQuadratic(mixing=1e9)(X), RBF()(X), rtol=1e-7)


entries = st.floats(-3, 3, allow_subnormal=False)
variances = st.sampled_from([0.0, 1e-8]) | st.floats(0.01, 4)


@st.composite
def tables(draw):
    """Rows in general position, with a duplicate now and then, exact or nearly so."""
    X = draw(arrays(float, (N_ROWS, N_INPUTS), elements=entries))
    factor = draw(st.sampled_from([None, 1.0, 1 + 1e-9, 1 + 1e-15]))
    if factor is not None:
        X[0] = factor * X[draw(st.integers(1, N_ROWS - 1))]
    return X


@every_kernel
@quick
@given(X=tables(), values=st.tuples(variances, variances, variances))
def test_matrix_is_positive_semi_definite_and_its_gradient_finite(name, X, values):
    kernel = CLASSES[name](**dict(zip(PARAMETERS, values, strict=True)))
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.trace(K)
    with jax.enable_x64(True):
        slope = _gradient_of_total(jax.tree.map(jnp.asarray, kernel), jnp.asarray(X))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))


_gradient_of_total = jax.jit(jax.grad(lambda kernel, X: kernel(X).sum()))


@every_kernel
def test_gradient_by_the_rows_is_finite_at_duplicates(name):
    X = np.random.default_rng(0).normal(size=(4, 3))
    with jax.enable_x64(True):
        rows = jnp.asarray(np.vstack([X, X[:1]]))
        slope = jax.grad(lambda left: CLASSES[name]()(left, rows).sum())(rows)
    assert np.all(np.isfinite(slope))


class TestComposites:
    X = np.random.default_rng(3).normal(size=(7, 3))

    def test_values_are_sums_and_products(self):
        a, b, c = Mixed(w=0.3), RBF(sigma_u2=0.2), Matern12(sigma_b2=0.1)
        K, L, M = a(self.X), b(self.X), c(self.X)
        np.testing.assert_allclose((a + b * c)(self.X), K + L * M, rtol=1e-14)
        np.testing.assert_allclose((a + b + c)(self.X, self.X[:2]), (K + L + M)[:, :2], rtol=1e-14)
        np.testing.assert_allclose(((a + b) * c).diag(self.X), np.diag((K + L) * M), rtol=1e-14)

    def test_sums_of_sums_are_flat_and_parameters_named_after_their_part(self):
        kernel = RBF(sigma_u2=1.0) + Mixed() + RBF(sigma_u2=3.0)
        assert isinstance(kernel, Sum) and len(kernel.parts) == 3
        assert list(kernel.named_parts()) == ["rbf1", "mixed", "rbf2"]
        assert kernel.parameters()["rbf2.sigma_u2"] == 3.0 and "mixed.w" in kernel.free
        assert kernel.per_input == ("rbf1.sigma_u2", "mixed.sigma_u2", "rbf2.sigma_u2")
        nested = Tanh() + RBF() * Matern32()
        assert "product.matern32.sigma_v2" in nested.free and isinstance(nested.parts[1], Product)

    def test_replace_reaches_one_part(self):
        kernel = Mixed() + RBF() * Matern32()
        changed = kernel.replace(**{"product.rbf.sigma_u2": 0.25, "mixed.w": 0.1})
        expected = Mixed(w=0.1) + RBF(sigma_u2=0.25) * Matern32()
        assert changed == expected
        with pytest.raises(TypeError, match=r"no parameter \['sigma_u2'\]; it has mixed\.sigma_a2"):
            kernel.replace(sigma_u2=1.0)

    def test_wrong_number_of_variances_names_the_part(self):
        with pytest.raises(ValueError, match=r"rbf.sigma_u2 has 2 entries but the rows have 3 inputs"):
            (Mixed() + RBF(sigma_u2=np.ones(2)))(self.X)

    def test_a_kernel_adds_to_kernels_only(self):
        with pytest.raises(TypeError):
            Mixed() + 1.0
        with pytest.raises(TypeError):
            Mixed() * "rbf"

    def test_the_metric_of_a_sum_is_that_of_the_part_that_varies(self):
        """Inputs that only a part of hardly any variance sees weigh next to nothing."""
        loud = RBF(sigma_u2=np.array([1.0, 1e-9, 1e-9]), sigma_v2=1.0)
        faint = RBF(sigma_u2=np.array([1e-9, 1.0, 1.0]), sigma_v2=1e-6)
        weights = (loud + faint).input_weights(3)
        assert weights[1] < 1e-5 * weights[0]
        points = (loud + faint).embedding(np.vstack([np.zeros(3), np.eye(3)]))
        assert np.linalg.norm(points[2] - points[0]) < 0.01 * np.linalg.norm(points[1] - points[0])


@every_kernel
def test_the_pullback_of_many_variances_stores_no_array_of_pairs_and_inputs(name):
    n, n_inputs = 200, 40
    kernel = CLASSES[name](sigma_u2=np.full(n_inputs, 0.1))
    with jax.enable_x64(True):
        X, G = jnp.zeros((n, n_inputs)), jnp.ones((n, n))
        floats = jax.tree.map(jnp.asarray, kernel)
        pullback = jax.jit(jax.grad(lambda k, X, Y: jnp.sum(G * k(X, Y)))).lower(floats, X, X + 1).compile()
        forward = jax.jacfwd(lambda u: CLASSES[name](sigma_u2=u)(X[:3], X[:2] + 1))(floats.sigma_u2)
        backward = jax.jacrev(lambda u: CLASSES[name](sigma_u2=u)(X[:3], X[:2] + 1))(floats.sigma_u2)
    assert pullback.memory_analysis().temp_size_in_bytes < 0.5 * 8 * n * n * n_inputs
    np.testing.assert_allclose(forward, backward, rtol=1e-13)
