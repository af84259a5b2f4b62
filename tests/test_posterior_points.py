"""Weighted points against Gaussians, where they are exact, and against integration on a grid."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from widegp.identifiability import Computation, map_objective
from widegp.inference.optimizers import differences
from widegp.inference.posterior_points import posterior_points
from widegp.kernels import Tanh


def moments(points):
    z = np.array([point.z for point in points])
    w = np.array([point.weight for point in points])
    centre = w @ z
    return w.sum(), centre, (z - centre).T @ ((z - centre) * w[:, None])


@settings(max_examples=30, deadline=None)
@given(p=st.integers(1, 6), seed=st.integers(0, 99))
def test_mean_and_covariance_of_a_gaussian(p, seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((p, p)) + 2 * np.eye(p)
    covariance, mean = root @ root.T / 20, rng.standard_normal(p)
    H = np.linalg.inv(covariance)
    if np.linalg.eigvalsh(covariance)[-1] > 8:  # beyond the widest that is believed
        return
    total, centre, spread = moments(posterior_points(lambda z: 0.5 * (z - mean) @ H @ (z - mean), mean, H))
    np.testing.assert_allclose(total, 1, rtol=1e-12)
    np.testing.assert_allclose(centre, mean, atol=1e-10)
    np.testing.assert_allclose(spread, covariance, rtol=1e-8, atol=1e-10)


def test_a_gp_with_two_parameters_against_integration():
    """Noise and roughness of twelve rows: skewed, and far from Gaussian."""
    rng = np.random.default_rng(4)
    X = np.linspace(-1.5, 1.5, 12)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(12)
    whole, z0 = map_objective(Tanh(), 0.1, X, y, computation=Computation(backend="native"))
    labels = whole.space.labels()
    moved = [labels.index("sigma_u2"), labels.index("sigma_eps2")]

    def put(u):
        z = z0.copy()
        z[moved] = u
        return z

    axes = [np.linspace(-5, 8, 90), np.linspace(-5, 2, 90)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    loss = np.array([whole(put(u)).value for u in grid])
    weight = np.exp(loss.min() - loss)
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)

    import scipy.optimize

    def slope(u):
        return whole(put(u)).gradient[moved]

    mode = scipy.optimize.minimize(lambda u: whole(put(u)).value, grid[loss.argmin()], jac=slope).x
    H = differences(slope, mode, slope(mode))
    points = posterior_points(lambda u: whole(put(u)).value, mode, H)
    _, centre, spread = moments(points)
    assert len(points) == 5
    np.testing.assert_array_less(np.abs(centre - mean) / sd, 0.25)
    np.testing.assert_allclose(np.sqrt(np.diagonal(spread)), sd, rtol=0.25)
