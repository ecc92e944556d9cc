"""What is wrong with a recording is said in one sentence each, and nothing is said of a whole one."""

from __future__ import annotations

from profkit.health import check_recording
from profkit.run import Run
from tests.traces import facts_of, kernel, mark, op, runtime, step


def test_a_whole_recording_has_no_notes():
    assert check_recording(facts_of([step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)])) == ()


def test_a_recording_without_steps_says_so():
    (note,) = check_recording(facts_of([op("aten::mul", 0, 50)]))
    assert "no steps were found" in note


def test_launches_without_kernels_are_counted():
    events = [step(0, 0, 100), runtime("cudaLaunchKernel", 0, 1, correlation=1)]
    assert check_recording(facts_of(events)) == ("1 kernel launch but no kernels: the GPU's side was not recorded",)
    (note,) = check_recording(facts_of([*events, runtime("cuLaunchKernel", 2, 1, correlation=2)]))
    assert note.startswith("2 kernel launches but no kernels")


def test_kernels_without_a_launch_are_counted():
    (note,) = check_recording(facts_of([step(0, 0, 100), kernel("k", 0, 9, correlation=5)]))
    assert note == "1 of 1 GPU events have no launch record: they cannot be traced back to a line"


def test_a_recording_that_was_traced_line_by_line_throughout_says_so():
    (note,) = check_recording(facts_of([step(0, 0, 100), mark(0, 10, 50)]))
    assert "line by line" in note


def test_recording_that_slowed_the_steps_by_a_quarter_says_how_much():
    events = [step(0, 0, 125), step(1, 125, 125)]
    (note,) = check_recording(facts_of(events, run=Run(reference_step_ns=(100_000,))))
    assert note.startswith("recording made the steps 25 % slower")
    assert check_recording(facts_of(events, run=Run(reference_step_ns=(101_000,)))) == ()


def test_the_recorders_own_notes_come_first():
    notes = check_recording(facts_of([op("aten::mul", 0, 50)], run=Run(notes=("the disk was full",))))
    assert notes[0] == "the disk was full"
