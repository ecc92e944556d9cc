"""Time outside of all that PyTorch records: how much, and under which line."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.steps.boundaries import ONE_UPDATE
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Location, Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.unattributed_time import unattributed_time
from profkit.run.directory import CallSite, Remark, Run, SampledStack, SampledThread, StackSamples
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime
from profkit.source import remark_kinds as kinds
from tests.traces import annotation, facts_of, kernel, mark, op, pause, python, runtime, stacks_of, step

Json = dict[str, Any]
SITES = tuple(CallSite("train.py", line, "main") for line in (4, 5, 6))


def steps(*inside: Json, count: int = 3, before: list[Json] | None = None) -> list[Json]:
    """Steps of 2000 µs, each with an operator in the first 1000 and what is given, by its time in the step."""
    events = list(before or [])
    for i in range(bool(before), count + bool(before)):
        at = 2000 * i
        events += [step(i, at, 2000), op("aten::mm", at, 1000)]
        events += [_moved(event, i, at) for event in inside]
    return events


def _moved(event: Json, i: int, at: int) -> Json:
    """The event in this step, with a correlation of its own."""
    args = event["args"]
    return {**event, "ts": event["ts"] + at, "args": {**args, "correlation": 10 * i + args.get("correlation", 0)}}


def find(events: list[Json], run: Run | None = None) -> list[Suspicion]:
    return list(unattributed_time.check(facts_of(events, run=run or Run(torch="2.13"), callsites=SITES)))


def test_steps_that_take_no_time_are_no_matter():
    assert find([step(i, 2000 * i, 0) for i in range(3)]) == []


def test_half_of_the_step_outside_is_said_and_not_priced():
    (found,) = find(steps())
    assert found.evidence == {"unattributed_ns_per_step": 1_000_000, "unattributed_share": 0.5}
    assert (found.edit, found.severity, found.count, found.location) == (None, Severity.LOW, 1, None)


def test_the_line_is_that_with_most_of_it_in_the_located_step():
    located = [
        step(0, 0, 2000),
        op("aten::mm", 0, 300),
        mark(0, 0, 320),
        mark(1, 320, 1000),
        mark(2, 400, 900),
        mark(0, 1400, 600),
    ]
    (found,) = find(steps(before=located))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 6)
    assert [place.line for place in found.also] == [4]
    assert found.severity is Severity.LOW
    assert found.edit is not None
    assert found.edit.span_kept_ns.tolist() == [470_588] * 3  # of 1,700 µs outside, 900 pass under the line
    assert "about 26 % shorter" in found.message


def find_sampled(shares: dict[tuple[int, ...], int], events: list[Json] | None = None) -> list[Suspicion]:
    facts = facts_of(events or steps(), run=Run(torch="2.13"), callsites=SITES, stacks=stacks_of(SITES, shares))
    return list(unattributed_time.check(facts))


@pytest.mark.parametrize(
    ("text", "reported"), [("import pandas as pd", 0), ("from scipy import signal", 0), ("importance = weigh(x)", 1)]
)
def test_before_any_step_an_import_is_told_by_slow_start(text, reported):
    beginning = [mark(0, 0, 1000), mark(1, 1000, 1000), op("aten::mm", 1100, 300)]
    sites = (CallSite("train.py", 1, "<module>", text), CallSite("train.py", 2, "<module>", "y = x @ x"))
    facts = facts_of(beginning, run=Run(torch="2.13"), callsites=sites)
    assert len(list(unattributed_time.check(facts))) == reported


@pytest.mark.parametrize(("activity", "reported"), [(StackActivity.IMPORTING, 0), (StackActivity.OTHER, 1)])
def test_a_call_that_imports_is_known_by_the_looks_at_the_whole_run(activity, reported):
    """The first optimizer imports the compiler, and its first step is the only one."""
    beginning = [
        mark(0, 0, 1000),
        mark(1, 1000, 1000),
        op("aten::mm", 1100, 300),
        op("autograd::engine::evaluate_function: MmBackward0", 1420, 50, sequence=1),
        annotation("Optimizer.step#SGD.step", 1500, 50),
    ]
    site = CallSite("train.py", 1, "<module>", "optimizer = torch.optim.SGD(weights, lr=0.1)")
    looks = StackTime(activity.value, (0,), 900_000, 900_000, 0, 900_000, 9, 1)
    facts = facts_of(
        beginning,
        run=Run(torch="2.13"),
        callsites=(site, CallSite("train.py", 2, "<module>", "y = x @ x")),
        account=RunAccount(places=(Place(site),), stacks=(looks,)),
    )
    assert facts.steps.source == ONE_UPDATE
    assert len(list(unattributed_time.check(facts))) == reported


def test_in_steps_an_import_is_a_line_like_any_other():
    located = [step(0, 0, 2000), op("aten::mm", 0, 300), mark(0, 0, 320), mark(1, 320, 1680)]
    sites = (CallSite("train.py", 1, "main", "y = x @ x"), CallSite("train.py", 2, "main", "import plugin"))
    facts = facts_of(steps(before=located), run=Run(torch="2.13"), callsites=sites)
    assert len(list(unattributed_time.check(facts))) == 1


def test_samples_name_the_line_whatever_the_located_step_says():
    located = [step(0, 0, 2000), op("aten::mm", 0, 300), mark(2, 300, 1700)]
    (found,) = find_sampled({(0,): 8, (0, 1): 40}, steps(before=located))
    assert [place.line for place in found.places.all()] == [5]  # a fifth of half the step is 10 %
    assert "This line takes 40 % of the host's time, in `copy.deepcopy`. All lines of `main` take 48 %" in found.message
    assert "Without this line, the step would be at most 40 % shorter." in found.message
    assert found.evidence["line_share"] == 0.4
    assert found.edit is not None
    assert found.edit.span_kept_ns.tolist() == [1_200_000] * 3
    assert found.edit.uncertainty == pytest.approx(0.175, abs=0.002)  # 1,000 independent samples, and a tenth


@pytest.mark.parametrize(("share", "severity"), [(20, Severity.MEDIUM), (19, Severity.LOW)])
def test_a_line_with_a_fifth_of_the_step_is_of_medium_severity(share, severity):
    (found,) = find_sampled({(1,): share, (0,): 5})
    (line,) = (place.line for place in found.places.all()[:1])
    assert (line, found.severity) == (5, severity)


def test_a_line_costs_what_it_calls_too_but_is_chosen_by_what_it_does_itself():
    (found,) = find_sampled({(0, 1): 30, (0, 2): 15, (0,): 1})
    assert [place.line for place in found.places.all()] == [5, 6]
    (found,) = find_sampled({(0, 1): 15, (0, 2): 12, (0,): 30})
    assert [place.line for place in found.places.all()] == [4, 5, 6]
    assert found.evidence["line_share"] == 0.57


def test_time_in_operators_is_not_outside_of_them_however_often_their_line_is_sampled():
    located = [step(0, 0, 2000), mark(0, 0, 1000), op("aten::mm", 0, 1000), mark(1, 1000, 1000)]
    (found,) = find_sampled({(0,): 55, (1,): 40}, steps(before=located))
    assert [place.line for place in found.places.all()] == [5]


def test_time_in_which_a_list_becomes_a_tensor_is_not_outside_of_pytorch():
    """`slow-tensor-construction` tells it: 25 of the 40 % of the line."""
    reading = [
        op("aten::empty", 1000, 10, concrete='["[2000]"]'),
        op("aten::to", 1510, 10, dims="[[2000]]", types='["float"]'),
        op("aten::lift_fresh", 1520, 10, dims="[[2000]]", types='["float"]'),
    ]
    marks = [mark(0, 0, 1000), mark(1, 1000, 700), mark(2, 1700, 300)]
    located = [step(0, 0, 2000), *marks, op("aten::mm", 0, 1000), *reading]
    (found,) = find_sampled({(0,): 40, (1,): 40, (2,): 20}, steps(*reading, before=located))
    assert [place.line for place in found.places.all()] == [6, 5]


@pytest.mark.parametrize(("share", "reported"), [(10, 1), (9, 0)])
def test_what_plain_steps_do_not_show_was_the_recordings(share, reported):
    """A fifth in two lines, neither of which surely takes a tenth."""
    assert len(find_sampled({(1,): share, (2,): 10})) == reported


@pytest.mark.parametrize(("share", "reported"), [(13, 1), (11, 0)])
def test_a_line_that_surely_takes_a_tenth_is_told_where_little_else_is_outside(share, reported):
    located = [step(0, 0, 2000), mark(0, 0, 1000), op("aten::mm", 0, 1000)]
    found = find_sampled({(1,): share}, steps(before=located))
    assert len(found) == reported
    for one in found:
        assert one.message.startswith("This line takes 13 % of the host's time, in `copy.deepcopy`, outside")
        assert one.severity is Severity.LOW
        assert one.location is not None
        assert one.location.line == 5


def test_where_operators_of_no_known_line_take_as_long_it_is_not_said_to_lie_outside_of_them():
    (found,) = find_sampled({(1,): 13}, steps())
    assert found.message.startswith("This line takes 13 % of the host's time, in `copy.deepcopy`. Without it")


@pytest.mark.parametrize(
    ("habit", "share", "severities"),
    [
        pytest.param(kinds.DEEP_COPY, 10, [Severity.MEDIUM, Severity.MEDIUM], id="a habit"),
        pytest.param(kinds.DEEP_COPY, 8, [Severity.MEDIUM, Severity.LOW], id="less than a tenth"),
        pytest.param(kinds.DEEP_COPY, 5, [Severity.MEDIUM], id="not surely a twentieth"),
        pytest.param(kinds.FILE_READ, 10, [Severity.MEDIUM], id="the line calls something else"),
    ],
)
def test_a_further_line_with_a_habit_is_a_finding_of_its_own(habit, share, severities):
    run = Run(torch="2.13", remarks=(Remark(habit, SITES[1]),))
    stacks = stacks_of(SITES, {(2,): 40, (1,): share})
    found = list(unattributed_time.check(facts_of(steps(), run=run, callsites=SITES, stacks=stacks)))
    assert [one.severity for one in found] == severities
    assert all("copies an object" in one.message for one in found[1:])


def test_beside_a_device_further_lines_may_cost_nothing():
    events = steps(runtime("cudaLaunchKernel", 0, 10, correlation=1), kernel("gemm", 100, 1900, correlation=1))
    run = Run(torch="2.13", remarks=(Remark(kinds.DEEP_COPY, SITES[1]),))
    facts = facts_of(events, run=run, callsites=SITES, stacks=stacks_of(SITES, {(1,): 30}))
    assert list(unattributed_time.check(facts)) == []


@pytest.mark.parametrize(("others", "limit"), [(6, "all lines of `main`"), (4, "this line")])
def test_of_many_lines_that_take_little_each_the_function_is_priced(others, limit):
    """A line of 18 %, and others that make it 28 or 26 %."""
    (found,) = find_sampled({(0,): 18, (1,): 4, (2,): others})
    assert found.location is not None
    assert found.location.line == 4
    assert f"Without {limit}, the step would be at most {'28' if others == 6 else '18'} % shorter." in found.message
    assert found.severity is (Severity.MEDIUM if others == 6 else Severity.LOW)


@pytest.mark.parametrize(("each", "line", "limit"), [(5, 30, "all lines of `helper`"), (2, 4, "this line")])
def test_a_function_whose_many_lines_take_more_than_any_line_comes_first(each, line, limit):
    """A line of 13 %, and four lines of another function with 20 or 8 %."""
    sites = (*SITES, *(CallSite("train.py", 30 + n, "helper", "return f(x)") for n in range(4)))
    stacks = stacks_of(sites, {(0,): 13, (3,): each + 1, (4,): each, (5,): each, (6,): each - 1})
    (found,) = unattributed_time.check(facts_of(steps(), run=Run(torch="2.13"), callsites=sites, stacks=stacks))
    assert found.location is not None
    assert (found.location.line, limit in found.message) == (line, True)


def test_the_function_that_trains_is_never_priced():
    """It is on the stack all the time, with what it calls."""
    helper = CallSite("train.py", 30, "helper", "return f(x)")
    stacks = stacks_of((*SITES, helper), {(0,): 18, (1,): 9, (0, len(SITES)): 73})
    (found,) = unattributed_time.check(
        facts_of(steps(), run=Run(torch="2.13"), callsites=(*SITES, helper), stacks=stacks)
    )
    assert "all lines of `main`" not in found.message


@pytest.mark.parametrize(("others", "told"), [(5, True), (4, False)])
def test_a_function_that_takes_notably_more_than_its_line_is_told(others, told):
    (found,) = find_sampled({(0,): 30, (1,): others})
    assert ("All lines of `main` take 35 % outside of PyTorch. Without this line" in found.message) is told


def test_where_lines_were_marked_in_all_steps_samples_tell_the_share():
    """Marks make of 30 % a half."""
    located = [step(0, 0, 2000), op("aten::mm", 0, 1000), mark(0, 1000, 1000)]
    (found,) = find_sampled({(0,): 20, (1,): 10}, located)
    assert found.evidence["unattributed_share"] == 0.3
    assert found.message.startswith("30 % of the step, 600 µs, pass outside")
    (unmarked,) = find_sampled({(0,): 20, (1,): 10})
    assert unmarked.evidence["unattributed_share"] == 0.5


def test_too_few_samples_leave_the_located_step():
    located = [step(0, 0, 2000), op("aten::mm", 0, 300), mark(2, 300, 1700)]
    few = StackSamples(threads=(SampledThread("main", "", 9),), sites=SITES, stacks=(SampledStack(0, (0,), "", 9),))
    (found,) = unattributed_time.check(
        facts_of(steps(before=located), run=Run(torch="2.13"), callsites=SITES, stacks=few)
    )
    assert [place.line for place in found.places.all()] == [6]


def test_a_device_that_idles_has_its_line_by_samples_and_its_price_by_the_replay():
    launched = [runtime("cudaLaunchKernel", 980, 5, correlation=1), kernel("k", 990, 10, correlation=1)]
    (found,) = find_sampled({(1,): 45}, steps(*launched))
    assert (found.location is not None and found.location.line, found.severity) == (5, None)
    assert "Without all of it, the step would be at most 50 % shorter." in found.message


def test_an_optimizers_step_is_no_place_to_begin():
    located = [
        step(0, 0, 2000),
        op("aten::mm", 0, 300),
        mark(0, 300, 1600),
        annotation("Optimizer.step#SGD.step", 310, 2),
    ]
    (found,) = find(steps(before=located))
    assert (found.location, found.edit) == (None, None)


@pytest.mark.parametrize(("running", "reported"), [("gloo:all_reduce", 0), ("writing a file", 1)])
def test_waiting_for_other_ranks_is_explained_and_for_anything_else_is_not(running, reported):
    reduction = (op("c10d::allreduce_", 1000, 10), annotation(running, 1005, 990, tid=9))
    assert len(find(steps(*reduction))) == reported


@pytest.mark.parametrize(("covered", "reported"), [(600, 1), (601, 0)])
def test_a_fifth_of_the_step_is_the_least(covered, reported):
    assert len(find(steps(op("aten::add", 1000, covered)))) == reported


@pytest.mark.parametrize(("gap", "reported"), [(200, 1), (199, 0)])
def test_the_way_from_one_operator_to_the_next_is_something_else(gap, reported):
    parts = [op("aten::add", 1000 + gap + i * 200, 200 - gap) for i in range(5)] if gap < 200 else []
    parts = parts or [op("aten::add", 1000 + i * 300 + gap, 100) for i in range(3)]
    assert len(find(steps(*parts))) == reported


@pytest.mark.parametrize(
    "event",
    [
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1000, 1000),
        annotation("Optimizer.step#SGD.step", 1000, 1000),
        op("profkit.gc#2", 1000, 1000),
        op("profkit.save", 1000, 1000),
        op("_compile.compile_inner (dynamo_timed)", 1000, 1000),
        runtime("cudaStreamSynchronize", 1000, 1000),
        pause(1000, 1000),
    ],
    ids=lambda event: event["name"],
)
def test_what_other_rules_look_at_is_explained(event):
    assert find(steps(event)) == []


def test_a_range_of_the_program_explains_nothing():
    assert len(find(steps(annotation("evaluate", 1000, 1000)))) == 1


def test_what_another_thread_does_explains_nothing():
    assert len(find(steps(op("aten::mm", 1000, 1000, tid=2)))) == 1


def test_while_the_device_works_the_host_may_do_what_it_likes():
    busy = [runtime("cudaLaunchKernel", 990, 5, correlation=1), kernel("k", 1000, 1000, correlation=1)]
    assert find(steps(*busy)) == []


@pytest.mark.parametrize(("worked", "reported"), [(10, 1), (11, 0)])
def test_a_device_has_to_idle_for_a_millisecond_on_end(worked, reported):
    launched = [runtime("cudaLaunchKernel", 980, 5, correlation=1), kernel("k", 990, worked, correlation=1)]
    found = find(steps(*launched))
    assert len(found) == reported
    assert [one.evidence["unattributed_share"] for one in found] == [0.5] * reported
    assert all(one.edit is not None and one.severity is None for one in found)


@pytest.mark.parametrize(
    ("meanwhile", "reported"),
    [
        ([op("aten::resize", 1000, 1000)], 1),  # arithmetic of the host's keeps the device waiting all the same
        ([op("aten::unflatten", 1000, 1000), *(op("aten::view", 1000 + 10 * i, 10) for i in range(100))], 0),
        ([runtime("cudaMalloc", 1000, 1000)], 0),
        ([runtime("cuModuleLoadData", 1000, 1000)], 0),
        ([runtime("cudaStreamSynchronize", 1000, 1000)], 0),
        ([annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1000, 1000)], 0),
        ([annotation("Optimizer.step#SGD.step", 1000, 1000)], 0),
        ([pause(1000, 1000)], 0),
    ],
    ids=lambda value: value[0]["name"] if isinstance(value, list) else str(value),
)
def test_a_device_that_idles_for_another_reason_is_explained(meanwhile, reported):
    launched = [runtime("cudaLaunchKernel", 980, 5, correlation=1), kernel("k", 990, 10, correlation=1)]
    assert len(find(steps(*launched, *meanwhile))) == reported


@pytest.mark.parametrize(
    ("plain_us", "sampled", "reported"),
    [(None, False, 1), (2100, False, 1), (1900, False, 0), (1900, True, 1)],
    ids=["none was timed", "it fits", "it does not fit", "samples of plain steps show it"],
)
def test_a_device_idles_no_longer_than_in_plain_steps(plain_us, sampled, reported):
    """In a step whose lines are marked it works 10 µs and idles 2,995 in a row, one and a half times 1,997."""
    events = [
        step(4, 0, 4000),
        mark(0, 0, 5),
        op("aten::mm", 0, 1000),
        runtime("cudaLaunchKernel", 980, 5, correlation=1),
        kernel("k", 990, 10, correlation=1),
    ]
    plain = (plain_us * 1000,) * 4 if plain_us else ()
    run = Run(torch="2.13", reference_step_ns=plain, reference_step_device_ns=plain)
    stacks = stacks_of(SITES, {(1,): 45}) if sampled else None
    facts = facts_of(events, run=run, callsites=SITES, stacks=stacks)
    assert len(list(unattributed_time.check(facts))) == reported


def test_a_list_read_into_a_tensor_is_the_matter_of_another_rule():
    made = [op("aten::empty", 1000, 20), op("aten::to", 1900, 20), op("aten::add", 1920, 80)]
    assert find(steps(*made)) == []
    assert len(find(steps(op("aten::zeros", 1000, 20), *made[1:]))) == 1


def test_what_the_recording_added_is_left_out():
    """Unprofiled, the step took 1995 µs: the rest is the profiler's."""
    (found,) = find(steps(), Run(torch="2.13", reference_step_ns=(1_995_000,) * 3))
    assert found.evidence["unattributed_share"] == pytest.approx(995 / 1995, abs=1e-4)


