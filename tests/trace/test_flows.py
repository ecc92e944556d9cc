"""Arrows join calls and work where no event has a correlation."""

from __future__ import annotations

import pytest

from tests.traces import arrow, facts_of, kernel, op, rows_named, runtime, trace_of


def _launch(number, at, *, correlation=None, category="ac2g", numbered=True):
    """An operator that launches a kernel, which begins 20 µs later."""
    return [
        op(f"aten::op{number}", at, 10),
        runtime("cudaLaunchKernel", at + 2, 3, correlation=correlation),
        kernel(f"k{number}", at + 22, 5, correlation=correlation),
        *(arrow(number, at + 2, at + 22, category=category) if numbered else []),
    ]


def _operators(events):
    """The names of the operators that launched the kernels, in order."""
    facts = facts_of(events)
    return [facts.trace.name_of(row) if row >= 0 else "" for row in facts.launches.operator.tolist()]


@pytest.mark.parametrize("category", ["ac2g", "async_cpu_to_gpu", "async_gpu"])
def test_an_arrow_joins_a_call_with_its_work(category):
    events = [*_launch(1, 0, category=category), *_launch(2, 15.5, category=category)]
    assert _operators(events) == ["aten::op1", "aten::op2"]


def test_without_arrows_nothing_is_joined():
    assert _operators([*_launch(1, 0, numbered=False), *_launch(2, 15, numbered=False)]) == ["", ""]


def test_arrows_of_another_kind_join_nothing():
    assert _operators([*_launch(1, 0, category="fwdbwd"), *_launch(2, 15, category="fwdbwd")]) == ["", ""]


def test_a_correlation_makes_arrows_needless():
    trace = trace_of([*_launch(1, 0, correlation=71), *_launch(2, 15)])
    assert trace.events.correlation[rows_named(trace, "k1", "k2")].tolist() == [71, -1]


def test_an_arrow_with_both_ends_at_the_work_joins_nothing():
    crossed = [{**one, "pid": 0, "tid": 7, "ts": 22} for one in arrow(1, 2, 22)]
    trace = trace_of([*_launch(1, 0, numbered=False), *crossed])
    assert (trace.events.correlation == -1).all()


def test_an_arrow_that_begins_beside_a_call_joins_nothing():
    events = [*_launch(1, 0, numbered=False), *arrow(1, 2.5, 22)]
    assert _operators(events) == [""]


@pytest.mark.parametrize("number", ["x", None, 0, -3, 1e300, [1]])
def test_an_arrow_without_a_usable_number_joins_nothing(number):
    broken = [{**one, "id": number} for one in arrow(1, 2, 22)]
    assert _operators([*_launch(1, 0, numbered=False), *broken]) == [""]


def test_arrows_with_numbers_as_text_are_read():
    events = [*_launch(1, 0, numbered=False), *({**one, "id": "1"} for one in arrow(1, 2, 22))]
    assert _operators(events) == ["aten::op1"]
