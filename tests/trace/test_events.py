"""The order of a timeline, and finding events by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.trace.events import timeline_order
from tests.traces import facts_of, op

SEEN: list[str] = []
_NUMBERS = st.integers(-3, 3) | st.sampled_from([-(2**40), 2**40, 2**60])


@given(st.lists(st.tuples(st.integers(0, 3), _NUMBERS, st.integers(0, 5))))
def test_events_are_ordered_by_lane_start_falling_length_and_place_in_the_file(events):
    lane, start, duration = np.array(events, dtype=np.int64).reshape(-1, 3).T
    found = timeline_order(lane.astype(np.int32), start, duration)
    assert found.tolist() == sorted(range(len(events)), key=lambda i: (*events[i][:2], -events[i][2], i))


def test_a_predicate_that_captures_a_value_is_evaluated_for_each_value():
    found = facts_of([op("aten::a", 0, 1), op("aten::b", 2, 1)]).trace
    asked = [found.where_name(lambda name, part=part: part in name).tolist() for part in ("::a", "::b")]
    assert asked == [[True, False], [False, True]]

    def holding(part: str) -> list[bool]:
        return found.where_name(lambda name: part in name).tolist()

    assert [holding(part) for part in ("::a", "::b")] == asked


def test_equal_predicates_of_two_modules_are_evaluated_separately():
    found = facts_of([op("aten::a", 0, 1), op("aten::b", 2, 1)]).trace
    questions = []
    for part in ("::a", "::b"):
        module = {"__name__": f"asking{part}", "PART": part}
        exec("ask = lambda name: PART in name", module)  # the same line of two modules
        questions.append(module["ask"])
    assert questions[0].__code__ == questions[1].__code__
    assert [found.where_name(ask).tolist() for ask in questions] == [[True, False], [False, True]]


def test_the_result_of_a_predicate_is_kept_and_read_only():
    found = facts_of([op("aten::a", 0, 1), op("aten::b", 2, 1)]).trace
    calls: list[str] = []
    SEEN.clear()
    for _ in range(2):
        codes = found.codes_where(lambda name: SEEN.append(name) or name.endswith("::b"))
        calls.extend(found.names[code] for code in codes.tolist())
    assert calls == ["aten::b"] * 2
    assert SEEN == list(found.names)
    with pytest.raises(ValueError, match="read-only"):
        codes[0] = 0
