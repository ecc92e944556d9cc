"""What the notes say about the recorded window: its steps, what is not counted, and work from before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.diagnosis.health import check_recording
from profkit.diagnosis.health.window import check_foreign, check_outdone, describe_start
from profkit.diagnosis.pipeline import diagnose
from profkit.report import render
from profkit.run.directory import Run
from tests.diagnosis.health.launches import launched, notes_of
from tests.patterns.looks import CALLED, MS, UPDATE, looked_at
from tests.traces import annotation, facts_of, kernel, mark, op, runtime, step, trace_of

STEPS = [step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)]


def test_a_complete_recording_has_no_notes():
    assert check_recording(facts_of(STEPS)) == ()


def test_a_recording_without_steps_is_reported():
    (note,) = check_recording(facts_of([op("aten::mul", 0, 50)]))
    assert "no steps were found" in note


def test_events_of_unknown_kinds_are_counted_by_category():
    strange = [{**op("x", 5, 1), "cat": category} for category in ("mtia_ccp_events", "mtia_ccp_events", "other_thing")]
    first, second = check_recording(facts_of([step(0, 0, 100), op("aten::mul", 0, 50), *strange]))
    assert first.startswith("the program used an MTIA device whose work was not recorded (2 events of kinds that")
    assert second == "no figure includes 3 events of kinds that profkit does not know: mtia_ccp_events 2, other_thing 1"


def test_unknown_kinds_beyond_the_first_few_are_only_counted():
    foreign = tuple((f"kind_{number}", 1) for number in range(9))
    trace = trace_of([step(0, 0, 100), op("aten::mul", 10, 20)])
    facts = Facts(replace(trace, recording=structs.replace(trace.recording, foreign=foreign)))
    assert check_foreign(facts).endswith("kind_5 1 and 3 more")


@pytest.mark.parametrize("category", ["overhead", "Trace", "cuda_sync", "cuda_event", "collective_comm", ""])
def test_known_categories_without_work_are_not_counted(category):
    event = {**op("x", 5, 1), "cat": category}
    assert check_recording(facts_of([step(0, 0, 100), op("aten::mul", 0, 50), event])) == ()


def test_a_recording_with_line_marks_in_every_step_is_reported():
    (note,) = check_recording(facts_of([step(0, 0, 100), mark(0, 10, 50)]))
    assert "line by line" in note


@pytest.mark.parametrize(
    ("later_ns", "notes"),
    [
        ((100_000,) * 100 + (200_000,) * 30, []),
        ((100_000,) * 100 + (201_000,) * 30, ["later steps take 201 µs"]),
        ((100_000,) * 16 + (900_000,) * 14, []),  # most of the last thirty are as long as before
        ((900_000,) * 29, []),  # too few
    ],
)
def test_later_steps_are_reported_if_thirty_of_them_are_more_than_twice_as_long(later_ns, notes):
    run = Run(reference_step_ns=(100_000,), later_step_ns=later_ns)
    assert [note[:23] for note in check_recording(facts_of(STEPS, run=run))] == notes


@pytest.mark.parametrize(("late", "notes"), [(151, 1), (149, 0)])
def test_a_long_pause_of_a_device_with_queued_work_is_reported(late, notes):
    """The launch returns after 2 µs, and the pause counts 50 µs later: then it is 101 or 99 µs long."""
    events = [step(0, 0, 1000), op("aten::mm", 0, 10), runtime("cudaLaunchKernel", 5, 2, correlation=1)]
    found = check_recording(facts_of([*events, kernel("sgemm", 7 + late, 800, correlation=1)]))
    assert len([note for note in found if note.startswith("the GPU seems idle for 101 µs")]) == notes


def test_a_wait_for_unrecorded_work_is_reported():
    later = [{**event, "ts": event["ts"] + 1000} for event in launched(5)]
    (note,) = notes_of(runtime("cudaStreamSynchronize", 20, 900), *later)
    assert note == (
        "the host waits 1 time, 900 µs in all and first 20.0 µs into the recording, for unrecorded GPU work: "
        "the GPU may have been busy"
    )


def test_a_short_wait_or_one_for_recorded_work_is_no_flaw():
    work = [runtime("cudaLaunchKernel", 0, 5, correlation=1), kernel("k", 10, 900, correlation=1)]
    assert notes_of(*work, runtime("cudaStreamSynchronize", 20, 895)) == ()
    assert notes_of(*work, runtime("cudaStreamSynchronize", 2000, 99)) == ()
    assert notes_of(*work, runtime("cudaStreamSynchronize", 2000, 101), lasting=10_200) == ()  # below a hundredth


def test_work_launched_before_the_recording_is_reported():
    late = [runtime("cudaLaunchKernel", 0, 5, correlation=1), kernel("k", 3005, 900, correlation=1)]
    assert notes_of(*late) == ("the first kernel began 3.00 ms after its launch, cause not recorded",)
    behind = [runtime("cudaLaunchKernel", 3006, 4, correlation=2), kernel("k", 5005, 100, correlation=2)]
    (note,) = notes_of(late[0], kernel("k", 3005, 2000, correlation=1), *behind)
    assert note.startswith("the GPU spent its first 3.00 ms on work launched before the recording began")


@pytest.mark.parametrize(
    ("compiled_us", "told"), [(800, ""), (801, "Compiling or loading code takes 50 % of the recording, ")]
)
def test_a_recording_that_mostly_compiles_is_told_as_such(compiled_us, told):
    steps = [step(0, 0, 1_000), *(step(n, 900 + 100 * n, 100) for n in range(1, 7))]
    compiler = op("_compile.compile_inner (dynamo_timed)", 0, compiled_us)
    assert describe_start(facts_of([*steps, compiler])).startswith(told)
    assert describe_start(facts_of([compiler, op("aten::mul", compiled_us, 10)])) == ""  # a row of the only step


def loop_over_elements() -> list[dict]:
    """Two steps, each with a loop over 80 elements."""
    events = [step(i, 1000 * i, 1000) for i in range(2)]
    for at in (0, 1000):
        events += [op("aten::select", at + 4 * i, 1, dims=[[1000], [], []], types=["float", "", ""]) for i in range(80)]
        events += [op("aten::add", at + 4 * i + 2, 1, dims=[[], []], types=["float", "float"]) for i in range(80)]
    return events


@pytest.mark.parametrize(
    ("is_part", "whole", "step_ns"), [(False, "step", 900_000), (True, "part that was recorded", 1_000_000)]
)
def test_in_a_partly_recorded_step_repetitions_are_reported_but_no_shares_of_the_step(is_part, whole, step_ns):
    run = Run(torch="2.13", trace="t", step_signal="optimizer", reference_step_ns=(900_000,) * 3, is_part=is_part)
    found = diagnose(facts_of(loop_over_elements(), run=run))
    (loop,) = [one for one in found.findings if one.rule == "tensor-element-loop"]
    assert loop.saving is not None
    assert loop.saving.time_ns_per_step == pytest.approx(loop.saving.fraction * step_ns, rel=0.01)
    text = render(found, "text")
    assert f"of the {whole}" in text
    assert (" per step (" in text) is not is_part
    assert ("unattributed-time" in {one.rule for one in found.findings}) is not is_part
    assert ("the only recorded step was cut off" in found.skipped.get("unattributed-time", "")) is is_part
    assert any("those of the part that was recorded" in note for note in found.health) is is_part
    assert ("doubtful, as the only recorded step was cut off" in found.verdict.text) is is_part


@pytest.mark.parametrize("passed", [(), (900_000, 900_000)])
def test_of_the_programs_beginning_nothing_is_said_of_a_step(passed):
    """Both recordings hold no step. Of one, steps passed later: then it is no step itself."""
    loop = [event for event in loop_over_elements() if event["cat"] == "cpu_op"]
    run = Run(torch="2.13", trace="t", reference_step_ns=passed)
    facts = facts_of(loop, run=run)
    found = diagnose(facts)
    assert facts.is_beginning is bool(passed)
    text = render(found, "text")
    assert ("of the part that was recorded" in text) is bool(passed)
    assert ("unattributed-time" in {one.rule for one in found.findings}) is not passed
    assert ("only the program's beginning" in found.skipped.get("unattributed-time", "")) is bool(passed)
    beginning = "No step was recorded, only the program's beginning: shares are those of that part; "
    assert found.verdict.text.startswith(beginning) is bool(passed)
    assert ("doubtful, as no steps were found" in found.verdict.text) is not passed
    assert not (passed and found.costliest)
    (seen,) = [one for one in found.findings if one.rule == "tensor-element-loop"]
    assert seen.severity.value == ("low" if passed else "high")


def notes_on_first_calls(call: str, *numbers: int, lasts: float = 200) -> list[str]:
    """The notes if this runtime call comes in those of five steps."""
    calls = [runtime(call, 1000 * i + 100, lasts) for i in numbers]
    notes = check_recording(facts_of([*(step(i, 1000 * i, 1000) for i in range(5)), op("aten::mul", 0, 50), *calls]))
    return [note for note in notes if "first calls" in note]


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cudaMalloc"])
def test_a_step_left_out_for_its_first_calls_is_reported(call):
    (note,) = notes_on_first_calls(call, 1)
    assert note == (
        "first calls (code is loaded, libraries and the allocator start) took 200 µs in 1 recorded step, left out of "
        "the measured ones"
    )


def test_first_calls_in_every_step_are_reported_as_part_of_the_measured_time():
    (note,) = notes_on_first_calls("cuModuleLoadData", 0, 1, 2, 3, 4)
    assert " took 1.00 ms of the measured time: they come once" in note


def test_allocations_in_most_steps_are_not_first_calls():
    assert notes_on_first_calls("cudaMalloc", 1, 2, 3) == []
    assert notes_on_first_calls("cuModuleLoadData", 1, lasts=9) == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, True),
        ({"was_stopped": True}, False),  # profkit ended the program, so later updates are no news
        ({"was_outdone": False}, False),
        ({"step_signal": "backward"}, False),
    ],
)
def test_calls_of_a_model_that_is_updated_later_are_no_whole_steps(more, told):
    run = Run(torch="2.13", **{"step_signal": "forward", "was_outdone": True, **more})
    events = [event for i in range(4) for event in (step(i, 100 * i, 100), op("aten::mm", 100 * i, 90))]
    account = looked_at([{UPDATE: 60 * MS, CALLED: 40 * MS}] * 5)
    note = check_outdone(facts_of(events, run=run, account=account))
    assert (note is not None) is told
    assert note is None or note.endswith("backward passes and updates, 60 % of the run, were not recorded")
    unwatched = check_outdone(facts_of(events, run=run))
    assert unwatched is None or unwatched.endswith("backward passes and updates were not recorded")


@pytest.mark.parametrize(("with_backward", "is_told"), [(4, False), (2, False), (1, True)])
def test_calls_that_are_followed_by_a_backward_pass_leave_nothing_out(with_backward, is_told):
    """As those of L-BFGS, whose own step comes after twenty of them."""
    run = Run(torch="2.13", step_signal="forward", was_outdone=True)
    events = [event for i in range(4) for event in (step(i, 100 * i, 100), op("aten::mm", 100 * i, 40))]
    node = "autograd::engine::evaluate_function: MmBackward0"
    events += [op(node, 100 * i + 50, 30) for i in range(with_backward)]
    assert (check_outdone(facts_of(events, run=run)) is not None) is is_told


@pytest.mark.parametrize(("passed_us", "is_beginning"), [(99, True), (100, False)])
def test_one_update_is_the_beginning_if_it_lasts_many_times_as_long_as_steps(passed_us, is_beginning):
    """The opening of a millisecond holds the making of the optimizer, and the first update."""
    node = op("autograd::engine::evaluate_function: MmBackward0", 800, 50, sequence=1)
    events = [op("aten::mm", 0, 100), node, annotation("Optimizer.step#SGD.step", 900, 100)]
    facts = facts_of(events, run=Run(torch="2.13", reference_step_ns=(passed_us * 1000,) * 5))
    assert facts.is_beginning is is_beginning
    assert any("only the program's beginning" in note for note in check_recording(facts)) is is_beginning
    assert not facts_of(events, run=Run(torch="2.13")).is_beginning
