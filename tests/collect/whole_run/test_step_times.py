"""How long steps take over a run, in spans."""

from __future__ import annotations

from profkit.collect.whole_run.step_times import _FIRST_NS, _MOST, StepTimes
from profkit.run.whole_run import StepSpan

MS = 1_000_000


def test_steps_are_told_together_until_a_span_is_full():
    times = StepTimes()
    for at, took in enumerate((40, 30, 60, 10), 1):
        times.note(1000 * MS + at, took * MS)
    assert times.taken(1000 * MS) == (
        StepSpan(3, 3, 130 * MS, 30 * MS, 60 * MS),
        StepSpan(4, 1, 10 * MS, 10 * MS, 10 * MS),
    )


def test_steps_noted_as_one_count_each():
    times = StepTimes()
    times.note(5, 2 * MS, steps=10)
    assert times.taken(0) == (StepSpan(5, 10, 20 * MS, 2 * MS, 2 * MS),)


def test_spans_are_joined_before_there_are_too_many():
    times, steps = StepTimes(), 3 * _MOST
    for at in range(1, steps + 1):
        times.note(at, _FIRST_NS + at)
    taken = times.taken(0)
    assert _MOST // 2 <= len(taken) <= _MOST
    assert sum(span.steps for span in taken) == steps
    assert sum(span.took_ns for span in taken) == sum(_FIRST_NS + at for at in range(1, steps + 1))
    assert taken[0].fastest_ns == _FIRST_NS + 1
    assert taken[-1].slowest_ns == _FIRST_NS + steps


def test_nothing_is_told_of_steps_that_were_forgotten():
    times = StepTimes()
    times.note(5, 2 * MS)
    times.clear()
    assert times.taken(0) == ()


def test_the_typical_step_leaves_out_the_longest():
    assert StepSpan(0, 3, 14, 2, 10).typical_ns == 2
    assert StepSpan(0, 1, 10, 10, 10).typical_ns == 10
