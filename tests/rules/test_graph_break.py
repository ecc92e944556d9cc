"""Graph breaks: the compiler's record gives the place and the reason, and the regions in the trace give the cost."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.graph_break import graph_break
from profkit.run.directory import CallSite, Compilation, Compiled, GraphBreak, Run
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, op, python, rows_named, step

Json = dict[str, Any]
ITEM = CallSite("model.py", 8, "forward", "if x.norm().item() > 4:")
REASON = (
    "Unsupported Tensor.item() call with capture_scalar_outputs=False\n"
    "  Explanation: Dynamo does not support tracing `Tensor.item()`.\n  Hint: set something.\n"
)
PLAIN = Compilation(0, CallSite("model.py", 6, "forward"), 10**9)
RESUMED = Compilation(1, CallSite("model.py", 8, "torch_dynamo_resume_in_forward_at_8"), 10**9)


def find(
    *breaks: GraphBreak,
    compilations: tuple[Compilation, ...] = (PLAIN, RESUMED),
    events: list[Json] | None = None,
):
    """The findings of the rule, and the facts."""
    run = Run(torch="2.13", compiled=Compiled(breaks, compilations, 10**10))
    facts = facts_of(steps_with_two_regions() if events is None else events, run=run)
    found: list[Suspicion] = list(graph_break.check(facts))
    return found, facts


def steps_with_two_regions() -> list[Json]:
    """Steps of 1000 µs. The second region is entered inside the first, after a gap of 140 µs in which a number is read:
    20 µs of cache lookup, 10 µs before its graph of 60 µs, and 5 µs after it."""
    events = []
    for i, at in enumerate((0, 1000, 2000)):
        events += [
            step(i, at, 1000),
            op("TorchDynamo Cache Lookup", at + 10, 20),
            op("Torch-Compiled Region: 0/0", at + 30, 500),
            op("## Call CompiledFxGraph a ##", at + 60, 200),
            op("aten::item", at + 300, 10),
            op("TorchDynamo Cache Lookup", at + 400, 20),
            op("Torch-Compiled Region: 1/0", at + 425, 75),
            op("AOTDispatcher Runtime Wrapper Prologue", at + 430, 4),
            op("## Call CompiledFxGraph b ##", at + 435, 60),
            op("aten::mm", at + 440, 30),
        ]
    return events


def test_a_break_costs_the_entry_into_the_region_that_resumes_after_it():
    (found,), facts = find(GraphBreak(REASON, (ITEM,)))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("model.py", 8)
    assert found.rows.tolist() == rows_named(facts.trace, "Torch-Compiled Region: 1/0")
    assert found.evidence["entries_per_step"] == 1
    assert found.evidence["entering_ns_per_step"] == 175_000
    assert found.edit is not None
    assert predict_saving(facts, found.edit).fraction == 0.175
    assert "Dynamo does not support tracing `Tensor.item()`)" in found.message
    assert "capture_scalar_outputs = True" in found.fix


@pytest.mark.parametrize(("graph_end", "way_ns"), [(200, 200_000), (199, 0)])
def test_a_gap_above_200_microseconds_between_the_graphs_is_kept(graph_end, way_ns):
    events = steps_with_two_regions()
    for event in events:
        if event["name"] == "## Call CompiledFxGraph a ##":
            event["dur"] = graph_end - 60
    (found,), _ = find(GraphBreak(REASON, (ITEM,)), events=events)
    assert found.evidence["entering_ns_per_step"] == 35_000 + way_ns


def test_the_gap_up_to_the_last_operator_between_the_graphs_is_kept():
    events = [*steps_with_two_regions(), *(op("aten::sort", at + 300, 60) for at in (0, 1000, 2000))]
    (found,), _ = find(GraphBreak(REASON, (ITEM,)), events=events)
    assert found.evidence["entering_ns_per_step"] == 35_000 + 40_000


def test_a_break_costs_an_entry_in_the_backward_pass_too():
    events = [{**event, "args": dict(event["args"])} for event in steps_with_two_regions()]
    for i, at in enumerate((0, 1000, 2000)):
        events += [
            op("CompiledFunction", at + 434, 62, sequence=i),
            op("autograd::engine::evaluate_function: CompiledFunctionBackward", at + 700, 100, sequence=i),
            op("CompiledFunctionBackward", at + 701, 98, sequence=i),
            op("## Call CompiledFxGraph c ##", at + 720, 70),
        ]
    (found,), _ = find(GraphBreak(REASON, (ITEM,)), events=events)
    assert found.evidence["entering_ns_per_step"] == 175_000 + 30_000


def test_a_break_in_a_called_function_costs_the_entries_into_that_function_too():
    inner = CallSite("layer.py", 3, "clip", "n = x.item()")
    called = Compilation(2, CallSite("layer.py", 1, "clip"), 10**9)
    events = steps_with_two_regions()
    for at in (0, 1000, 2000):
        events += [op("Torch-Compiled Region: 2/0", at + 800, 50), op("aten::add", at + 810, 30)]
    (found,), _ = find(GraphBreak(REASON, (ITEM, inner)), compilations=(PLAIN, RESUMED, called), events=events)
    assert found.location is not None
    assert found.location.file == "layer.py"
    assert [place.file for place in found.also] == ["model.py"]
    assert found.evidence["entering_ns_per_step"] == 175_000 + 20_000


def test_a_break_in_a_library_is_reported_at_the_users_line():
    library = CallSite("/site-packages/lib/x.py", 3, "call")
    (found,), _ = find(GraphBreak(REASON, (ITEM, library), library_frames=1))
    assert found.location is not None
    assert found.location.line == 8


def test_several_breaks_on_one_line_are_one_finding():
    found, _ = find(GraphBreak(REASON, (ITEM,)), GraphBreak(REASON, (CallSite("main.py", 2, "main"), ITEM)))
    assert len(found) == 1


def test_each_line_with_a_break_gets_its_own_finding_and_price():
    line = CallSite("model.py", 10, "forward", "print(x)")
    behind = Compilation(2, CallSite("model.py", 10, "torch_dynamo_resume_in_forward_at_10"), 10**9)
    printed = "Failed to trace builtin operator\n  Explanation: Dynamo cannot trace builtin operator `print`.\n"
    (first, second), _ = find(
        GraphBreak(REASON, (ITEM,)), GraphBreak(printed, (line,)), compilations=(PLAIN, RESUMED, behind)
    )
    assert first.edit is not None
    assert second.edit is None
    assert "reorderable_logging_functions" in second.fix


def test_a_break_outside_the_recorded_steps_has_a_line_and_no_price():
    (found,), _ = find(GraphBreak(REASON, (ITEM,), count=2), events=[step(0, 0, 1000), op("aten::mm", 0, 900)])
    assert (found.edit, found.count) == (None, 2)
    assert found.location is not None
    assert found.location.line == 8
    assert "what that costs was not recorded" in found.message


def test_regions_of_other_functions_are_not_counted():
    (found,), _ = find(GraphBreak(REASON, (ITEM,)), compilations=(PLAIN,))
    assert found.edit is None
    assert "no recorded step entered it" in found.message


@pytest.mark.parametrize(
    "reason",
    ["Call to `torch._dynamo.graph_break()`\n  Explanation: x", "Skip calling `torch.compiler.disable()`d function"],
)
def test_a_break_requested_by_the_program_is_silent(reason):
    assert find(GraphBreak(reason, (ITEM,)))[0] == []


def test_a_program_that_compiles_nothing_is_silent():
    assert list(graph_break.check(facts_of(steps_with_two_regions(), run=Run(torch="2.13")))) == []


def test_it_cannot_look_at_a_recording_made_elsewhere_without_python_frames():
    with pytest.raises(CannotLook, match="Python frames"):
        list(graph_break.check(facts_of(steps_with_two_regions())))


def elsewhere(events: list[Json]):
    facts = facts_of(events)
    found: list[Suspicion] = list(graph_break.check(facts))
    return found, facts


def test_the_frame_that_resumes_after_a_break_gives_its_line_and_price():
    frames = [python("net/model.py(6): torch_dynamo_resume_in_forward_at_8", at + 426, 73) for at in (0, 1000, 2000)]
    (found,), facts = elsewhere([*steps_with_two_regions(), *frames])
    assert found.location is not None
    assert (found.location.file, found.location.line, found.location.function) == ("net/model.py", 8, "forward")
    assert found.rows.tolist() == rows_named(facts.trace, "Torch-Compiled Region: 1/0")
    assert predict_saving(facts, found.edit).fraction == 0.175


@pytest.mark.parametrize(
    "name", ["net/model.py(6): forward", "torch/nn/modules/x.py(6): torch_dynamo_resume_in_forward_at_8"]
)
def test_ordinary_frames_and_resumed_library_frames_are_silent(name):
    frames = [python(name, at + 426, 73) for at in (0, 1000, 2000)]
    assert elsewhere([*steps_with_two_regions(), *frames])[0] == []


GIVEN_UP = "Unsupported Tensor.item() call with capture_scalar_outputs=False\n*** graph break in loop"
FUNCTION = CallSite("model.py", 3, "forward")
SITES = (
    CallSite("model.py", 5, "Net.forward"),
    CallSite("model.py", 8, "Net.forward"),
    CallSite("model.py", 20, "Other.run"),
)
NAMES = ("aten::mm", "aten::gelu", "aten::add", "aten::item")


def run_uncompiled(names: tuple[str, ...] = NAMES, site: int = 1, frames: tuple[str, ...] = ()) -> list[Json]:
    """Steps of 1000 µs: operators of 100 µs without gaps, the last at ``SITES[site]``, the others at ``SITES[0]``."""
    events = []
    for i, at in enumerate((0, 1000, 2000, 3000)):
        events += [step(i, at, 1000), *(python(name, at + 5 + n, 980 - 2 * n) for n, name in enumerate(frames))]
        events += [op(name, at + 100 + 100 * k, 100) for k, name in enumerate(names)]
        if i == 0:
            events += [mark(0, at + 99, 100 * len(names) - 98), mark(site, at + 100 * len(names), 101)]
    return events


def given_up(failure: str = GIVEN_UP, line: int = 8, *others: Compilation) -> tuple[Compilation, ...]:
    failed_at = CallSite("model.py", line, "forward") if line else None
    return (Compilation(0, FUNCTION, 10**9, failure=failure, failed_at=failed_at), *others)


def judge(compilations: tuple[Compilation, ...], events: list[Json] | None = None) -> list[Suspicion]:
    run = Run(torch="2.13", compiled=Compiled((), compilations, 10**10))
    facts = facts_of(run_uncompiled() if events is None else events, run=run, callsites=SITES)
    return list(graph_break.check(facts))


def test_an_abandoned_function_costs_its_reads_and_the_operators_that_would_be_fused():
    run = Run(torch="2.13", compiled=Compiled((), given_up(), 10**10))
    facts = facts_of(run_uncompiled(), run=run, callsites=SITES)
    (found,) = graph_break.check(facts)
    assert found.location is not None
    assert found.location.line == 8
    assert found.evidence["operators_per_step"] == 4
    assert "4 operators a step run uncompiled; the compiler would fuse 1 of them" in found.message
    # 100 µs each for the item and for the addition that would be fused with the activation
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.2, abs=0.002)


def test_a_failed_line_that_no_recorded_step_ran_is_silent():
    assert judge(given_up(line=9)) == []


def test_without_the_failed_line_the_line_that_reads_a_number_is_reported():
    (found,) = judge(given_up(line=0))
    assert found.location is not None
    assert found.location.line == 8
    assert judge(given_up(line=0), run_uncompiled(NAMES[:-1])) == []
    assert judge(given_up("Failed to trace builtin operator", line=0)) == []


def test_a_function_that_was_also_compiled_is_silent():
    assert judge(given_up(GIVEN_UP, 8, Compilation(0, FUNCTION, 10**9))) == []


def test_a_function_excluded_from_compilation_is_silent():
    assert judge(given_up("Skip calling `torch.compiler.disable()`d function")) == []


COMPILED_CALL = ("main.py(1): <module>", "torch/_dynamo/eval_frame.py(956): compile_wrapper", "model.py(3): forward")


def test_a_compiled_call_that_reads_a_number_and_runs_uncompiled_is_reported():
    (found,), _ = elsewhere(run_uncompiled(frames=COMPILED_CALL))
    assert "The compiler gave up on `forward`" in found.message


@pytest.mark.parametrize(
    ("names", "frames"),
    [
        (NAMES, ("main.py(1): <module>", "model.py(3): forward")),
        (NAMES, ("main.py(1): <module>", "torch/_dynamo/eval_frame.py(1240): _fn", "model.py(3): forward")),  # disable
        (NAMES[:-1], COMPILED_CALL),
        ((*NAMES, "Torch-Compiled Region: 0/0"), COMPILED_CALL),
    ],
)
def test_calls_lacking_the_wrapper_or_a_read_or_with_compiled_code_are_silent(names, frames):
    assert elsewhere(run_uncompiled(names, frames=frames))[0] == []
