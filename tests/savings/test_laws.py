"""Laws that hold for any recording and any edit, whatever the replay models."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.derive.facts import Facts
from profkit.patterns.time.shares import time_shares
from profkit.savings.edits import Edit, combine, remove, shrink, shrink_work, unblock
from profkit.savings.replay import replay
from tests.savings.replaying import LAUNCH, SYNC
from tests.traces import facts_of, json_of, kernel, op, runtime, step, trace_of_bytes

_STEP_US = 200


@st.composite
def recordings(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Three steps of operators that follow each other. Some launch a kernel on one of two streams, some wait."""
    events: list[dict[str, Any]] = []
    correlation, free = 0, {7: 0, 8: 0}
    for number in range(3):
        at = begun = number * _STEP_US
        events.append(step(number, begun, _STEP_US))
        for _ in range(draw(st.integers(1, 6))):
            at += draw(st.integers(0, 5))
            length = draw(st.integers(5, 25))
            events.append(op(draw(st.sampled_from(("aten::mm", "aten::add", "aten::cat"))), at, length))
            if draw(st.booleans()):
                correlation += 1
                stream = draw(st.sampled_from((7, 8)))
                events.append(runtime(LAUNCH, at + 1, 2, correlation=correlation))
                begin = max(at + 3, free[stream])
                took = draw(st.integers(1, 60))
                free[stream] = begin + took
                events.append(kernel(f"kernel{stream}", begin, took, correlation=correlation, stream=stream))
            at += length
        done = max(at, *free.values())
        if draw(st.booleans()) and done < begun + _STEP_US:
            events.append(runtime(SYNC, at, done - at + 1))
    return events


def edits(facts: Facts) -> st.SearchStrategy[Edit]:
    """Some operators shrink, some work takes less time, some waits go."""
    rows, work, waits = facts.operators.rows, facts.launches.work, facts.waits.rows
    parts = [_shrinking(facts, rows)]
    if len(work):
        parts.append(_working(facts, work))
    if len(waits):
        parts.append(_chosen(waits).map(unblock))
    return st.lists(st.one_of(*parts), min_size=1, max_size=3).map(combine)


def _chosen(rows: np.ndarray) -> st.SearchStrategy[np.ndarray]:
    return st.sets(st.sampled_from(rows.tolist()), min_size=1).map(lambda some: np.array(sorted(some), dtype=np.int64))


def _shrinking(facts: Facts, rows: np.ndarray) -> st.SearchStrategy[Edit]:
    share = st.floats(0, 1)
    return st.tuples(_chosen(rows), share).map(
        lambda some: shrink(some[0], (some[1] * facts.trace.events.duration_ns[some[0]]).astype(np.int64), 0.1)
    )


def _working(facts: Facts, work: np.ndarray) -> st.SearchStrategy[Edit]:
    return st.tuples(_chosen(work), st.floats(0, 1)).map(
        lambda some: shrink_work(some[0], (some[1] * facts.trace.events.duration_ns[some[0]]).astype(np.int64), 0.1)
    )


def edited_ns(facts: Facts, edit: Edit) -> int:
    return replay(facts, edit).edited_ns


@settings(max_examples=60, deadline=None)
@given(recordings())
def test_no_edit_is_the_identity(events: list[dict[str, Any]]) -> None:
    facts = facts_of(events)
    nothing = replay(facts, Edit())
    assert nothing.edited_ns == nothing.recorded_ns
    assert nothing.fraction == 0


@settings(max_examples=100, deadline=None)
@given(st.data(), recordings())
def test_a_larger_edit_never_saves_less(data: st.DataObject, events: list[dict[str, Any]]) -> None:
    facts = facts_of(events)
    one, other = data.draw(edits(facts)), data.draw(edits(facts))
    assert edited_ns(facts, combine([one, other])) <= min(edited_ns(facts, one), edited_ns(facts, other))


@settings(max_examples=100, deadline=None)
@given(st.data(), recordings())
def test_the_order_of_edits_is_irrelevant(data: st.DataObject, events: list[dict[str, Any]]) -> None:
    facts = facts_of(events)
    one, other = data.draw(edits(facts)), data.draw(edits(facts))
    assert edited_ns(facts, combine([one, other])) == edited_ns(facts, combine([other, one]))


@settings(max_examples=100, deadline=None)
@given(st.data(), recordings())
def test_an_edit_gives_back_at_most_what_it_takes_out_and_what_it_waited_for(
    data: st.DataObject, events: list[dict[str, Any]]
) -> None:
    facts = facts_of(events)
    edit = data.draw(edits(facts))
    assert 0 <= edited_ns(facts, edit) <= replay(facts, Edit()).recorded_ns


@settings(max_examples=60, deadline=None)
@given(st.data(), recordings())
def test_swapped_lines_of_a_trace_change_no_fact(data: st.DataObject, events: list[dict[str, Any]]) -> None:
    shuffled = data.draw(st.permutations(events))
    assert _outcome(Facts(trace_of_bytes(json_of(shuffled)))) == _outcome(Facts(trace_of_bytes(json_of(events))))


def _outcome(facts: Facts) -> list[Any]:
    """What does not depend on which of two events that start together comes first."""
    products = remove(np.flatnonzero(facts.trace.named("aten::mm")))
    return [
        facts.steps.duration_ns.tolist(),
        facts.device.any_busy.total_ns,
        len(facts.launches.work),
        len(facts.waits.rows),
        sorted(time_shares(facts)),
        edited_ns(facts, products),
        edited_ns(facts, unblock(facts.waits.rows)),
    ]
