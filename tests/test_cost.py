"""What a fit is predicted to cost: counts against naive loops, limits, memory against what a fit takes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from widegp import cost
from widegp.approximations.base import ENTRY, MOVED, PAIR_ENTRY
from widegp.approximations.dense import DenseApproximation
from widegp.approximations.registry import APPROXIMATIONS
from widegp.choices.chosen import LEAST_ROWS
from widegp.choices.plan import TRIALS, chosen_plan
from widegp.choices.search import splits
from widegp.compute.backend import BLOCK_BYTES
from widegp.cost import Calibration, Size
from widegp.inference.choose import _rates
from widegp.inference.plan import coarse_sizes, fit_plan

RATES = Calibration()
NAMES = tuple(APPROXIMATIONS)
SUMS = [n for n, member in APPROXIMATIONS.items() if not isinstance(member, DenseApproximation)]


class Tally:
    """Multiply-adds of textbook loops."""

    def __init__(self):
        self.count = 0

    def product(self, a, b, c):
        """(a, b) times (b, c)."""
        for _ in range(a):
            for _ in range(c):
                self.count += b

    def cholesky(self, n):
        for j in range(n):
            for _ in range(j, n):
                self.count += j

    def solve(self, n, columns):
        """A triangle against some columns."""
        for _ in range(columns):
            for j in range(n):
                self.count += j + 1


class TestCounts:
    def test_anchors_of_a_residual_rule_are_nine_products(self):
        n, i, r = 40, 3, 5
        tally = Tally()
        for _ in range(2):  # both passes make K(X, Z) and Phi = K W
            tally.product(n, i, r)
            tally.product(n, r, r)
        tally.product(r, n, r)  # A = Phi~'Phi~ / d
        tally.product(n, r, r)  # Phi~ A_bar
        tally.product(n, r, r)  # K_bar = Phi_bar W'
        tally.product(r, n, r)  # W_bar = K'Phi_bar
        tally.product(n, r, i)  # from K_bar to the inputs' inner products
        per_row = 6 * Size("full-scale", n, i, r, 0).work.anchors - 4 * r**3
        assert per_row - 3 * ENTRY * n * r == pytest.approx(tally.count)

    def test_anchors_without_a_residual_are_four(self):
        n, i, r = 40, 3, 5
        tally = Tally()
        tally.product(n, i, r)
        tally.product(r, n, r)  # K'K
        tally.product(n, i, r)
        tally.product(n, r, r)  # K A_bar
        for name in ("dtc", "vfe"):
            per_row = 6 * Size(name, n, i, r, 9).work.anchors - 8 * r**3
            assert per_row - 2 * ENTRY * n * r == pytest.approx(tally.count)
            assert Size(name, n, i, r, 9).work.neighbors == 0

    def test_neighbours_are_small_products_and_factors(self):
        n, i, r, m = 50, 4, 6, 30
        tally = Tally()
        for _ in range(n):
            for _ in range(2):
                tally.product(m + 1, i, m + 1)
                tally.product(m + 1, r, m + 1)
                tally.cholesky(m + 1)
        apart = n * (1.5 * PAIR_ENTRY * (m + 1) ** 2 + 4 * MOVED * (m + 1) * r)
        counted = 6 * Size("full-scale", n, i, r, m).work.neighbors - apart
        assert counted == pytest.approx(tally.count, rel=0.02)

    def test_exact_is_factor_inverse_and_their_product(self):
        n, i = 60, 2
        tally = Tally()
        tally.product(n, i, n)
        tally.cholesky(n)
        tally.solve(n, n)
        tally.product(n, n, n)
        tally.product(n, i, n)
        counted = 5 / 3 * Size("exact", n, i, 0, 0).work.dense - 2 * ENTRY * n**2
        assert counted == pytest.approx(tally.count, rel=0.03)

    def test_dials_are_those_that_the_table_allows(self):
        size = Size("full-scale", 20, 2, 500, 30)
        assert size.shape[2:] == (20, 19)
        assert replace(size, name="vecchia").shape.r == 0
        assert replace(size, name="vfe").shape.m == 0


def sizes():
    return st.builds(
        Size, st.sampled_from(NAMES), st.integers(3, 10**7), st.integers(1, 300), st.integers(1, 5000),
        st.integers(0, 100), st.booleans(),
    )  # fmt: skip


def predictions(size):
    return (
        cost.evaluation_seconds(size, RATES),
        cost.fit_seconds(fit_plan(size, RATES)),
        cost.prediction_seconds(size, 400, RATES),
        cost.prediction_seconds(size, 400, RATES, 2000),
        cost.peak_bytes(size, 20_000),
    )


class TestForm:
    @given(sizes(), st.sampled_from(["n_rows", "n_inputs", "rank", "neighbors"]))
    @example(Size("dtc", 60_787, 4, 551, 0), "n_rows")
    def test_more_of_anything_never_costs_less(self, size, field):
        # A few more rows may be worth a fit to a part of them, and the whole then needs fewer evaluations.
        times = 16 if field == "n_rows" else 2
        *seconds, memory = predictions(size)
        *more, more_memory = predictions(replace(size, **{field: times * getattr(size, field) + 1}))
        assert all(b >= 0.999 * a > 0 for a, b in zip(seconds, more, strict=True))
        # Features are kept between two passes up to this size; larger ones are made twice.
        assert more_memory >= 0.999 * memory - BLOCK_BYTES

    @given(sizes(), st.sampled_from(["fixed", "anchors", "neighbors", "dense", "search"]))
    def test_a_slower_machine_never_takes_less(self, size, field):
        slower = replace(RATES, **{field: 3 * getattr(RATES, field)})
        for seconds in (
            lambda rates: cost.fit_seconds(fit_plan(size, rates)),
            lambda rates: cost.prediction_seconds(size, 400, rates),
            lambda rates: cost.prediction_seconds(size, 400, rates, 2000),
        ):
            assert seconds(RATES) <= seconds(slower) <= 3.001 * seconds(RATES)

    def test_rows_that_share_cells_cost_less_each_until_only_products_are_left(self):
        size = Size("full-scale", 100_000, 20, 200, 30)
        few, many, most = (cost.prediction_seconds(size, 400, RATES, k) for k in (10, 2_000, 10**9))
        # Ten rows fall into ten cells, which cost more than sets of their own; most share all of them.
        assert few > cost.prediction_seconds(size, 400, RATES) > most > 0
        assert few > many > most
        assert cost.prediction_seconds(size, 400, RATES, 10**10) == pytest.approx(most, rel=0.001)

    @pytest.mark.parametrize("name", SUMS)
    def test_twice_the_rows_take_twice_as_long(self, name):
        # A batch of 30,000 rows costs the same for all of them, and little beside ten million.
        size = Size(name, 10**7, 20, 200, 30)
        double = replace(size, n_rows=2 * size.n_rows)
        for seconds in (cost.evaluation_seconds, cost.search_seconds):
            assert seconds(double, RATES) / seconds(size, RATES) == pytest.approx(2, rel=0.01)
        fits = [cost.fit_seconds(fit_plan(s, RATES)) for s in (size, double)]
        assert fits[1] / fits[0] == pytest.approx(2, rel=0.05)

    def test_powers_in_the_limit(self):
        def growth(size, **changes):
            return cost.evaluation_seconds(replace(size, **changes), RATES) / cost.evaluation_seconds(
                size, RATES
            )

        assert growth(Size("exact", 20_000, 5, 1, 0), n_rows=40_000) == pytest.approx(8, rel=0.02)
        assert growth(Size("vfe", 10**8, 5, 10_000, 0), rank=20_000) == pytest.approx(4, rel=0.02)
        assert growth(Size("vecchia", 10**6, 5, 1, 10_000), neighbors=20_000) == pytest.approx(8, rel=0.2)
        assert growth(Size("subset", 10**6, 5, 20_000, 0), n_rows=10**7) == 1

    def test_a_search_is_linear_where_there_is_an_index(self):
        def seconds(n):
            return cost.search_seconds(Size("vecchia", n, 5, 1, 10), RATES)

        assert seconds(20_000) == pytest.approx(4 * seconds(10_000))
        assert seconds(400_000) == pytest.approx(2 * seconds(200_000))


class TestPlan:
    def test_stages_follow_the_rows(self):
        plan = fit_plan(Size("full-scale", 40_000, 10, 200, 30), RATES)
        assert [(s.name, s.rows) for s in plan] == [
            ("start", cost.START_ROWS), ("coarse", 2500), ("coarse", 10_000), ("whole", 40_000),
            ("posterior", 40_000), ("curvature", cost.CURVATURE_ROWS),
        ]  # fmt: skip
        assert cost.fit_seconds(plan) == pytest.approx(sum(s.before + s.each * s.evaluations for s in plan))

    def test_a_batch_goes_ahead_of_many_rows_with_neighbours(self):
        plan = fit_plan(Size("full-scale", 300_000, 20, 200, 30), RATES)
        rows = {s.name: s.rows for s in plan}
        assert rows["batch"] == 30_000 and rows["whole"] == 300_000
        assert max(s.rows for s in plan if s.name == "coarse") == 18_750
        assert [s.evaluations for s in plan if s.name == "whole"] == [4]
        assert "batch" not in {s.name for s in fit_plan(Size("vfe", 300_000, 20, 200, 0), RATES)}
        assert "batch" not in {s.name for s in fit_plan(Size("full-scale", 119_999, 20, 200, 30), RATES)}
        # Batches with few rows for each anchor would say little.
        assert "batch" not in {s.name for s in fit_plan(Size("full-scale", 300_000, 20, 800, 30), RATES)}

    @pytest.mark.parametrize("n_rows", [1, 1999, 7999, 8000, 32_000, 10**7])
    def test_coarse_parts_are_quarters_of_quarters(self, n_rows):
        parts, n = [], n_rows
        while n // 4 >= cost.COARSE_ROWS:
            n //= 4
            parts.insert(0, n)
        assert coarse_sizes(n_rows) == parts

    def test_a_given_start_and_steps_leave_one_descent(self):
        size = Size("vfe", 40_000, 10, 200, 0)
        plan = fit_plan(size, RATES, explores=False, max_iter=50, to_the_end=True)
        assert [s.name for s in plan] == ["whole", "posterior", "curvature"]
        assert plan[0].evaluations == 50

    def test_few_iterations_cost_few_evaluations(self):
        size = Size("vfe", 40_000, 10, 200, 0, ard=True)
        few, many = (cost.fit_seconds(fit_plan(size, RATES, max_iter=k)) for k in (5, 500))
        assert few < many / 3

    @pytest.mark.parametrize("name", ["exact", "subset", "nystrom"])
    def test_what_needs_all_rows_at_once_has_no_coarse_stage(self, name):
        names = [s.name for s in fit_plan(Size(name, 40_000, 10, 200, 30), RATES)]
        assert names == ["start", "whole", "posterior", "curvature"]


class TestChosenPlan:
    def test_choices_come_first_and_take_the_place_of_the_start(self):
        plan = chosen_plan(Size("full-scale", 40_000, 10, 200, 30), RATES)
        assert [(s.name, s.rows) for s in plan] == [
            ("choices", 40_000), ("coarse", 2500), ("coarse", 10_000), ("whole", 40_000),
            ("posterior", 40_000), ("curvature", cost.CURVATURE_ROWS),
        ]  # fmt: skip

    @pytest.mark.parametrize("n_rows", [LEAST_ROWS, 399, 400, 1500, 2999, 3000])
    def test_a_part_is_as_large_as_the_splits_are(self, n_rows):
        pairs = splits(n_rows, 0)
        stage = chosen_plan(Size("exact", n_rows, 3, 0, 0), RATES)[0]
        assert stage.evaluations == TRIALS * len(pairs)
        rows = len(pairs[0][0])
        assert stage.each == cost.evaluation_seconds(Size("exact", rows, 3, 0, 0), RATES)

    def test_few_rows_are_fitted_plainly(self):
        size = Size("exact", LEAST_ROWS - 1, 3, 0, 0)
        assert chosen_plan(size, RATES) == fit_plan(size, RATES)

    def test_a_small_table_starts_from_where_the_choices_end(self):
        chosen, plain = (make(Size("exact", 1500, 3, 0, 0), RATES) for make in (chosen_plan, fit_plan))
        assert chosen[1].evaluations < plain[1].evaluations


WORK = np.array([[1.0, 2e7, 4e7], [1.0, 5e7, 3e8], [1.0, 4e8, 4e8], [1.0, 2e8, 9e7]])
TYPICAL = np.array([RATES.fixed, RATES.anchors, RATES.neighbors])


class TestRates:
    @given(st.floats(1e-3, 1e3))
    def test_a_machine_of_another_speed_is_recognised(self, speed):
        assert _rates(WORK, speed * (WORK @ TYPICAL)) == pytest.approx(speed * TYPICAL)

    def test_other_proportions_are_seen(self):
        true = TYPICAL * (1, 3, 1)
        fixed, anchors, neighbors = _rates(WORK, WORK @ true)
        assert anchors / neighbors == pytest.approx(3, rel=0.25)
        assert np.dot(WORK, (fixed, anchors, neighbors)) == pytest.approx(WORK @ true, rel=0.1)

    @given(st.lists(st.floats(0.2, 5.0), min_size=4, max_size=4))
    def test_noise_makes_no_work_a_gain(self, noise):
        rates = _rates(WORK, WORK @ TYPICAL * noise)
        assert min(rates) >= 0 < sum(rates)

    @given(st.lists(st.floats(1.0, 2.0), min_size=4, max_size=4))
    def test_disturbances_do_not_grow(self, noise):
        seconds = WORK @ TYPICAL * noise
        assert np.all(np.abs(np.log(WORK @ _rates(WORK, seconds) / seconds)) < np.log(2))


MEMORY = """
import json, sys, warnings
import numpy as np
from widegp import WideGPRegressor
warnings.simplefilter("ignore")
name, n, inputs, rank, neighbors = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
X = rng.normal(size=(n, inputs))
y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
def fit(rows):
    settings = dict(approximation=name, rank=rank, neighbors=neighbors, anchors="random", max_iter=1)
    model = WideGPRegressor.plain(**settings, start={"sigma_u2": 1 / inputs}, backend="native")
    model.fit(X[:rows], y[:rows])
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))
fit(50)
# A peak starts at that of the process that this one came from, unless it is forgotten.
with open("/proc/self/clear_refs", "w") as forget:
    forget.write("5")
before = fit(50)
print(fit(n) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process as Linux tells it")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(("vfe", 100_000, 10, 300, 0), marks=pytest.mark.slow, id="vfe"),
        pytest.param(("full-scale", 8_000, 20, 150, 10), id="full-scale"),
    ],
)
def test_memory_is_predicted_from_above_and_not_by_far(case):
    # The small fit before has loaded what a first fit loads.
    run = subprocess.run([sys.executable, "-c", MEMORY, json.dumps(case)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    taken = int(run.stdout)
    block_rows = min(case[1], 256 * 2**20 // (32 * (case[2] + case[3])))
    predicted = cost.peak_bytes(Size(*case), block_rows) - cost.LOADED_BYTES
    assert taken < predicted < 3 * taken
