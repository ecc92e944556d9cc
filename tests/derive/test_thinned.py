"""A share of the time in some intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.timeline.intervals import Intervals, union
from profkit.derive.timeline.thinned import UNTOUCHED, Removed, Thinned


def ns(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def between(*pairs: tuple[int, int]) -> Intervals:
    return union(ns(*(start for start, _ in pairs)), ns(*(end for _, end in pairs)))


def test_a_quarter_is_taken_evenly_from_the_intervals():
    quarter = Thinned(between((100, 200), (300, 400)), 0.25)
    assert quarter.total_ns == 50
    assert quarter.covered_before(ns(50, 100, 140, 200, 250, 400, 900)).tolist() == [0, 0, 10, 25, 25, 50, 50]
    assert quarter.covered_within(ns(140), ns(340)).tolist() == [25]


def test_taking_nothing_leaves_all_times_unchanged():
    assert UNTOUCHED.total_ns == 0
    assert UNTOUCHED.when_uncovered(ns(5, 7)).tolist() == [5, 7]


def test_removed_intervals_are_not_thinned_as_well():
    times, half = ns(150, 200, 300), Thinned(between((100, 200)), 0.5)
    inside = half.where.covered_before(times)
    assert Removed.of(between((150, 250)), half).covered_before(times, inside).tolist() == [25, 75, 125]
    assert Removed.of(between(), half).covered_before(times, inside).tolist() == [25, 50, 50]


@pytest.mark.parametrize("share", [0.3, 1.0])
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 90)), max_size=6), st.integers(0, 900))
def test_when_uncovered_is_the_inverse_of_the_time_left(share, found, time):
    thinned = Thinned(between(*((start, start + length) for start, length in found)), share)
    left = ns(time) - thinned.covered_before(ns(time))
    again = thinned.when_uncovered(left)
    assert abs(int((again - thinned.covered_before(again) - left)[0])) <= 1


def test_a_share_that_would_take_too_much_is_reduced():
    half = Thinned(between((100, 200), (300, 400)), 0.5)
    assert half.at_most(50) == Thinned(half.where, 0.25)
    assert half.at_most(150) == half
    assert UNTOUCHED.at_most(0).total_ns == 0
