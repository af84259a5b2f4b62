"""Designs: inside the cube, stratified as they say, and with norms and angles that spread."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widegp import designs
from widegp.designs import DESIGNS, design_statistics, latin_hypercube, stratified, uniform


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 60), I=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_rows_lie_in_the_cube_and_follow_the_seed(design, n, I, seed):
    X = design(n, I, seed)
    assert X.shape == (n, I)
    assert np.all(np.abs(X) <= 0.5)
    np.testing.assert_array_equal(X, design(n, I, np.random.default_rng(seed)))


def test_latin_hypercube_has_one_row_in_every_slice_of_every_column():
    X = latin_hypercube(50, 4, 0)
    for column in X.T:
        assert sorted(np.floor((column + 0.5) * 50).astype(int)) == list(range(50))


@pytest.mark.parametrize("I", [20, 80])
def test_stratified_norms_fill_equal_strata(I):
    n, spread = 400, 0.5
    t = (stratified(n, I, 3, radial_spread=spread) ** 2).sum(1) * 12 / I
    places = np.floor((t - (1 - spread)) / (2 * spread) * n).astype(int)
    assert sorted(places) == list(range(n))


def test_stratified_signs_fill_their_range():
    I = 80
    X = stratified(2_000, I, 0)
    # The hidden direction is the sign of the leading principal axis.
    direction = np.sign(np.linalg.svd(X, full_matrices=False)[2][0])
    q = np.sign(X) @ direction / I
    assert np.abs(np.sort(q) - np.linspace(-1, 1, len(q))).max() < 0.03


# Standard deviations of |x| and of the angle between rows, uniform against stratified, as measured.
@pytest.mark.parametrize(
    ("I", "norm_ratio", "angle_ratio"), [(20, 1.45, 1.42), (80, 2.9, 2.4)], ids=["I=20", "I=80"]
)
def test_norms_and_angles_spread_more_than_under_the_uniform_design(I, norm_ratio, angle_ratio):
    even, strata = (design_statistics(design(3_000, I, 0)) for design in (uniform, stratified))
    assert strata.norm_sd / even.norm_sd == pytest.approx(norm_ratio, rel=0.07)
    assert strata.angle_sd / even.angle_sd == pytest.approx(angle_ratio, rel=0.07)
    assert strata.cosine_sd > 1.3 * even.cosine_sd
    low, _, high = strata.norm_quantiles
    assert high - low > 1.3 * (even.norm_quantiles[2] - even.norm_quantiles[0])


def test_uniform_norms_concentrate_as_the_theory_says():
    # Var |x|^2 = I / 180, and cosines have variance 1 / I.
    for I in (20, 80):
        statistics = design_statistics(uniform(4_000, I, 1))
        assert statistics.norm_sd == pytest.approx(np.sqrt(I / 180) / (2 * np.sqrt(I / 12)), rel=0.06)
        assert statistics.cosine_sd == pytest.approx(1 / np.sqrt(I), rel=0.03)


def test_statistics_of_three_rows_by_hand(monkeypatch):
    X = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    statistics = design_statistics(X)
    cosines, angles = np.array([0.0, -1.0, 0.0]), np.array([np.pi / 2, np.pi, np.pi / 2])
    assert statistics.norm_mean == pytest.approx(2)
    assert statistics.norm_sd == pytest.approx(np.std([1, 2, 3]))
    assert statistics.cosine_sd == pytest.approx(cosines.std())
    assert statistics.angle_sd == pytest.approx(angles.std())
    rows = uniform(300, 5, 0)
    whole = design_statistics(rows)
    monkeypatch.setattr(designs, "_PAIRS", 40_000)
    sampled = design_statistics(rows)
    assert sampled.cosine_sd == pytest.approx(whole.cosine_sd, rel=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uniform(0, 3), "at least one row"),
        (lambda: stratified(5, 3, radial_spread=1.0), "radial_spread must lie in"),
        (lambda: stratified(5, 3, angular_spread=-0.1), "angular_spread in"),
        (lambda: design_statistics(np.zeros((1, 3))), "at least two rows"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
