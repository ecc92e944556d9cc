"""The order of a timeline and the distinct values of columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.trace.events import distinct, distinct_rows, timeline_order

_NUMBERS = st.integers(-3, 3) | st.sampled_from([-(2**40), 2**40, 2**60])


@given(st.lists(st.tuples(st.integers(0, 3), _NUMBERS, st.integers(0, 5))))
def test_the_order_is_by_lane_start_falling_length_and_place_in_the_file(events):
    lane, start, duration = np.array(events, dtype=np.int64).reshape(-1, 3).T
    found = timeline_order(lane.astype(np.int32), start, duration)
    assert found.tolist() == sorted(range(len(events)), key=lambda i: (*events[i][:2], -events[i][2], i))


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _NUMBERS), min_size=1))
def test_distinct_rows_are_told_by_all_their_columns(rows):
    first, inverse = distinct_rows(*np.array(rows, dtype=np.int64).T)
    kinds = sorted(set(rows))
    assert first.tolist() == [rows.index(kind) for kind in kinds]
    assert inverse.tolist() == [kinds.index(row) for row in rows]


@given(st.lists(_NUMBERS))
def test_distinct_values_rise(values):
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))
