"""Times in any notation become exact nanoseconds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.timeline.tree import build_tree
from profkit.trace.times import DAY_NS, durations_of, nanoseconds_of, plausible_starts
from tests.traces import json_of, kernel, op, trace_of, trace_of_bytes


@pytest.mark.parametrize(
    ("value_us", "expected_ns"),
    [
        (7, 7_000),
        (7.25, 7_250),
        ("7.25", 7_250),
        ("7", 7_000),
        (-3, -3_000),
        ("-0.001", -1),
        ("1e3", 1_000_000),
        (1_700_000_000_000_001, 1_700_000_000_000_001_000),
        ("1712195495541300.987", 1_712_195_495_541_300_987),
        ("4458676456614.904", 4_458_676_456_614_904),
        (True, 1_000),
    ],
)
def test_microseconds_of_any_notation_become_exact_nanoseconds(value_us, expected_ns):
    times_ns, known = nanoseconds_of([value_us])
    assert (times_ns.tolist(), known.tolist()) == ([expected_ns], [True])


@pytest.mark.parametrize(
    "value_us", [None, "", "now", "nan", "inf", float("inf"), 1e300, 10**400, "1e999999999", [1], {}, "9" * 5000, 2**63]
)
def test_values_outside_the_range_of_times_are_unknown(value_us):
    times_ns, known = nanoseconds_of([value_us, 3])
    assert (times_ns.tolist(), known.tolist()) == ([0, 3_000], [False, True])


def test_lists_and_objects_are_no_times():
    times_ns, known = nanoseconds_of([[1, 2], [3, 4]])
    assert (times_ns.tolist(), known.tolist()) == ([0, 0], [False, False])


@given(st.lists(st.integers(-(10**18), 2 * 10**18), max_size=5))
def test_text_with_three_decimals_is_exact_at_any_size(times_ns):
    texts = [f"{'-' if t < 0 else ''}{abs(t) // 1000}.{abs(t) % 1000:03}" for t in times_ns]
    assert nanoseconds_of(texts)[0].tolist() == times_ns


@given(st.lists(st.floats(-8e12, 8e12), max_size=5))
def test_floats_are_rounded_to_the_nearest_nanosecond(times_us):
    exact = [Fraction(time) * 1000 for time in times_us]
    found = nanoseconds_of(times_us)[0].tolist()
    assert all(abs(ns - time) <= Fraction(3, 4) for ns, time in zip(found, exact, strict=True))


def test_impossible_durations_become_instants_and_are_counted():
    lengths_ns, impossible = durations_of([1.5, None, -1, 1.8e16, "x", 0, float("nan")])
    assert lengths_ns.tolist() == [1_500, 0, 0, 0, 0, 0, 0]
    assert impossible == 4


def test_starts_more_than_a_day_from_the_median_are_implausible():
    starts = np.array([-DAY_NS - 1, 0, 5, DAY_NS - 7, 3 * DAY_NS], dtype=np.int64)
    assert plausible_starts(starts).tolist() == [False, True, True, True, False]
    assert plausible_starts(starts[:0]).tolist() == []


@pytest.mark.parametrize("write", [float, int, str])
def test_a_start_may_be_an_integer_a_float_or_text(write):
    trace = trace_of([{**op("a", 0, 1), "ts": write(100)}, {**op("b", 0, 1), "ts": write(150)}])
    assert trace.events.start_ns.tolist() == [0, 50_000]
    assert trace.base_ns == 100_000


def test_successive_slices_in_2024_do_not_overlap():
    """A float64 resolves a quarter of a microsecond there, more than many operators take."""
    start_ns = 1_712_195_495_541_300_987
    content = json_of([op(f"op{i}", 1_000 + i, 0.111) for i in range(9)])
    for i in range(9):
        at = start_ns + i * 111
        content = content.replace(f'"ts": {1_000 + i},'.encode(), f'"ts": {at // 1000}.{at % 1000:03},'.encode())
    trace = trace_of_bytes(content)
    assert np.diff(trace.events.start_ns).tolist() == [111] * 8
    assert trace.base_ns + trace.events.start_ns[0] == start_ns
    tree = build_tree(trace)
    assert (tree.overlapping, tree.depth.tolist()) == (0, [0] * 9)


def test_times_read_by_the_slow_way_are_exact_too():
    content = json_of([op("left_right", 1, 1), op("b", 2, 1)]).replace(b"left_right", b"left\x01right")
    content = content.replace(b'"ts": 1,', b'"ts": 1712195495541300.987,').replace(
        b'"ts": 2,', b'"ts": 1712195495541301.1,'
    )
    trace = trace_of_bytes(content)
    assert np.diff(trace.events.start_ns).tolist() == [113]


def test_the_base_time_is_added_to_the_times_of_the_file():
    trace = trace_of([op("a", 12.5, 1)], baseTimeNanoseconds=1_751_410_836_000_000_000)
    assert trace.base_ns + int(trace.events.start_ns[0]) == 1_751_410_836_000_012_500


def test_a_missing_duration_makes_an_instant():
    event = op("a", 3, 5)
    del event["dur"]
    trace = trace_of([event])
    assert trace.events.duration_ns.tolist() == [0]
    assert trace.health == ()


def test_events_without_a_usable_time_are_left_out_and_counted():
    trace = trace_of([op("a", 3, 5), {**op("b", 0, 1), "ts": None}, {**op("c", 0, 1), "ts": "soon"}, op("d", 9e12, 1)])
    assert trace.events.start_ns.tolist() == [0]
    assert trace.health == ("left out, because unreadable or without a usable time: 3 events (3 operators)",)


def test_kernels_at_time_zero_never_ran():
    trace = trace_of([op("aten::mul", 5_000, 10), kernel("lost", 0, 0), kernel("found", 5_004, 2)])
    assert [trace.name_of(row) for row in range(len(trace.events))] == ["aten::mul", "found"]
    assert [note.partition(":")[2] for note in trace.health] == [
        " 1 event (1 kernel), so that the GPU's work is understated"
    ]


def test_unfinished_events_become_instants_with_a_note():
    trace = trace_of([op("a", 3, -1), op("b", 4, 18_446_744_073_709_551.6)])
    assert trace.events.duration_ns.tolist() == [0, 0]
    assert trace.health == ("read as instants, because of an impossible duration: 2 events",)
