"""What the report says of held-out rows, against simulated forecasters whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from widegp import WideGPRegressor
from widegp.inference.result import FitResult, Reason
from widegp.report import notices
from widegp.report.calibration import Coverage, IntervalCalibration, chance, coverage, parts, passes
from widegp.report.notices import Tried
from widegp.report.summary import tried_by
from widegp.report.verdict import Judgement, Verdict, notices_of
from widegp.yardstick import Yardstick

from .conftest import forecaster


def changed(n, **changes):
    return dataclasses.replace(forecaster(n), **changes)


def ended(**changes):
    settings = {
        "reason": Reason.CONVERGED, "objective": 0.0, "path": (1.0, 0.0), "n_iter": 1, "n_evaluations": 2,
        "jitter": 0.0, "approximation": "exact", "backend": "native",
    }  # fmt: skip
    return FitResult(**(settings | changes))


def boosted(rmse, t, rmse_model=10.0, r2=0.24):
    return Yardstick(
        rmse=rmse, rmse_model=rmse_model, r2=r2, t=t, rows=900, rows_held_out=100, seconds=0.1
    )


def judge(held_out, yardstick=None, target="y"):
    return Verdict.of(held_out, held_out.scores(), target, yardstick)


def louder(mean):
    """Noise of a third for the smallest predictions and threefold for the largest."""
    return np.where(mean > 1.3, 3.0, np.where(mean < -1.3, 1 / 3, 1.0))


class TestRangesOfChance:
    """Against SciPy and against plain sums over the binomial distribution."""

    @pytest.mark.parametrize(("level", "rows"), [(0.5, 30), (0.8, 101), (0.95, 30), (0.95, 2000)])
    def test_a_range_leaves_at_most_a_fortieth_on_each_side(self, level, rows):
        low, high = (round(share * rows) for share in chance(level, rows))
        mass = stats.binom.pmf(np.arange(rows + 1), rows, level)
        assert mass[:low].sum() <= 0.025 < mass[: low + 1].sum()
        assert mass[high + 1 :].sum() <= 0.025 < mass[high:].sum()

    @pytest.mark.parametrize("true", [0.7, 0.85, 0.95])
    def test_how_often_wrong_intervals_pass(self, true):
        low, high = (round(share * 30) for share in chance(0.95, 30))
        shares = stats.binom.pmf(np.arange(low, high + 1), 30, true)
        assert passes(true, 0.95, 30) == pytest.approx(shares.sum())

    @pytest.mark.parametrize(("inside", "rows"), [(28, 30), (30, 30), (0, 5), (940, 1000)])
    def test_compatible_coverages_are_those_that_are_not_rejected(self, inside, rows):
        low, high = Coverage(0.95, rows, inside).plausible
        if inside > 0:
            assert stats.binom.sf(inside - 1, rows, low) == pytest.approx(0.025)
        if inside < rows:
            assert stats.binom.cdf(inside, rows, high) == pytest.approx(0.025)

    def test_a_range_holds_calibrated_forecasters(self):
        low, high = chance(0.9, 150)
        shares = np.random.default_rng(0).binomial(150, 0.9, size=20_000) / 150
        assert 0.95 <= np.mean((low <= shares) & (shares <= high)) < 0.98


class TestParts:
    def test_thirds_are_those_of_the_sorted_predictions(self):
        h = forecaster(100)
        cut = np.sort(h.mean)[[33, 33, 66, 66]]
        thirds = parts(h, 3, [0.8, 0.95])
        assert [part.coverages[0].rows for part in thirds] == [34, 33, 33]
        assert [thirds[0].end, thirds[1].start, thirds[1].end, thirds[2].start] == list(cut)
        top = h.mean > thirds[2].start
        assert thirds[2].coverages[1].inside == int(h.inside[top].sum())
        assert thirds[2].coverages[0].inside == int(((h.pit >= 0.1) & (h.pit <= 0.9))[top].sum())
        assert thirds[2].width == pytest.approx(np.mean((h.upper - h.lower)[top]))

    def test_equal_predictions_have_no_parts(self):
        assert parts(changed(90, mean=np.ones(90)), 3, [0.95]) == []

    def test_the_own_level_is_that_of_the_interval_itself(self):
        h = changed(90, pit=np.full(90, 0.5))
        assert coverage(h, 0.95).inside == int(h.inside.sum()) and coverage(h, 0.8).inside == 90


@pytest.mark.parametrize(
    ("rows", "factor", "word", "said"),
    [
        (2000, 1.0, "within chance", "and its 95% intervals held 95.0% of 2,000 held-out values."),
        (2000, 0.5, "narrow", "but its 95% intervals are too narrow: they held 66.8% of 2,000."),
        (2000, 2.0, "wide", "but its 95% intervals are too wide: they held 100% of 2,000."),
        (200_000, 0.99, "nearly narrow", "a touch too narrow"),
        (20, 1.0, "unknown", "held 20 of 20 held-out values, too few to judge them."),
    ],
)
def test_the_verdict_on_intervals(rows, factor, word, said):
    told = judge(forecaster(rows, factor)).to_dict()
    assert told["intervals"] == word
    assert said in told["headline"]


@pytest.mark.parametrize("rows", [20, 30, 100, 2000])
def test_a_failure_to_reject_is_no_praise(rows):
    told = judge(forecaster(rows)).to_dict()
    assert "honest" not in " ".join(told.values()).lower()
    low, high = chance(0.95, rows)
    assert f"chance gives {100 * low:.0f}" in told["lede"] and "compatible with that" in told["lede"]


def test_what_thirty_rows_cannot_tell():
    """Every second model whose intervals hold 85% stays within the range of chance of 95%."""
    h = forecaster(30)
    told = judge(h).to_dict()
    low, _ = stats.binomtest(int(h.inside.sum()), 30).proportion_ci(0.95, method="exact")
    passing = stats.binom.sf(25, 30, 0.85)
    assert f"True coverages from {100 * low:.0f}% to" in told["lede"]
    unseen = f"hold only 85% would stay within the range of chance in {100 * passing:.0f}% of cases"
    assert unseen in told["lede"]
    # So few rows leave the card without a colour; many do not mention what they would have seen.
    assert told["tone"] == ""
    assert judge(forecaster(2000)).to_dict()["tone"] == "good"
    assert "cannot tell" not in judge(forecaster(2000)).to_dict()["lede"]


def test_rows_that_are_wrong_by_thirds_are_named():
    """Right on average: too wide where predictions are small, too narrow where they are large."""
    h = forecaster(3000, factor=1.75, noise=louder)
    found = judge(h, target="price")
    assert found.calibration.own.share == pytest.approx(0.915, abs=0.02)
    top = h.mean >= np.sort(h.mean)[2000]
    told = found.to_dict()
    assert f"largest third of the predictions (above {np.max(h.mean[~top]):.3g})" in told["headline"]
    assert f"{100 * h.inside[top].mean():.0f}% of 1,000" in told["headline"]
    said = [n.text() for n in notices_of(h, found, ended())]
    assert any("smallest third" in text and "wider than they need be" in text for text in said)
    assert any("largest third" in text and "understated" in text for text in said)


def test_the_tenth_that_is_worst_within_a_third_is_named():
    """Noise that doubles in the largest tenth alone."""
    cut = 3 * stats.norm.ppf(0.9)
    h = forecaster(3000, factor=1.0, noise=lambda mean: np.where(mean > cut, 4.0, 1.0))
    found = judge(h)
    (named,) = [n for n in notices_of(h, found, ended()) if isinstance(n, notices.WrongIntervals) and n.part]
    top = h.mean >= np.sort(h.mean)[2700]
    assert named.worst.coverages[0].inside == int(h.inside[top].sum()) and named.worst.k == 9
    assert f"Where the prediction is above {h.mean[~top].max():.3g} they hold" in named.text()
    # Noise that is the same for all of the largest third has no worst tenth.
    flat = IntervalCalibration.of(forecaster(3000, noise=lambda mean: np.where(mean > 1.3, 3.0, 1.0)))
    assert flat.worst_tenth(flat.thirds[2]) is None


def test_thirds_are_named_where_all_rows_together_keep_their_promise():
    h = forecaster(3000, factor=2.05, noise=louder)
    found = judge(h)
    assert not found.calibration.own_is_beyond_chance and found.judgement is Judgement.UNEVEN
    told = found.to_dict()
    assert "95% intervals are too narrow for the largest third" in told["headline"]
    assert told["tone"] == "fair" and "largest third" in told["why"]


def test_calibrated_forecasts_are_seldom_called_wrong():
    """Eleven shares are tested beside that of the own level: one false alarm in ten at most, all together."""
    judged = [judge(forecaster(300, seed=seed)).judgement for seed in range(300)]
    fine = sum(word is Judgement.WITHIN_CHANCE for word in judged)
    assert fine >= 0.9 * len(judged)
    quiet = sum(not IntervalCalibration.of(forecaster(300, seed=seed)).findings() for seed in range(300))
    assert quiet >= 0.95 * 300


def test_a_headline_does_not_praise_one_level_alone():
    """Residuals of +-1, one in twenty of +-3: 95% intervals are right, those of 50% hold nothing."""
    rng = np.random.default_rng(0)
    n = 1000
    z = rng.choice([-1.0, 1.0], n) * np.where(rng.random(n) < 0.05, 3.0, 1.0)
    told = judge(changed(n, pit=stats.norm.cdf(z), y=forecaster(n).mean + z)).to_dict()
    assert told["intervals"] == "uneven" and "50% intervals are too narrow" in told["headline"]
    # Two in three values lie above the median, and central intervals of every level hold their share.
    depth, side = (np.arange(n) + 0.5) / n, np.where(np.arange(n) % 3, 1.0, -1.0)
    told = judge(changed(n, pit=(1 + side * depth) / 2)).to_dict()
    assert "observed values do not fall evenly in them" in told["headline"]


def test_the_verdict_on_accuracy():
    """The variance of y is 9 + noise^2, of which 9 are explained."""
    assert "explains 90% of the variation in y" in judge(forecaster(200_000)).to_dict()["headline"]
    useless = forecaster(500)
    useless = dataclasses.replace(useless, mean=np.full(500, useless.y.mean()))
    assert "no better than its mean" in judge(useless).to_dict()["headline"]
    harmful = dataclasses.replace(useless, mean=-useless.y)
    assert "worse than its mean" in judge(harmful).to_dict()["headline"]


def test_boosting_is_named_only_where_it_does_much_better():
    h = forecaster(500, seed=2)
    better = judge(h, boosted(7.0, t=5.0, r2=0.93))
    assert "of the variation in y (gradient boosting errs 30% less)" in better.to_dict()["headline"]
    much = judge(h, boosted(3.0, t=5.0, r2=0.99)).to_dict()["headline"]
    assert "of the variation in y (gradient boosting: 99%)" in much
    assert [type(n) for n in notices_of(h, better, ended())] == [notices.BoostingIsBetter]
    for beside in (boosted(9.8, t=5.0), boosted(7.0, t=1.0), boosted(12.0, t=-5.0)):
        told = judge(h, beside)
        assert "gradient boosting" not in told.to_dict()["headline"]
        assert f"is off by {beside.rmse:.3g}" in told.to_dict()["lede"].replace(".0.", ".")
        assert notices_of(h, told, ended()) == []


def told(held_out, result, tried=Tried()):  # noqa: B008
    found = notices_of(held_out, judge(held_out), result)
    return " ".join(notices.sentences(notices.in_words(found, tried)))


def test_a_good_fit_has_no_warning():
    assert told(forecaster(500, seed=2), ended()) == ""


@pytest.mark.parametrize(
    ("held_out", "result", "says"),
    [
        (forecaster(500), ended(reason=Reason.MAX_ITER), "not converged: iteration limit"),
        (forecaster(500, 0.5), ended(), "understated"),
        (forecaster(500, 2.0), ended(), "wider than they need be"),
        (forecaster(20), ended(), "Only 20 rows"),
        (forecaster(500), ended(jitter=1e-4), "coincident"),
        (changed(99, upper=np.full(99, np.inf)), ended(), "100% of the intervals have no end"),
        (changed(99, log_density=np.full(99, -np.inf)), ended(), "99 held-out values lie"),
        (changed(99, pit=np.append(forecaster(98).pit, 1.0)), ended(), "1 held-out value lies"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(held_out, result, says):
    assert says in told(held_out, result)


def test_a_wrong_shape_is_said_where_no_level_says_it():
    n = 1000
    depth, side = (np.arange(n) + 0.5) / n, np.where(np.arange(n) % 3, 1.0, -1.0)
    assert "do not fall evenly" in told(changed(n, pit=(1 + side * depth) / 2), ended())


def test_a_cure_that_was_applied_is_not_suggested_again():
    narrow, failed = forecaster(500, 0.5), ended(reason=Reason.FAILED)
    assert "--transform auto" in told(narrow, failed)
    again = told(narrow, failed, Tried(warp=True))
    assert "--transform" not in again and "conformal=True" in again
    assert "conformal" not in told(narrow, failed, Tried(warp=True, conformal=True))
    cure = notices.BoostingIsBetter(boosted(7.0, 5.0)).cure
    assert "--ard or --transform auto" in cure(Tried()) and "--ard" not in cure(Tried(ard=True))
    assert "without --budget" in cure(Tried(hurried=True)) and "--ard" not in cure(Tried(hurried=True))


@pytest.mark.parametrize(("settings", "tried"), [
    ({}, Tried(warp=True, ard=True)),
    ({"budget": 9.0}, Tried(hurried=True)),
    ({"budget": 9.0, "target_transform": "log"}, Tried(warp=True, hurried=True)),
    ({"metric": "iso", "target_transform": None}, Tried()),
    ({"metric": "iso", "target_transform": "auto", "conformal": True}, Tried(warp=True, conformal=True)),
    ({"ard": True, "target_transform": None}, Tried(ard=True)),
])  # fmt: skip
def test_what_a_fit_tries_by_itself_counts_as_tried(settings, tried):
    assert tried_by(WideGPRegressor(**settings)) == tried


def test_notes_of_the_fit_are_no_warnings():
    assert "take note" not in told(forecaster(500), ended(notes=("take note",)))


def test_negative_ends_are_told_where_no_value_is_negative():
    h = forecaster(500)
    up = 5 - h.y.min()
    assert "begin below zero" not in told(h, ended())
    right = dataclasses.replace(h, y=h.y + up, mean=h.mean + up, lower=h.lower + up, upper=h.upper + up)
    assert "begin below zero" not in told(right, ended())
    wide = dataclasses.replace(right, lower=h.lower)
    share = np.mean(h.lower < 0)
    assert f"{100 * share:.0f}% of the intervals begin below zero" in told(wide, ended())


def test_a_cure_is_said_once():
    said = notices.in_words([notices.NegativeEnds(5, 10), notices.WrongShape(0.3)], Tried())
    assert [bool(entry["cure"]) for entry in said] == [True, False]


def test_a_notice_keeps_its_fields_for_machines():
    (entry,) = notices.in_words([notices.FewRows(12)], Tried())
    assert entry["kind"] == "FewRows" and entry["fields"] == {"rows": 12}
    assert entry["text"].startswith("Only 12 rows") and entry["cure"].startswith("Hold out more")


@pytest.mark.parametrize("rows", [300, 1540, 1999])
def test_a_coverage_outside_its_range_of_chance_is_not_rounded_onto_its_end(rows):
    """ "94%, where chance gives 94% to 96%" would say both that it is too low and that it is not."""
    low, _ = Coverage(0.95, rows, rows).chance
    for inside in range(int(low * rows) - 12, int(low * rows)):
        found = Coverage(0.95, rows, inside)
        if found.share < low:
            text = notices.WrongIntervals(found).text()
            held, ends = text.split(" of ")[0].split()[-1], text.split("chance gives ")[1]
            assert float(held.rstrip("%")) < float(ends.split("%")[0])
