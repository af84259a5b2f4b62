"""Which judged fits are averaged, and to which shares: fits that are no more than their left-out rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from widegp.choices.judged import Judged, averaged, shares

ROWS = 2000


def judged(seed: int, trees: bool = False, worse_by: float = 0.0) -> Judged:
    """A fit whose residuals are half the same for all and half its own; its log density is theirs less
    ``worse_by`` nats.
    """
    common = np.random.default_rng(0).standard_normal(ROWS)
    residual = (common + np.random.default_rng(seed).standard_normal(ROWS)) / np.sqrt(2)
    chosen = SimpleNamespace(trees="some" if trees else None)
    stage = SimpleNamespace(whole=SimpleNamespace(chosen=chosen, varying=False))
    density = -0.5 * (residual**2 + np.log(2 * np.pi)) - worse_by
    return Judged(stage, f"fit {seed}", None, residual, density, np.zeros(ROWS), None)  # type: ignore[arg-type]


def kept(best: Judged, *others: Judged) -> list[str]:
    return [one.words for one in averaged(best, [best, *others], [])]


@pytest.mark.parametrize(
    "trees, expected",
    [
        ([False], [1]),
        ([True, False], [1 / 2, 1 / 2]),
        ([True, False, True], [1 / 4, 1 / 2, 1 / 4]),
        ([False, False, False], [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_inputs_with_trees_and_without_have_equal_shares(trees, expected):
    several = [judged(seed, own) for seed, own in enumerate(trees)]
    assert shares(several) == pytest.approx(expected)


def test_an_average_is_the_mean_of_densities_and_of_predictions_by_shares():
    one, other, third = judged(1), judged(2, trees=True), judged(3, trees=True)
    both = one.averaged_with(other, third)
    density = 0.5 * np.exp(one.log_density) + 0.25 * (np.exp(other.log_density) + np.exp(third.log_density))
    np.testing.assert_allclose(np.exp(both.log_density), density)
    mean = 0.5 * one.residual + 0.25 * (other.residual + third.residual)
    np.testing.assert_allclose(both.residual, mean)


def test_fits_that_err_apart_are_averaged_and_not_more_than_three():
    assert len(kept(judged(1), judged(2), judged(3), judged(4))) == 3


def test_the_other_kind_of_inputs_comes_first_though_a_fit_of_the_same_kind_gains_more():
    assert kept(judged(1), judged(2), judged(3, trees=True, worse_by=0.1))[1] == "fit 3"


def test_the_other_kind_is_left_out_where_it_is_likely_to_lose():
    assert kept(judged(1), judged(2, trees=True, worse_by=3.0)) == ["fit 1"]


def test_the_same_fit_again_gains_nothing():
    best = judged(1)
    assert kept(best, judged(1)) == ["fit 1"]
