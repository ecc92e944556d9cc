"""The call tree, against a stack that takes one event after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.timeline import tree as tree_module
from profkit.derive.timeline.tree import Tree, build_tree
from profkit.trace.events import NONE, Trace
from tests.traces import annotation, kernel, memory, op, python, runtime, thread_name, trace_of

Interval = tuple[int, int, int]
"""Thread, start and length."""

_INTERVALS = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 12), st.integers(0, 8)), min_size=1, max_size=25)


@st.composite
def _nested(draw: st.DrawFn, start: int = 0, length: int = 40, depth: int = 3) -> list[Interval]:
    """Intervals of one thread that nest as calls do: each ends before its caller and before its successor begins."""
    found, at = [], start
    while depth and at < start + length and draw(st.booleans()):
        begin = at + draw(st.integers(0, 3))
        size = draw(st.integers(0, max(0, start + length - begin)))
        if begin + size > start + length:
            break
        found += [(1, begin, size), *draw(_nested(begin, size, depth - 1))]
        at = begin + max(size, 1)
    return found


def _trace(intervals: list[Interval], others: Sequence[dict[str, Any]] = ()) -> Trace:
    events = [op(f"op{i}", start, length, tid=thread) for i, (thread, start, length) in enumerate(intervals)]
    return trace_of([annotation("origin", 0, 0, tid=99), *events, *others])


def _nest_one_by_one(trace: Trace) -> tuple[list[int], list[int], list[int]]:
    """Parent, depth and end of each event: what begins inside another belongs to it and ends with it at the latest."""
    events = trace.events
    parents, depths, ends = [], [], events.end_ns.tolist()
    for row in range(len(events)):
        above = row - 1
        while above >= 0 and not _is_open(trace, above, row, ends):
            above = parents[above] if events.lane[above] == events.lane[row] else -1
        parents.append(above)
        depths.append(depths[above] + 1 if above >= 0 else 0)
        if above >= 0 and ends[row] > ends[above]:
            ends[row] = ends[above]
    return parents, depths, ends


def _is_open(trace: Trace, above: int, row: int, ends: list[int]) -> bool:
    """Still open: not yet over, or an instant at the very start of the other."""
    events = trace.events
    same_lane = events.lane[above] == events.lane[row]
    return bool(same_lane and (ends[above] > events.start_ns[row] or events.start_ns[above] == events.start_ns[row]))


def _assert_same_as_one_by_one(trace: Trace) -> Tree:
    tree = build_tree(trace)
    parents, depths, ends = _nest_one_by_one(trace)
    assert tree.parent.tolist() == parents
    assert tree.depth.tolist() == depths
    assert tree.end_ns.tolist() == ends
    assert tree.overlapping == sum(end < recorded for end, recorded in zip(ends, trace.events.end_ns, strict=True))
    return tree


@given(_INTERVALS)
def test_intervals_are_nested_as_a_stack_would_nest_them(intervals):
    _assert_same_as_one_by_one(_trace(intervals))


@given(_nested())
def test_properly_nested_calls_are_never_cut_and_their_self_times_add_up(intervals):
    trace = _trace(intervals)
    tree = _assert_same_as_one_by_one(trace)
    assert tree.overlapping == 0
    self_ns = tree.self_ns(trace.events)
    assert (self_ns >= 0).all()
    outermost = tree.depth == 0
    assert self_ns.sum() == trace.events.duration_ns[outermost].sum()
    assert (tree.total_under(self_ns) == trace.events.duration_ns).all()


@given(_INTERVALS)
def test_self_times_of_cut_events_add_up_too(intervals):
    trace = _trace(intervals)
    tree = build_tree(trace)
    self_ns = tree.self_ns(trace.events)
    assert (self_ns >= 0).all()
    assert (tree.total_under(self_ns) == tree.end_ns - trace.events.start_ns).all()


@pytest.mark.parametrize("count", [2, 7, 8, 9, 40])
@pytest.mark.parametrize("pitch", [1, 9])
def test_chains_of_overlaps_of_any_length_are_resolved(count, pitch):
    """Of length 10, every 1: a staircase. Every 9: each overlaps the next alone, so that cutting one frees the next."""
    _assert_same_as_one_by_one(_trace([(1, pitch * i, 10) for i in range(count)]))


def test_an_event_that_begins_inside_another_belongs_to_it_and_ends_with_it():
    trace = _trace([(1, 0, 10), (1, 6, 9), (1, 12, 2)])
    tree = build_tree(trace)
    assert tree.parent.tolist() == [NONE, NONE, 1, NONE]
    assert tree.end_ns.tolist() == [0, 10_000, 10_000, 14_000]
    assert tree.self_ns(trace.events).tolist() == [0, 6_000, 4_000, 2_000]
    assert tree.overlapping == 1


def test_an_event_that_begins_where_another_ends_is_its_sibling():
    assert build_tree(_trace([(1, 0, 5), (1, 5, 5)])).depth.tolist() == [0, 0, 0]


def test_of_identical_intervals_the_first_in_the_file_encloses_the_others():
    trace = trace_of([op("aten::to", 0, 5), op("aten::_to_copy", 0, 5), op("aten::copy_", 0, 5)])
    assert [trace.name_of(row) for row in range(3)] == ["aten::to", "aten::_to_copy", "aten::copy_"]
    assert build_tree(trace).depth.tolist() == [0, 1, 2]


def test_an_instant_at_the_end_of_an_event_is_outside_it_and_at_its_start_inside():
    trace = trace_of([op("aten::empty", 0, 5), memory(0, 8, 64), memory(5, 8, 128)])
    assert build_tree(trace).parent.tolist() == [NONE, 0, NONE]


def test_events_of_different_threads_do_not_nest():
    assert build_tree(_trace([(1, 0, 9), (2, 1, 2)])).depth.tolist() == [0, 0, 0]


def test_device_work_and_unknown_events_are_not_in_the_tree():
    trace = trace_of(
        [
            thread_name(1, "main"),
            python("train.py(1): f", 0, 30),
            op("aten::mul", 1, 20),
            runtime("cudaLaunchKernel", 2, 3),
            kernel("outer", 4, 20),
            kernel("inner", 5, 2),
            {**op("overhead", 3, 1), "cat": "overhead"},
        ]
    )
    tree = build_tree(trace)
    by_name = {trace.name_of(row): (int(tree.depth[row]), int(tree.parent[row])) for row in range(len(trace.events))}
    assert by_name["cudaLaunchKernel"][0] == 2
    assert by_name["outer"] == by_name["inner"] == by_name["overhead"] == (NONE, NONE)


def test_an_unknown_event_after_another_is_not_its_descendant():
    unknown = {**op("overhead", 7, 1, tid=1), "cat": "overhead"}
    trace = _trace([(1, 0, 9), (1, 0, 5), (1, 12, 3)], [unknown])
    tree = build_tree(trace)
    assert tree.stop[1:].tolist() == [4, 3, 4, 5]
    assert tree.left_out.tolist() == [3]


@pytest.mark.parametrize("many", [-1, 1], ids=["as where many are wanted", "as where few are wanted"])
@given(_INTERVALS, st.data())
def test_ancestors_are_those_found_by_walking_upwards(many, intervals, data):
    left_out = [
        {**op("unknown", start, length, tid=thread), "cat": "overhead"}
        for thread, start, length in data.draw(_INTERVALS)
    ]
    trace = _trace(intervals, left_out)
    tree = build_tree(trace)
    count = len(trace.events)
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    walks = [_walk_up(tree, row) for row in range(count)]
    nearest = [next((row for row in walk if wanted[row]), NONE) for walk in walks]
    with_self = [row if wanted[row] else near for row, near in enumerate(nearest)]
    of = np.array(data.draw(st.lists(st.integers(0, count - 1))), dtype=np.int32)
    with patch.object(tree_module, "_MANY_WANTED_SHARE", many):
        assert tree.nearest_ancestor(wanted).tolist() == nearest
        assert tree.nearest_ancestor(wanted, include_self=True).tolist() == with_self
        assert tree.nearest_ancestor(wanted, of=of).tolist() == [nearest[row] for row in of]
        assert tree.nearest_ancestor(wanted, include_self=True, of=of).tolist() == [with_self[row] for row in of]
    assert tree.under(wanted).tolist() == [row != NONE for row in with_self]
    assert tree.outermost(wanted).tolist() == [bool(wanted[r]) and nearest[r] == NONE for r in range(count)]


def _walk_up(tree: Tree, row: int) -> list[int]:
    met = []
    while (row := int(tree.parent[row])) != NONE:
        met.append(row)
    return met
