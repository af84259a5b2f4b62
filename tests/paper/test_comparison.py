"""Bounds and marks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widegp.paper.comparison import Bound, compared, estimate_bound, noise_bound, score_bound


@given(st.floats(0.01, 100), st.floats(-0.1, 0.1), st.floats(0.001, 0.2))
def test_a_relative_bound_is_kept_exactly_up_to_its_size(published, shift, size):
    ours = published * (1 + shift)
    # Away from the edge itself, where rounding decides.
    if abs(abs(shift) - size) > 1e-9:
        row = compared("t", "r", "q", repr(published), ours, bound=Bound(size))
        assert row.mark == ("pass" if abs(shift) < size else "miss")
        assert row.difference == pytest.approx(shift, abs=1e-9)


def test_what_is_not_asked_or_not_run_has_no_mark():
    assert compared("t", "r", "q", "1.0", 5.0).mark == ""
    assert compared("t", "r", "q", "1.0", None, bound=Bound(0.1)).mark == ""
    assert compared("t", "r", "q", "", 1.0, bound=Bound(0.1)).difference is None


def test_the_bounds_of_the_scenarios():
    assert estimate_bound("alpha") == estimate_bound("w") == Bound(0.01, relative=False)
    assert estimate_bound("sigma_a2") == Bound(0.03)
    assert estimate_bound("seconds") is None
    assert score_bound("C3", "rmse") == Bound(0.05) and score_bound("C4", "mese") == Bound(0.15)
    assert score_bound("C1", "mae") is None
    assert noise_bound("C6").size == 0.002 and noise_bound("C8").size == 0.003
    assert str(Bound(0.03)) == "3%" and str(Bound(0.01, relative=False)) == "0.01"
