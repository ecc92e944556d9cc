"""Recordings of a program's start get no advice; a cold first step is as long as it is."""

from __future__ import annotations

import pytest

from profkit.diagnosis.health import check_recording
from profkit.diagnosis.pipeline import diagnose
from profkit.patterns.time.start_up import describe_start_up
from tests.traces import annotation, facts_of, kernel, op, python, runtime, step


def _step(number, at, length, *, busy=20):
    """A step that launches a kernel and otherwise leaves the device idle, in a function of the program."""
    return [
        step(number, at, length),
        python("train.py(40): prepare", at + 100, length - 200),
        op("aten::mm", at + 10, 50),
        runtime("cudaLaunchKernel", at + 20, 10, correlation=number + 1),
        kernel("gemm", at + 40, busy, correlation=number + 1),
    ]


CAPTURE = (runtime("cudaStreamBeginCapture", 100, 5), runtime("cudaStreamEndCapture", 9_000, 5))


def test_a_step_that_captures_a_graph_gets_no_advice():
    idle = diagnose(facts_of(_step(0, 0, 10_000)))
    assert [found.rule for found in idle.findings] == ["unattributed-time"]
    captured = diagnose(facts_of([*_step(0, 0, 10_000), *CAPTURE]))
    started = "what was recorded is start-up: capturing CUDA graphs takes 89 % of 10.0 ms"
    assert captured.findings == ()
    assert captured.verdict.text.startswith(f"Cannot judge: {started}; the host bounds the step: capturing graphs, ")
    assert captured.skipped["unattributed-time"] == f"{started}, which comes once"


def test_a_capture_in_less_than_half_of_the_step_leaves_the_advice():
    events = [*_step(0, 0, 10_000), CAPTURE[0], runtime("cudaStreamEndCapture", 4_000, 5)]
    assert [found.rule for found in diagnose(facts_of(events)).findings] == ["unattributed-time"]


def test_beside_other_steps_the_start_is_left_out():
    events = [*_step(0, 0, 10_000), *CAPTURE, *_step(1, 10_000, 1_000, busy=900), *_step(2, 11_000, 1_000, busy=900)]
    facts = facts_of(events)
    assert describe_start_up(facts) is None
    assert facts.steps.measured.tolist() == [False, True, True]


@pytest.mark.parametrize(("steps", "is_start"), [(1, True), (3, False)])
def test_compiling_is_start_up_in_one_step_and_a_fault_in_each_of_several(steps, is_start):
    events = [
        one
        for n in range(steps)
        for one in (*_step(n, 10_000 * n, 10_000), op("compile_inner (dynamo_timed)", 10_000 * n + 100, 8_000))
    ]
    assert (describe_start_up(facts_of(events)) is not None) is is_start


def test_warming_up_counts_in_any_number_of_steps():
    events = [one for n in range(3) for one in _step(n, 10_000 * n, 10_000)]
    found = describe_start_up(facts_of([*events, annotation("warmup", 0, 30_000)]))
    assert found == "what was recorded is start-up: warming up takes 100 % of 30.0 ms"


def test_several_kinds_that_make_half_together_are_named_together():
    tuning = python("triton/testing.py(96): do_bench", 5_000, 2_500)
    ends = runtime("cudaStreamEndCapture", 3_600, 5)
    found = describe_start_up(facts_of([*_step(0, 0, 10_000), CAPTURE[0], ends, tuning]))
    assert found == "what was recorded is start-up: capturing CUDA graphs and the like take 60 % of 10.0 ms"


def _cold(first, *later, loading=0.0):
    """The notes on steps of these lengths, the first of which loads code."""
    events, at = [], 0
    for number, length in enumerate((first, *later)):
        events += [step(number, at, length), op("aten::mm", at + 5, length - 10)]
        at += length
    if loading:
        events.append(runtime("cuModuleLoadData", 100, loading))
    notes = check_recording(facts_of(events))
    return [note for note in notes if "cold start" in note or "first calls" in note]


def test_a_cold_start_is_what_the_first_step_takes_longer_whatever_was_recorded_of_it():
    (note,) = _cold(138_000, 100_000, 101_000, 99_000, loading=4_460)
    assert note == (
        "a cold start, left out of the measured steps: the first takes 38.0 ms longer than later ones (4.46 ms of it "
        "in recorded first calls)"
    )


def test_a_cold_start_without_a_recorded_cause_is_told_as_well():
    (note,) = _cold(300_000, 100_000, 101_000, 99_000)
    assert note == "a cold start, left out of the measured steps: the first takes 200 ms longer than later ones"


def test_a_first_step_that_loads_and_is_hardly_longer_is_no_cold_start():
    (note,) = _cold(101_500, 100_000, 101_000, 99_000, loading=4_460)
    assert note.startswith("first calls")


def test_a_first_step_like_the_others_is_no_cold_start():
    assert _cold(100_000, 100_000, 101_000, 99_000) == []
