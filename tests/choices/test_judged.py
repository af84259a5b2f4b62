"""Which judged fits are averaged, and to which shares: fits that are no more than their left-out rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from widegp import WideGPRegressor
from widegp.choices.judged import Judged, averaged, best_shares, shares

ROWS = 2000
GRID = (np.arange(1000) + 0.5) / 1000


def judged(seed: int, trees: bool = False, worse_by: float = 0.0) -> Judged:
    """A fit whose residuals are half the same for all and half its own; its log density is theirs less
    ``worse_by`` nats.
    """
    common = np.random.default_rng(0).standard_normal(ROWS)
    residual = (common + np.random.default_rng(seed).standard_normal(ROWS)) / np.sqrt(2)
    chosen = SimpleNamespace(trees="some" if trees else None)
    stage = SimpleNamespace(whole=SimpleNamespace(chosen=chosen, varying=False, part_of="all rows"))
    density = -0.5 * (residual**2 + np.log(2 * np.pi)) - worse_by
    return Judged(stage, f"fit {seed}", None, residual, density, np.zeros(ROWS), None)  # type: ignore[arg-type]


def kept(best: Judged, *others: Judged) -> list[str]:
    return [one.words for one in averaged(best, [best, *others], [])]


def by_grid(*several: Judged) -> np.ndarray:
    """The share of the first of two fits by a search through all of them, without the prior."""
    (p, q), (r, t) = ([getattr(one, name) for one in several] for name in ("log_density", "residual"))
    found = [
        np.mean(np.log(w * np.exp(p) + (1 - w) * np.exp(q)))
        - np.log(np.sqrt(np.mean((w * r + (1 - w) * t) ** 2)))
        for w in GRID
    ]
    return GRID[int(np.argmax(found))]


@pytest.mark.parametrize("worse_by", [0.0, 0.1, 0.3])
def test_shares_are_those_that_left_out_rows_do_best_with(worse_by):
    two = judged(1), judged(2, trees=True, worse_by=worse_by)
    assert best_shares(two)[0] == pytest.approx(by_grid(*two), abs=0.02)
    assert best_shares(two).sum() == pytest.approx(1)


@pytest.mark.parametrize("worse_by", [0.0, 0.02, 0.05, 0.1, 0.3, 1.0])
def test_shares_are_as_equal_as_a_standard_error_allows(worse_by):
    two = judged(1), judged(2, trees=True, worse_by=worse_by)
    best, even = best_shares(two), shares(two)

    def scored(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = sum(own * np.exp(one.log_density) for own, one in zip(w, two, strict=True))
        r = sum(own * one.residual for own, one in zip(w, two, strict=True))
        return np.log(p), r**2

    def lost(w: np.ndarray) -> float:
        """Nats and squares that a share w loses beside the best, in standard errors of both together."""
        (p, r), (q, s) = scored(best), scored(w)
        each = p - q + (s - r) / (2 * r.mean())
        return float(each.mean() / (each.std() / np.sqrt(ROWS)))

    assert even.sum() == pytest.approx(1)
    assert abs(even[0] - 0.5) <= abs(best[0] - 0.5) + 1e-9
    if abs(even[0] - best[0]) > 1e-9:
        assert lost(even) <= 1
    if abs(even[0] - 0.5) > 1e-9:
        assert lost(even + 0.051 * (0.5 - best)) > 1


def test_nats_do_not_buy_squares():
    best, other = judged(1), judged(2, worse_by=-3.0)
    far = replace(other, residual=other.residual + 2.0)
    both = best.averaged_with(far)
    assert 0.1 < best_shares([best, far])[1] < 0.9
    w = shares([best, far])
    assert np.mean((w @ [best.residual, far.residual]) ** 2) <= 1.01**2 * np.mean(best.residual**2)
    assert np.mean(both.residual**2) <= 1.01**2 * np.mean(best.residual**2)
    assert both.log_density.mean() > best.log_density.mean() + 1


def test_equal_fits_share_alike_and_one_alone_has_all():
    assert shares([judged(1), judged(1), judged(1)]) == pytest.approx([1 / 3] * 3)
    assert shares([judged(1)]) == pytest.approx([1])


def test_an_average_is_the_mean_of_densities_and_of_predictions_by_shares():
    several = judged(1), judged(2, trees=True), judged(3, trees=True, worse_by=0.2)
    both, w = several[0].averaged_with(*several[1:]), best_shares(several)
    density = sum(own * np.exp(one.log_density) for own, one in zip(w, several, strict=True))
    np.testing.assert_allclose(np.exp(both.log_density), density)
    mean = sum(own * one.residual for own, one in zip(w, several, strict=True))
    np.testing.assert_allclose(both.residual, mean)


def test_fits_that_err_apart_are_averaged_and_not_more_than_three():
    assert len(kept(judged(1), judged(2), judged(3), judged(4))) == 3


def test_the_other_kind_of_inputs_comes_first_though_a_fit_of_the_same_kind_gains_more():
    assert kept(judged(1), judged(2), judged(3, trees=True, worse_by=0.1))[1] == "fit 3"


def test_the_other_kind_is_left_out_where_its_share_would_be_next_to_nothing():
    assert kept(judged(1), judged(2, trees=True, worse_by=3.0)) == ["fit 1"]


def test_the_same_fit_again_gains_nothing():
    best = judged(1)
    assert kept(best, judged(1)) == ["fit 1"]


def test_where_all_rows_decide_the_other_kind_must_gain_too():
    best, other = judged(1), judged(2, trees=True, worse_by=0.2)
    assert kept(best, other) == ["fit 1", "fit 2"]
    for one in (best, other):
        one.stage.whole.part_of = None
    assert kept(best, other) == ["fit 1"]


def test_few_rows_try_one_variance_per_input_on_all_of_them_and_leave_room_for_strays():
    """All inputs matter alike, so that folds show no metric: it is tried once more, and not taken."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(320, 3))
    y = np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(320)
    model = WideGPRegressor(random_state=0, trees="none", posterior="map").fit(X, y)
    words = "one variance per input at all rows"
    assert any(words in note and "not taken" in note for note in model.result_.notes), model.result_.notes
    asked = WideGPRegressor(random_state=0, trees="none", posterior="map", metric="iso").fit(X, y)
    assert not any(words in note for note in asked.result_.notes)
    # By Laplace's rule 1 / (n + 2) of a row's law is for what the n left-out rows have not shown.
    tails = asked.fitted_.tails
    assert tails.weights[-1] == pytest.approx(1 / 322)
    assert tails.factors[-1] > 4 * tails.factors[:-1].max()