def of_video(*inside: Json, idle: int = 3500) -> list[Json]:
    """Steps of 10 ms as another profiler records them, with Python stacks: a batch is prepared, in places of a library
    too, and then the device works."""
    begin = 100 + idle
    return [
        _moved(event, i, 10_000 * i)
        for i in range(3)
        for event in (
            step(i, 0, 10_000),
            python("train.py(90): main", 0, 10_000),
            python("video.py(12): preprocess", 50, 50 + idle),
            python("torchvision/transforms/functional.py(400): resize", 60, 30 + idle),
            op("aten::linear", begin, 9900 - idle),
            runtime("cudaLaunchKernel", begin, 10, correlation=1),
            kernel("gemm", begin + 10, 9890 - idle, correlation=1),
            *inside,
        )
    ]


def share_of(found: Suspicion) -> float:
    return float(found.evidence["unattributed_share"])


def test_a_recording_made_elsewhere_names_the_function_of_the_users():
    (found,) = find(of_video(), Run())
    assert share_of(found) == pytest.approx(0.36, abs=0.01)
    assert found.location == Location("video.py", 12, "preprocess", precision="def")
    assert found.message.endswith("most of it in preprocess (video.py:12).")


def test_what_it_frees_is_priced_by_the_replay():
    (found,) = diagnose(facts_of(of_video())).findings
    assert (found.rule, found.saving and found.saving.fraction) == ("unattributed-time", pytest.approx(0.36, abs=0.01))


