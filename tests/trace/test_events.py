"""The order of a timeline."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.trace.events import timeline_order

_NUMBERS = st.integers(-3, 3) | st.sampled_from([-(2**40), 2**40, 2**60])


@given(st.lists(st.tuples(st.integers(0, 3), _NUMBERS, st.integers(0, 5))))
def test_the_order_is_by_lane_start_falling_length_and_place_in_the_file(events):
    lane, start, duration = np.array(events, dtype=np.int64).reshape(-1, 3).T
    found = timeline_order(lane.astype(np.int32), start, duration)
    assert found.tolist() == sorted(range(len(events)), key=lambda i: (*events[i][:2], -events[i][2], i))
