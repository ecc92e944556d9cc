"""What is wrong with a recording is said in one sentence each, and nothing is said of a whole one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.diagnosing import diagnose
from profkit.health import check_recording, find_obstacles
from profkit.health.program import check_children, check_operators
from profkit.health.window import check_foreign
from profkit.report import render
from profkit.run import LoaderUse, Run
from tests.traces import facts_of, json_of, kernel, mark, op, python, runtime, step, trace_of, trace_of_bytes


def test_a_whole_recording_has_no_notes():
    assert check_recording(facts_of([step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)])) == ()


def test_a_recording_without_steps_says_so():
    (note,) = check_recording(facts_of([op("aten::mul", 0, 50)]))
    assert "no steps were found" in note


FAILED = "the program failed: ImportError: No module named 'lost'"


def verdict_of(events, **run) -> str:
    verdict = diagnose(facts_of(events, run=Run(torch="2.13", trace="t", **run))).verdict
    assert verdict is not None
    return verdict.text


def test_a_program_that_failed_before_any_step_cannot_be_judged_and_one_that_failed_later_can():
    events = [op("aten::mul", 0, 50)]
    before = "Cannot judge: the program failed before any step of it was recorded: ImportError: No module named 'lost'"
    assert verdict_of(events, notes=(FAILED,), exit_status=1) == before
    assert verdict_of(events, exit_status=139) == (
        "Cannot judge: the program ended with exit status 139 (SIGSEGV) before any step of it was recorded"
    )
    steps = [step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)]
    assert verdict_of(steps, notes=(FAILED,), exit_status=1, step_signal="optimizer").startswith(
        "The program failed: ImportError: No module named 'lost'; no fault found until then; "
    )


def test_a_program_whose_children_did_the_work_cannot_be_judged():
    events = [op("aten::mul", 0, 50)]
    said = verdict_of(events, own_cpu_ns=1_000_000_000, children_cpu_ns=9_000_000_000, target="sweep.py")
    assert said.startswith(
        "Cannot judge: only the program that starts the work was recorded: the processes that it started used 9.00 s "
        "of CPU time, the program itself 1.00 s. Put `with profkit.profile(DIRECTORY):`"
    )
    said = verdict_of(events, own_cpu_ns=1, children_cpu_ns=2, target="torch.distributed.run")
    assert "`torchrun ... -m profkit record train.py`" in said


def test_a_rank_of_which_only_collectives_were_recorded_is_not_judged():
    steps = [step(0, 0, 100), step(1, 100, 100)]
    said = verdict_of(steps, is_light=True, step_signal="optimizer")
    assert said.startswith("Cannot judge: of this rank only collectives and steps were recorded")
    assert not verdict_of(steps, step_signal="optimizer").startswith("Cannot judge: of this rank")


@pytest.mark.parametrize("run", [
    {"own_cpu_ns": 2, "children_cpu_ns": 1},  # a helper
    {"own_cpu_ns": 1, "children_cpu_ns": 2, "step_signal": "optimizer"},  # environments beside a training
    {"own_cpu_ns": 1, "children_cpu_ns": 2, "loaders": (LoaderUse(2, 8, False, False),)},  # workers load its data
])  # fmt: skip
def test_children_that_help_are_no_launchers_work(run):
    assert check_children(facts_of([op("aten::mul", 0, 50)], run=Run(torch="2.13", **run))) is None


def test_where_nothing_of_pytorch_ran_nothing_is_judged():
    steps = [step(0, 0, 100), step(1, 100, 100)]
    assert verdict_of(steps, step_signal="epoch") == "Cannot judge: no operator of PyTorch ran in the recording"
    assert check_operators(facts_of([*steps, op("aten::mul", 0, 50)])) is None
    assert check_operators(facts_of([*steps, kernel("gemm", 0, 50)])) is None


def test_an_accelerator_that_was_not_recorded_leads_the_notes_and_is_why_nothing_can_be_judged():
    events = [step(0, 0, 100), runtime("cudaLaunchKernel", 0, 1, correlation=1)]
    notes = check_recording(facts_of(events, run=Run(notes=("the disk was full",))))
    unrecorded = (
        "the program used a CUDA device whose work was not recorded (1 kernel launch but no kernels; "
        "ProfilerActivity.CUDA records it): only the host's side is judged, and the device's times are unknown"
    )
    assert notes == (unrecorded, "the disk was full")
    diagnosis = diagnose(facts_of([*events, op("aten::mm", 5, 90)]))
    assert diagnosis.cannot_judge == notes[0]
    assert json.loads(render(diagnosis, "json"))["cannot_judge"] == notes[0]
    reason = "the program used a CUDA device whose work was not recorded"
    assert diagnosis.skipped["tensor-element-loop"] == reason
    assert diagnosis.skipped["full-precision-matmul"] == reason
    assert "input-bound" not in {rule for rule, why in diagnosis.skipped.items() if why == reason}


def test_no_activity_records_what_torch_cannot():
    (note,) = check_recording(facts_of([step(0, 0, 100), op("aten::_mps_convolution", 0, 50)]))
    assert note.startswith(
        "the program used an MPS device whose work was not recorded (aten::_mps_convolution runs on no other): only"
    )


def test_a_recorded_device_and_a_processor_can_be_judged():
    assert diagnose(facts_of([step(0, 0, 100), op("aten::mm", 0, 50)])).cannot_judge is None
    work = [runtime("cudaLaunchKernel", 0, 1, correlation=1), kernel("k", 3, 9, correlation=1)]
    assert diagnose(facts_of([step(0, 0, 100), op("aten::mm", 0, 50), *work])).cannot_judge is None


def test_events_of_kinds_that_are_not_known_are_counted_by_their_category():
    strange = [{**op("x", 5, 1), "cat": category} for category in ("mtia_ccp_events", "mtia_ccp_events", "other_thing")]
    first, second = check_recording(facts_of([step(0, 0, 100), op("aten::mul", 0, 50), *strange]))
    assert first.startswith("the program used an MTIA device whose work was not recorded (2 events of kinds that")
    assert second == "no figure includes 3 events of kinds that profkit does not know: mtia_ccp_events 2, other_thing 1"


@pytest.mark.parametrize("category", ["overhead", "Trace", "cuda_sync", "cuda_event", "collective_comm", ""])
def test_categories_without_work_of_their_own_are_not_counted(category):
    event = {**op("x", 5, 1), "cat": category}
    assert check_recording(facts_of([step(0, 0, 100), op("aten::mul", 0, 50), event])) == ()


def test_kernels_without_a_launch_are_counted():
    (note,) = check_recording(facts_of([step(0, 0, 100), kernel("k", 0, 9, correlation=5)]))
    assert note == "no launch is recorded for 1 of 1 GPU events: they cannot be traced back to a line"


def test_a_recording_that_was_traced_line_by_line_throughout_says_so():
    (note,) = check_recording(facts_of([step(0, 0, 100), mark(0, 10, 50)]))
    assert "line by line" in note


def test_recording_that_slowed_the_steps_by_a_quarter_says_how_much():
    small = [op("aten::mul", at, 10) for at in range(0, 250, 25)]
    events = [step(0, 0, 125), step(1, 125, 125), *small]
    (note,) = check_recording(facts_of(events, run=Run(reference_step_ns=(100_000,))))
    assert note.startswith("recording made the steps 25 % slower")
    assert check_recording(facts_of(events, run=Run(reference_step_ns=(101_000,)))) == ()


@pytest.mark.parametrize(("last_ns", "said"), [(200_000, 0), (201_000, 1)])
def test_later_steps_that_are_twice_as_long_are_told(last_ns, said):
    run = Run(reference_step_ns=(100_000,), later_step_ns=(100_000,) * 100 + (last_ns,) * 30)
    notes = check_recording(facts_of([step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)], run=run))
    assert [note.startswith("later steps take 201 µs") for note in notes] == [True] * said


def test_longer_steps_among_the_last_do_not_make_these_others():
    run = Run(reference_step_ns=(100_000,), later_step_ns=(100_000,) * 16 + (900_000,) * 14)
    assert check_recording(facts_of([step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)], run=run)) == ()


def test_fewer_than_thirty_later_steps_tell_nothing():
    run = Run(reference_step_ns=(100_000,), later_step_ns=(900_000,) * 29)
    assert check_recording(facts_of([step(0, 0, 100), step(1, 100, 100), op("aten::mul", 0, 50)], run=run)) == ()


def test_recorded_steps_that_were_slower_than_recording_makes_them_say_so():
    events = [step(0, 0, 125), step(1, 125, 125), op("aten::mul", 10, 50)]
    (note,) = check_recording(facts_of(events, run=Run(reference_step_ns=(50_000,))))
    assert note.startswith("the recorded steps took 150 % longer than those without the profiler, more than its own")


@pytest.mark.parametrize(("reference_ns", "said"), [(249_000, 0), (250_000, 1)])
def test_recorded_steps_that_took_half_of_what_others_did_say_so(reference_ns, said):
    events = [step(0, 0, 125), step(1, 125, 125), op("aten::mul", 10, 50)]
    notes = check_recording(facts_of(events, run=Run(reference_step_ns=(reference_ns,))))
    told = "the steps without the profiler took 2.0 times as long as the recorded ones"
    assert [note.startswith(told) for note in notes] == [True] * said


def test_the_recorders_own_notes_come_first():
    notes = check_recording(facts_of([op("aten::mul", 0, 50)], run=Run(notes=("the disk was full",))))
    assert notes[0] == "the disk was full"


def launched(count: int, *, shift: float = 0, without: range = range(0), every: float = 100) -> list:
    """Launches every 100 µs, each with a kernel of 50 µs that starts 10 µs later, ``shift`` µs off by its own clock."""
    events = []
    for n in range(count):
        events.append(runtime("cudaLaunchKernel", every * n, 5, correlation=n + 1))
        if n not in without:
            events.append(kernel("k", every * n + 10 + shift, 50, correlation=n + 1))
    return events


def notes_of(*events: dict, lasting: float = 10_000) -> tuple[str, ...]:
    """What is said of two steps with these events in the first."""
    half = lasting / 2
    return check_recording(facts_of([step(0, 0, half), step(1, half, half), op("aten::mul", 0, 1), *events]))


# The device's side


def test_the_kernels_of_the_first_launches_may_be_missing():
    (note,) = notes_of(*launched(50, without=range(10)))
    assert note == (
        "the kernels of the first 10 of 50 kernel launches are missing: for 1.00 ms the GPU seems idle, but "
        "may not have been"
    )


def test_the_kernels_of_the_last_launches_may_be_missing():
    (note,) = notes_of(*launched(50, without=range(45, 50)))
    assert note == (
        "the kernels of the last 5 of 50 kernel launches are missing: the recording ended before they ran, and no "
        "figure includes them"
    )


def test_the_kernels_of_launches_in_between_may_be_missing():
    (note,) = notes_of(*launched(50, without=range(20, 30)))
    assert note == (
        "no kernel is recorded for 10 of 50 kernel launches: records of the GPU were lost, and its work is understated"
    )


def test_less_than_a_hundredth_of_the_kernels_may_be_missing_in_silence():
    assert notes_of(*launched(101, without=range(1)), lasting=30_000) == ()
    assert notes_of(*launched(101, without=range(50, 51)), lasting=30_000) == ()
    assert len(notes_of(*launched(100, without=range(50, 51)), lasting=30_000)) == 1


def test_launches_that_a_graph_captures_have_no_kernels_and_need_none():
    capture = [runtime("cudaStreamBeginCapture_v10000", 2001, 1), runtime("cudaStreamEndCapture", 2990, 1)]
    assert notes_of(*launched(50, without=range(21, 30)), *capture) == ()
    assert len(notes_of(*launched(50, without=range(21, 31)), *capture)) == 1


def test_launches_that_give_no_correlation_tell_nothing():
    events = [runtime("cudaLaunchKernel", 10 * n, 5) for n in range(9)]
    assert notes_of(*events, kernel("k", 10, 50)) == notes_of(kernel("k", 10, 50))


def test_rocms_launches_count_like_cudas():
    events = [{**event, "name": event["name"].replace("cudaLaunchKernel", "hipExtModuleLaunchKernel")}
              for event in launched(50, without=range(10))]  # fmt: skip
    assert notes_of(*events)[0].startswith("the kernels of the first 10 of 50 kernel launches are missing")


def test_a_kernel_that_lasts_into_the_later_ones_of_its_stream_is_named():
    (note,) = notes_of(*launched(40), kernel("long", 11, 3000, correlation=900),
                       runtime("cudaLaunchKernel", 6, 1, correlation=900))  # fmt: skip
    assert note.startswith("1 GPU event cannot have lasted as long as recorded, by up to 2.90 ms: the next work")


def test_kernels_of_one_graph_launch_and_of_other_streams_may_run_side_by_side():
    graph = [runtime("cudaGraphLaunch", 0, 5, correlation=1), kernel("a", 10, 5000, correlation=1),
             kernel("b", 20, 5000, correlation=1)]  # fmt: skip
    assert notes_of(*graph) == ()
    streams = [*launched(40), runtime("cudaLaunchKernel", 6, 1, correlation=900),
               kernel("long", 11, 3000, correlation=900, stream=9)]  # fmt: skip
    assert notes_of(*streams) == ()


def test_an_early_start_of_the_next_kernel_is_no_flaw():
    events = [event for n in range(9) for event in (runtime("cudaLaunchKernel", 100 * n, 1, correlation=n + 1),
                                                    kernel("k", 100 * n + 10, 110, correlation=n + 1))]  # fmt: skip
    assert notes_of(*events) == ()


# The window


def test_a_wait_for_work_that_was_not_recorded_is_told():
    (note,) = notes_of(runtime("cudaStreamSynchronize", 20, 900), *[
        {**event, "ts": event["ts"] + 1000} for event in launched(5)
    ])  # fmt: skip
    assert note == (
        "the host waits 1 time, 900 µs in all and first 20.0 µs into the recording, for work of the GPU that was not "
        "recorded: the GPU seems idle meanwhile, but may not have been"
    )


def test_a_wait_for_recorded_work_or_a_short_one_is_no_flaw():
    work = [runtime("cudaLaunchKernel", 0, 5, correlation=1), kernel("k", 10, 900, correlation=1)]
    assert notes_of(*work, runtime("cudaStreamSynchronize", 20, 895)) == ()
    assert notes_of(*work, runtime("cudaStreamSynchronize", 2000, 99)) == ()
    assert notes_of(*work, runtime("cudaStreamSynchronize", 2000, 101), lasting=10_200) == ()  # below a hundredth


def test_work_from_before_the_recording_is_told():
    late = [runtime("cudaLaunchKernel", 0, 5, correlation=1), kernel("k", 3005, 900, correlation=1)]
    (note,) = notes_of(*late)
    assert note.startswith("the GPU spent its first 3.00 ms on work launched before the recording began")


# The clocks


def test_kernels_that_start_before_their_launch_are_counted_with_when_and_by_how_much():
    (note,) = notes_of(*launched(50, shift=-40))
    assert note == (
        "GPU work starts before the call that launches it (50 of 50 GPU events, by up to 30.0 µs, from 30.0 µs "
        "to 4.93 ms into the recording): the clocks of host and GPU disagree, so waits and idle times are off by as "
        "much"
    )
    assert notes_of(*launched(50, shift=-10)) == ()


def test_a_clock_that_was_set_shows_from_when_on():
    events = [{**event, "ts": event["ts"] - 40} if event["cat"] == "kernel" and event["ts"] > 3000 else event
              for event in launched(50)]  # fmt: skip
    (note,) = notes_of(*events)
    assert "(20 of 50 GPU events, " in note
    assert "from 3.00 ms to 4.90 ms into the recording" in note


@pytest.mark.parametrize("shift", [0, 300])
def test_waits_that_return_before_the_work_is_done_show_a_clock_that_was_set_forwards(shift):
    waits = [runtime("cudaDeviceSynchronize", 100 * n + 20, 50) for n in range(20)]
    notes = [note for note in notes_of(*launched(20, shift=shift), *waits) if "return before" in note]
    assert len(notes) == (shift > 0)
    if notes:
        assert notes[0].startswith("waits for the GPU return before its work is done (20 of 20 waits, by up to 290 µs")


def test_a_wait_for_one_of_several_streams_tells_nothing_of_the_others():
    events = [runtime("cudaLaunchKernel", 0, 5, correlation=1), kernel("k", 10, 5000, correlation=1, stream=9),
              runtime("cudaLaunchKernel", 10, 5, correlation=2), kernel("k", 20, 100, correlation=2),
              runtime("cudaStreamSynchronize", 16, 110)]  # fmt: skip
    assert notes_of(*events) == ()


def test_a_stretch_without_anything_that_is_longer_than_all_the_rest_is_told():
    events = [op("aten::mul", at, 10) for at in (0, 100, 60_000_000, 60_000_100)]
    notes = check_recording(facts_of([*events, python("train.py(1): main", 0, 60_000_200)]))
    assert (
        "nothing was recorded for 60.0 s, 100 % of the recording, from 110 µs on: the clock was set or the machine "
        "slept, so the step around it is too long" in notes
    )


def test_a_long_wait_within_an_event_and_a_short_recording_have_no_hole():
    within = [step(0, 0, 60_000_000), step(1, 60_000_000, 9), op("aten::mul", 60_000_000, 1)]
    assert check_recording(facts_of(within)) == ()
    short = [op("aten::mul", at, 10) for at in (0, 100, 9_000_000, 9_000_100)]
    assert not any("nothing was recorded" in note for note in check_recording(facts_of(short)))


# The cost


def overhead(name: str, start: float, duration: float) -> dict:
    return {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": start, "dur": duration, "args": {}}


def test_the_profilers_own_work_is_told_from_a_twentieth_on():
    (note,) = notes_of(overhead("Buffer Flush", 100, 300), overhead("Instrumentation", 1000, 200))
    assert note == (
        "the profiler itself was at work for 5.0 % of the time (Buffer Flush, Instrumentation): step times are too long"
    )
    assert notes_of(overhead("Buffer Flush", 100, 490)) == ()
    assert notes_of(overhead("Command Buffer Full", 100, 5000)) == ()


# What keeps from judging

LAUNCHED = tuple(runtime("cudaLaunchKernel", 10 * i, 1, correlation=i + 1) for i in range(10))


def test_a_whole_recording_can_be_judged():
    kernels = [kernel("k", 10 * i + 2, 5, correlation=i + 1) for i in range(10)]
    assert find_obstacles(facts_of([step(0, 0, 100), *LAUNCHED, *kernels])) == ()


def test_without_steps_or_kernels_nothing_can_be_judged():
    assert find_obstacles(facts_of(LAUNCHED)) == (
        (
            "the program used a CUDA device whose work was not recorded (10 kernel launches but no kernels; "
            "ProfilerActivity.CUDA records it): only the host's side is judged, and the device's times are unknown"
        ),
        "no steps were found: the whole recording is treated as one step",
    )


@pytest.mark.parametrize(("kept", "obstacles"), [(5, ()), (4, ("no kernel is recorded for 6 of 10 kernel launches",))])
def test_nothing_can_be_judged_where_most_kernels_are_lost(kept, obstacles):
    kernels = [kernel("k", 10 * i + 2, 5, correlation=i + 1) for i in range(kept)]
    assert find_obstacles(facts_of([step(0, 0, 100), *LAUNCHED, *kernels])) == obstacles


@pytest.mark.parametrize(("known", "obstacles"), [(5, ()), (4, ("no launch is recorded for 6 of 10 GPU events",))])
def test_nothing_can_be_judged_where_most_launches_are_lost(known, obstacles):
    kernels = [kernel("k", 10 * i + 2, 5, correlation=i + 1) for i in range(10)]
    assert find_obstacles(facts_of([step(0, 0, 100), *LAUNCHED[:known], *kernels])) == obstacles


def test_nothing_can_be_judged_from_a_file_that_is_cut_off():
    whole = json_of([step(0, 0, 100), op("aten::mul", 0, 50), op("aten::add", 60, 20)])
    cut = trace_of_bytes(whole[: whole.index(b"aten::add")])
    (obstacle,) = find_obstacles(Facts(cut))
    assert obstacle == "the file is cut off, and what is lost may be from any part of the recording"


def loop_over_elements() -> list[dict]:
    """A step that traced lines of nothing else; in it 80 elements, one by one."""
    events = [step(i, 1000 * i, 1000) for i in range(2)]
    for at in (0, 1000):
        events += [op("aten::select", at + 4 * i, 1, dims=[[1000], [], []], types=["float", "", ""]) for i in range(80)]
        events += [op("aten::add", at + 4 * i + 2, 1, dims=[[], []], types=["float", "float"]) for i in range(80)]
    return events


@pytest.mark.parametrize(
    ("is_part", "whole", "step_ns"), [(False, "step", 10_000_000), (True, "part that was recorded", 1_000_000)]
)
def test_of_a_part_of_a_step_what_repeats_in_it_is_told_and_no_share_of_a_step(is_part, whole, step_ns):
    run = Run(torch="2.13", trace="t", step_signal="optimizer", reference_step_ns=(10_000_000,) * 3, is_part=is_part)
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


def test_kinds_that_are_not_named_are_counted():
    foreign = tuple((f"kind_{number}", 1) for number in range(9))
    trace = trace_of([step(0, 0, 100), op("aten::mul", 10, 20)])
    facts = Facts(replace(trace, recording=structs.replace(trace.recording, foreign=foreign)))
    assert check_foreign(facts).endswith("kind_5 1 and 3 more")


def told_of_first_calls(call: str, *numbers: int, lasts: float = 200) -> list[str]:
    calls = [runtime(call, 1000 * i + 100, lasts) for i in numbers]
    notes = check_recording(facts_of([*(step(i, 1000 * i, 1000) for i in range(5)), op("aten::mul", 0, 50), *calls]))
    return [note for note in notes if "first calls" in note]


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cudaMalloc"])
def test_steps_that_are_set_apart_for_what_the_driver_does_once_are_told(call):
    (note,) = told_of_first_calls(call, 1)
    assert note == (
        "first calls (code is loaded, libraries and the allocator start) took 200 µs in 1 recorded step, left out of "
        "the measured ones"
    )


def test_code_that_is_loaded_in_all_steps_makes_their_times_too_long():
    (note,) = told_of_first_calls("cuModuleLoadData", 0, 1, 2, 3, 4)
    assert " took 1.00 ms of the measured time: they come once" in note


def test_memory_that_most_steps_get_is_the_programs_way():
    assert told_of_first_calls("cudaMalloc", 1, 2, 3) == []
    assert told_of_first_calls("cuModuleLoadData", 1, lasts=9) == []
