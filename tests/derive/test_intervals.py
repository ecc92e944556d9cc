"""Intervals behave like sets of integers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.timeline.intervals import Intervals, intersection, union

_RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=8)


def _intervals(ranges: list[tuple[int, int]]) -> Intervals:
    start = np.array([start for start, _ in ranges], dtype=np.int64)
    return union(start, start + np.array([length for _, length in ranges], dtype=np.int64))


def _moments(ranges: list[tuple[int, int]]) -> set[int]:
    """A moment stands for the nanosecond that follows it."""
    return {moment for start, length in ranges for moment in range(start, start + length)}


def _moments_of(intervals: Intervals) -> set[int]:
    pairs = list(zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True))
    assert all(start < end for start, end in pairs), "an empty interval"
    assert all(left[1] < right[0] for left, right in pairwise(pairs)), "not disjoint or not merged"
    return {moment for start, end in pairs for moment in range(start, end)}


@given(_RANGES)
def test_a_union_contains_what_any_of_its_ranges_contains(ranges):
    assert _moments_of(_intervals(ranges)) == _moments(ranges)
    assert _intervals(ranges).total_ns == len(_moments(ranges))


@given(_RANGES, _RANGES)
def test_an_intersection_contains_what_both_contain(left, right):
    assert _moments_of(intersection(_intervals(left), _intervals(right))) == _moments(left) & _moments(right)


@given(_RANGES, _RANGES)
def test_a_difference_contains_what_the_other_lacks(left, right):
    assert _moments_of(_intervals(left).minus(_intervals(right))) == _moments(left) - _moments(right)


@given(_RANGES, st.integers(0, 50), st.integers(0, 50))
def test_a_range_consists_of_its_inside_and_its_gaps(ranges, one, other):
    start, end = sorted((one, other))
    inside = _moments_of(_intervals(ranges).clipped_to(start, end))
    assert inside == _moments(ranges) & set(range(start, end))
    assert _moments_of(_intervals(ranges).gaps(start, end)) == set(range(start, end)) - inside


@given(_RANGES, st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=5))
def test_coverage_counts_the_moments_inside(ranges, asked):
    start = np.array([at for at, _ in asked], dtype=np.int64)
    end = start + np.array([length for _, length in asked], dtype=np.int64)
    moments = _moments(ranges)
    within = _intervals(ranges).covered_within(start, end)
    assert within.tolist() == [len(moments & set(range(s, e))) for s, e in zip(start, end, strict=True)]
    before = _intervals(ranges).covered_before(start)
    assert before.tolist() == [sum(moment < at for moment in moments) for at in start]


def test_when_uncovered_is_the_inverse_of_uncovered_time():
    both = union(np.array([10, 40]), np.array([20, 45]))
    assert both.when_uncovered(np.array([0, 9, 10, 29, 30, 100])).tolist() == [0, 9, 20, 39, 45, 115]
    times = np.array([3, 25, 39, 50])
    assert both.when_uncovered(times - both.covered_before(times)).tolist() == times.tolist()
