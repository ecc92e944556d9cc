"""Whatever runs between `pause` and `resume` belongs to no step."""

from __future__ import annotations

from pathlib import Path

import torch

from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_run
from tests.collect.conftest import Clock
from tests.collect.reading import is_inside, read_events, steps_of

STEP_NS, EVALUATION_NS = 10**6, 50 * 10**6


def run(recording: profile, steps: int, evaluate_after: set[int], clock: Clock | None = None) -> None:
    """Each step multiplies; an evaluation is slow and exponentiates."""
    clock = clock or Clock()
    for number in range(steps):
        torch.rand(8) * 2
        clock.now_ns += STEP_NS
        recording.step()
        if number in evaluate_after:
            recording.pause()
            torch.rand(8).exp()
            clock.now_ns += EVALUATION_NS
            recording.step()
            recording.resume()


def recorded(directory: Path) -> tuple[list[int], int]:
    """The numbers of the recorded steps, and how many evaluations lie inside them."""
    events = read_events(directory)
    steps = steps_of(events)
    evaluated = [event for event in events if event["name"] == "aten::exp"]
    return sorted(steps), sum(is_inside(event, step) for event in evaluated for step in steps.values())


def test_the_time_of_a_step_leaves_out_the_evaluation_before_it(tmp_path, clock):
    with profile(tmp_path, wait=3, warmup=1, active=2) as recording:
        run(recording, 12, {1, 2, 9}, clock)
    assert recorded(tmp_path) == ([2, 4, 5], 0)
    times = load_run(tmp_path).reference_step_ns
    assert len(times) == 8  # the prologue, three recorded steps, and the rest of twelve
    assert max(times) == STEP_NS


def test_a_recording_interrupted_by_an_evaluation_begins_anew(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=3) as recording:
        run(recording, 12, {4})  # two steps after the located one; one is measured
    assert recorded(tmp_path) == ([1, 4, 5, 6], 0)
    assert load_run(tmp_path).notes == ()
    assert len(load_run(tmp_path).measured_step_faults) == 3


def test_between_frequent_evaluations_fewer_steps_are_kept(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=3) as recording:
        run(recording, 12, {4, 6})
    assert recorded(tmp_path) == ([1, 4, 5], 0)
    (note,) = load_run(tmp_path).notes
    assert note == "fewer steps were recorded than planned, because the program paused between them"


def test_a_located_step_interrupted_by_an_evaluation_begins_again(tmp_path):
    with profile(tmp_path, wait=0, warmup=1, active=1) as recording:
        run(recording, 6, {0})
    assert recorded(tmp_path)[1] == 0
    steps = steps_of(read_events(tmp_path))
    assert sorted(steps) == [0, 1]


def test_a_recording_can_end_during_a_pause(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=3) as recording:
        run(recording, 5, set())
        recording.pause()
        torch.rand(8).exp()
    assert recorded(tmp_path) == ([1], 0)
    assert profile._current is None


def test_a_pause_before_the_first_step_changes_nothing(tmp_path):
    with profile(tmp_path, wait=0, warmup=0, active=2) as recording:
        recording.pause()
        torch.rand(8).exp()
        recording.resume()
        run(recording, 4, set())
    assert recorded(tmp_path) == ([0, 1], 0)


def test_pause_and_resume_without_a_recording_do_nothing(tmp_path):
    recording = profile(tmp_path)
    recording.pause()
    recording.resume()
    with recording:
        recording.resume()
        run(recording, 40, {39})
        assert recording.is_over
    recording.pause()
    recording.resume()
