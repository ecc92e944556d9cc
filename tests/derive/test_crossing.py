"""Intervals that overlap without nesting are found, and cut as if one looked at them one after another."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive import nesting
from profkit.derive.crossing import find_crossing, greatest, one_timeline

_INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 20)), max_size=30)


def _columns(intervals):
    ordered = sorted(intervals, key=lambda one: (one[0], one[1], -one[2]))
    lane, start, length = np.array(ordered, dtype=np.int64).reshape(-1, 3).T
    return lane, start.copy(), start + length


@given(_INTERVALS)
def test_crossing_is_to_begin_inside_another_and_end_after_it_or_the_other_way_round(intervals):
    lane, start, end = _columns(intervals)
    expected = [
        any(
            lane[i] == lane[k] and (start[k] < start[i] < end[k] < end[i] or start[i] < start[k] < end[i] < end[k])
            for k in range(len(lane))
        )
        for i in range(len(lane))
    ]
    assert find_crossing(lane, start, end).tolist() == expected


@pytest.mark.parametrize("many", [0, 1])
@pytest.mark.parametrize("batch", [1, 1 << 16])
@given(_INTERVALS)
def test_nesting_equals_looking_at_one_after_another(batch, many, intervals):
    lane, start, end = _columns(intervals)
    whole = end.copy()
    expected: list[tuple[int, int, int]] = []
    for i in range(len(lane)):
        ends = [found[2] for found in expected]
        opened = [k for k in range(i) if lane[k] == lane[i] and max(ends[k], start[k] + 0.5) > start[i]]
        parent = opened[-1] if opened else -1
        crosses = opened and start[i] < ends[parent] < end[i]
        expected.append((len(opened), parent, ends[parent] if crosses else int(end[i])))
    with patch.object(nesting, "BATCH", batch), patch.object(nesting, "_MANY", many):
        cut, depth, parents = nesting.nest(lane, start, end)
    assert cut == sum(after < before for (*_, after), before in zip(expected, whole.tolist(), strict=True))
    assert list(zip(depth.tolist(), parents.tolist(), end.tolist(), strict=True)) == expected


@given(st.lists(st.integers(-9, 9), max_size=20), st.data())
def test_the_greatest_of_a_range_is_found(values, data):
    ranges = data.draw(st.lists(st.tuples(st.integers(0, len(values)), st.integers(0, len(values))), max_size=9))
    first, last = np.array([(min(r), max(r)) for r in ranges], dtype=np.int64).reshape(-1, 2).T
    found = greatest(np.array(values, dtype=np.int64), first, last).tolist()
    assert found == [max(values[a:b], default=-(2**62)) for a, b in zip(first, last, strict=True)]


def test_lanes_too_many_for_one_number_keep_the_order_of_their_times():
    lane = np.array([0, 0, 2**30], dtype=np.int64)
    begins, ends = one_timeline(lane, np.array([0, 2**40, 5]), np.array([2**41, 2**40 + 1, 6]))
    assert begins[0] < begins[1] < ends[1] < ends[0] < begins[2] < ends[2]