@pytest.mark.parametrize(("lasts", "named"), [(1700, "preprocess"), (2000, "crop")])
def test_the_function_around_it_is_named_where_none_inside_has_half_of_it(lasts, named):
    (found,) = find(of_video(python("video.py(30): crop", 100, lasts)), Run())
    assert found.location is not None
    assert found.location.function == named


@pytest.mark.parametrize(("idle", "reported"), [(1050, 1), (880, 0)])
def test_a_device_that_hardly_idles_is_no_matter(idle, reported):
    assert len(find(of_video(idle=idle), Run())) == reported


def test_a_range_of_the_programs_own_is_named_without_a_line():
    events = [event for event in of_video() if event["cat"] != "python_function"]
    ranges = [annotation(f"prepare {i}", 10_000 * i + 50, 3550) for i in range(3)]
    (found,) = find([*events, *ranges], Run())
    assert found.location is None
    assert found.message.endswith('most of it in the range "prepare".')


@pytest.mark.parametrize(("thread", "reported"), [(2, 0), (1, 1)])
def test_what_passes_between_two_events_of_autograds_thread_is_not_the_main_threads(thread, reported):
    backward = [
        annotation("backward", 50, 1900),
        runtime("cudaLaunchKernel", 65, 10, correlation=1, tid=thread),
        op("autograd::engine::evaluate_function: A", 60, 40, tid=thread),
        kernel("k", 80, 30, correlation=1),
        op("autograd::engine::evaluate_function: B", 1900, 40, tid=thread),
    ]
    events = [_moved(event, i, 2000 * i) for i in range(3) for event in (step(i, 0, 2000), *backward)]
    assert len(find(events, Run())) == reported


def test_an_operator_that_computes_on_the_cpu_meanwhile_is_named():
    (found,) = find(of_video(op("aten::hsv", 200, 3000)), Run())
    assert found.message.endswith("most of it in preprocess (video.py:12), where aten::hsv runs on the CPU.")


def test_without_stacks_or_ranges_a_recording_made_elsewhere_cannot_tell():
    events = [event for event in of_video() if event["cat"] != "python_function"]
    with pytest.raises(CannotLook, match="with_stack=True"):
        find(events, Run())


@pytest.mark.parametrize(("held_up", "found"), [(1, 0), (2, 1), (4, 1)])
def test_one_step_that_was_held_up_is_no_fault(held_up, found):
    """Of four steps of 10 ms, some stand still for 9."""
    events = []
    for number in range(4):
        at, works = 10_000 * number, 1_000 if number < held_up else 9_950
        events += [step(number, at, 10_000), op("aten::mm", at, works)]
    assert len(find(events)) == found
