"""What the notes say about the cost of recording."""

from __future__ import annotations

import pytest

from profkit.diagnosis.health import check_recording
from profkit.run.directory import Run
from tests.diagnosis.health.launches import notes_of
from tests.traces import facts_of, op, step

LONGER = [step(0, 0, 125), step(1, 125, 125), op("aten::mul", 10, 50)]
"""Steps of 125 µs."""


def test_recording_that_makes_the_steps_a_quarter_slower_is_reported():
    small = [op("aten::mul", at, 10) for at in range(0, 250, 25)]
    events = [step(0, 0, 125), step(1, 125, 125), *small]
    (note,) = check_recording(facts_of(events, run=Run(reference_step_ns=(100_000,))))
    assert note.startswith("recording made the steps 25 % slower")
    assert check_recording(facts_of(events, run=Run(reference_step_ns=(101_000,)))) == ()


def test_recorded_steps_slower_than_recording_explains_are_reported():
    (note,) = check_recording(facts_of(LONGER, run=Run(reference_step_ns=(50_000,))))
    assert note.startswith("the recorded steps took 150 % longer than others, beyond the profiler's own")


@pytest.mark.parametrize(("reference_ns", "count"), [(156_000, 0), (157_000, 1)])
def test_recorded_steps_notably_shorter_than_the_others_are_reported(reference_ns, count):
    notes = check_recording(facts_of(LONGER, run=Run(reference_step_ns=(reference_ns,))))
    expected = "the steps without the profiler took 1.3 times as long as the recorded ones"
    assert [note.startswith(expected) for note in notes] == [True] * count


@pytest.mark.parametrize(("long_us", "said"), [(121, True), (119, False)])
def test_waits_for_a_cpu_of_a_tenth_of_the_steps_are_reported(long_us, said):
    """One of five products took that much longer than 20 µs, all of which was a wait."""
    lengths = [20, 20, 20, 20, 20 + long_us]
    work = [op("aten::mm", 240 * at, length) for at, length in enumerate(lengths)]
    facts = facts_of([step(0, 0, 1200), *work], run=Run(measured_step_crowded_ns=(1_000_000,)))
    assert [note.startswith("other threads had the CPUs for at least 10 %") for note in check_recording(facts)] == [
        True
    ] * said


def overhead(name: str, start: float, duration: float) -> dict:
    return {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": start, "dur": duration, "args": {}}


def test_work_of_the_profiler_itself_is_reported_from_a_twentieth_of_the_time_on():
    (note,) = notes_of(overhead("Buffer Flush", 100, 490), overhead("Instrumentation", 1000, 10))
    assert note == (
        "the profiler itself was at work for 5.0 % of the time (Buffer Flush, Instrumentation): step times are too long"
    )
    assert notes_of(overhead("Buffer Flush", 100, 490)) == ()
    assert notes_of(overhead("Command Buffer Full", 100, 5000)) == ()
