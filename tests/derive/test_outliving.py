"""Frames that return before a range ends that began in them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.derive.timeline.outliving import end_at_ranges
from tests.traces import annotation, facts_of, op, python, rows_named

ENTER = "torch/autograd/profiler.py(760): __enter__"
COMPILE = "_compile.compile_inner (dynamo_timed)"
NEW = "<built-in method _record_function_enter_new of PyCapsule object at 0x7f>"


def test_a_range_keeps_its_whole_length_and_what_runs_in_it():
    facts = facts_of(
        [
            python("train.py(1): main", 0, 1000),
            python(ENTER, 10, 20),
            python(NEW, 12, 10),
            annotation("Optimizer.step#SGD.step", 15, 400),
            op("aten::add_", 50, 100),
            python("torch/autograd/profiler.py(771): __exit__", 405, 20),
            op("aten::relu", 500, 10),
        ]
    )
    tree = facts.tree
    main, enter, new, update, add, relu = (
        rows_named(facts.trace, name)[0]
        for name in ("train.py(1): main", ENTER, NEW, "Optimizer.step#SGD.step", "aten::add_", "aten::relu")
    )
    assert tree.end_ns[update] == 415_000
    assert [tree.parent[row] for row in (enter, new, update, add, relu)] == [main, enter, main, update, main]
    assert tree.end_ns[enter] == tree.end_ns[new] == 15_000
    assert tree.overlapping == 1  # the frame of `__exit__`, which the range does not outlive


def test_a_range_within_a_frame_cuts_nothing():
    facts = facts_of([python("train.py(1): main", 0, 100), annotation("epoch", 10, 90)])
    assert facts.tree.end_ns.tolist() == [100_000, 100_000]


def test_the_operator_that_begins_a_range_ends_where_the_range_begins():
    entering = op("profiler::_record_function_enter_new", 10, 20)
    facts = facts_of([op("aten::relu", 0, 5), entering, annotation("mine", 15, 100), op("aten::add", 40, 10)])
    add, mine = rows_named(facts.trace, "aten::add")[0], rows_named(facts.trace, "mine")[0]
    assert facts.tree.parent[add] == mine
    assert facts.tree.end_ns[mine] == 115_000


def test_work_of_the_compiler_outlives_the_generator_that_times_it():
    facts = facts_of(
        [
            python("contextlib.py(132): __enter__", 0, 10),
            python("torch/_dynamo/utils.py(701): dynamo_timed", 2, 6),
            op(COMPILE, 5, 100),
            op("aten::add", 40, 10),
        ]
    )
    compiled, add = (rows_named(facts.trace, name)[0] for name in (COMPILE, "aten::add"))
    assert facts.tree.end_ns[compiled] == 105_000
    assert facts.tree.parent[add] == compiled


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 12)), max_size=20))
def test_each_frame_ends_at_the_first_range_in_it_that_outlives_it(intervals):
    intervals = sorted(intervals, key=lambda one: (one[1], -one[2]))
    is_frame = np.array([frame for frame, _, _ in intervals], dtype=bool)
    start = np.array([begin for _, begin, _ in intervals], dtype=np.int64)
    end = start + np.array([length for _, _, length in intervals], dtype=np.int64)
    ends = end.copy()
    end_at_ranges(start, ends, np.flatnonzero(is_frame), np.flatnonzero(~is_frame))
    for i, frame in enumerate(is_frame.tolist()):
        begins = [start[k] for k in np.flatnonzero(~is_frame) if start[i] < start[k] < end[i] < end[k]]
        assert ends[i] == min(begins, default=end[i]) if frame else ends[i] == end[i]
