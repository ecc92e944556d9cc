"""Intervals that overlap without nesting are found, and cut as if they were taken one after another."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.timeline import nesting
from profkit.derive.timeline.crossing import find_crossing, greatest

_INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), max_size=30)


def _columns(intervals):
    ordered = sorted(intervals, key=lambda one: (one[0], -one[1]))
    start, length = np.array(ordered, dtype=np.int64).reshape(-1, 2).T
    return start.copy(), start + length


@given(_INTERVALS)
def test_intervals_cross_if_one_begins_inside_the_other_and_ends_after_it(intervals):
    start, end = _columns(intervals)
    expected = [
        any(start[k] < start[i] < end[k] < end[i] or start[i] < start[k] < end[i] < end[k] for k in range(len(start)))
        for i in range(len(start))
    ]
    assert find_crossing(start, end).tolist() == expected


@pytest.mark.parametrize("many", [0, 1], ids=["all at once", "each stretch by itself"])
@pytest.mark.parametrize("batch", [1, 1 << 16])
@given(_INTERVALS)
def test_nesting_equals_that_of_one_event_after_another(batch, many, intervals):
    start, end = _columns(intervals)
    whole = end.copy()
    expected: list[tuple[int, int, int]] = []
    for i in range(len(start)):
        ends = [found[2] for found in expected]
        opened = [k for k in range(i) if max(ends[k], start[k] + 0.5) > start[i]]
        parent = opened[-1] if opened else -1
        crosses = opened and start[i] < ends[parent] < end[i]
        expected.append((len(opened), parent, ends[parent] if crosses else int(end[i])))
    depth, parents, stops = np.empty((3, len(start)), dtype=np.int32)
    with patch.object(nesting, "BATCH", batch), patch.object(nesting, "_MANY_CROSSING_SHARE", many):
        cut = nesting.nest(start, nesting.Nested(end, depth, parents, stops))
    assert cut == sum(after < before for (*_, after), before in zip(expected, whole.tolist(), strict=True))
    assert list(zip(depth.tolist(), parents.tolist(), end.tolist(), strict=True)) == expected
    assert stops.tolist() == [
        next((k for k in range(len(start)) if start[k] >= max(end[i], start[i] + 1)), len(start))
        for i in range(len(start))
    ]


@given(st.lists(st.integers(-9, 9), max_size=20), st.data())
def test_the_greatest_of_a_range_is_found(values, data):
    ranges = data.draw(st.lists(st.tuples(st.integers(0, len(values)), st.integers(0, len(values))), max_size=9))
    first, last = np.array([(min(r), max(r)) for r in ranges], dtype=np.int64).reshape(-1, 2).T
    found = greatest(np.array(values, dtype=np.int64), first, last).tolist()
    assert found == [max(values[a:b], default=-(2**62)) for a, b in zip(first, last, strict=True)]
