"""Recompilations: one function, one guard, again and again; priced where the recorded steps compile."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.recompilation import recompilation
from profkit.run.directory import CallSite, Compilation, Compiled, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, op, step

Json = dict[str, Any]
SITE = CallSite("train.py", 5, "encode", "@torch.compile(dynamic=False)")
COMPILES = "_compile.compile_inner (dynamo_timed)"
QUIET = [step(i, 1000 * i, 1000) for i in range(4)] + [op("aten::mm", 10, 900)]


def sizes(times: int, frame: int = 3, site: CallSite = SITE) -> tuple[Compilation, ...]:
    """A first compilation, and as many again for another size each."""
    guard = "tensor 'x' size mismatch at index 0. expected {}, actual {}"
    again = [Compilation(frame, site, 10**8, f"{frame}/{i}: {guard.format(i, i + 1)}") for i in range(times)]
    return Compilation(frame, site, 10**9), *again


def find(compilations: tuple[Compilation, ...], events: list[Json] | None = None, elapsed_ns: int = 10**10):
    """What the rule finds, and the facts."""
    run = Run(torch="2.13", compiled=Compiled((), compilations, elapsed_ns))
    facts = facts_of(QUIET if events is None else events, run=run)
    found: list[Suspicion] = list(recompilation.check(facts))
    return found, facts


def compiling_steps(*compiled: bool, note: str = "dynamo_data: compile_id=3/1") -> list[Json]:
    """Steps of 1000 µs, of which those told compile for 800."""
    events = []
    for i, does in enumerate(compiled):
        events += [step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 100)]
        if does:
            events += [annotation(note, 1000 * i + 110, 5), op(COMPILES, 1000 * i + 120, 800)]
            events += [op("compile_fx_inner (dynamo_timed)", 1000 * i + 200, 300)]
    return events


def test_three_times_for_one_guard_is_a_finding_at_the_function():
    (found,), _ = find(sizes(3))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 5)
    assert found.count == 3
    assert found.evidence["compiling_ns"] == 300_000_000
    assert found.evidence["share_of_process_time"] == 0.03
    assert "expected 2, actual 3" in found.message
    assert "mark_dynamic" in found.fix


def reading(guard: str, *frames: tuple[str, int, str]) -> tuple[Compilation, ...]:
    """Compiled three times again for a guard on what these lines led to."""
    lines = "".join(f'\n  File "{file}", line {line}, in forward\n    {source}' for file, line, source in frames)
    reasons = [f"3/{i}: {guard} == {i}  # code  # net.py:43 in forward\nUser stack trace:{lines}" for i in range(3)]
    return Compilation(3, SITE, 10**9), *(Compilation(3, SITE, 10**8, reason) for reason in reasons)


@pytest.mark.parametrize("guard", ["self.epoch", "self._modules['warmup'].epoch", "tensor 'cfg.scale' size 4"])
def test_an_attribute_that_varies_is_told_where_it_is_read(guard):
    (found,), _ = find(reading(guard, ("train.py", 9, "x = self.warmup(x)"), ("net.py", 43, "x * self.epoch")))
    assert (found.location.file, found.location.line, found.location.source) == ("net.py", 43, "x * self.epoch")
    assert [(place.file, place.line) for place in found.also] == [("train.py", 5)]
    assert found.message.startswith("`encode` was compiled again 3 times")


def test_what_a_library_reads_is_told_at_the_programs_line_that_led_there():
    library = "/env/lib/python3.11/site-packages/nets/attention.py"
    (found,), _ = find(reading("self.offset", ("train.py", 9, "x = self.block(x)"), (library, 7, "x + self.offset")))
    assert found.location.line == 9


@pytest.mark.parametrize("guard", ["rounds", "tensor 'x' size 4"])
def test_an_argument_that_varies_is_told_at_the_function(guard):
    (found,), _ = find(reading(guard, ("net.py", 43, "for _ in range(rounds):")))
    assert (found.location.file, found.location.line) == ("train.py", 5)
    assert found.also == ()


def test_an_attribute_without_a_line_is_told_at_the_function():
    (found,), _ = find(reading("self.epoch"))
    assert found.location.line == 5


def test_the_parts_after_graph_breaks_count_to_the_function():
    rest = CallSite("train.py", 8, "torch_dynamo_resume_in_encode_at_8")
    (found,), facts = find((*sizes(3, 4, rest), *sizes(3)), compiling_steps(True, True, True))
    assert found.location is not None
    assert (found.location.line, found.count) == (5, 6)
    assert found.evidence["compiling_ns"] == 600_000_000
    assert "in parts because of graph breaks" in found.message
    assert predict_saving(facts, found.edit).fraction == 0.8


def test_parts_of_a_function_that_itself_stays_are_one_finding_at_the_first():
    parts = [CallSite("train.py", line, f"torch_dynamo_resume_in_encode_at_{line}") for line in (8, 9)]
    (found,), _ = find((*sizes(3, 4, parts[0]), *sizes(3, 5, parts[1])))
    assert (found.location.line, found.count) == (8, 6)


def test_parts_of_another_file_are_another_function():
    rest = CallSite("other.py", 8, "torch_dynamo_resume_in_encode_at_8")
    assert len(find((*sizes(3), *sizes(3, 4, rest)))[0]) == 2


def test_twice_is_how_the_compiler_learns_what_varies():
    assert find(sizes(2))[0] == []


def test_three_reasons_once_each_are_three_things_that_changed_once():
    reasons = ("0/0: GLOBAL_STATE changed: grad_mode", "0/0: tensor 'x' dtype mismatch", "0/1: tensor 'y' rank")
    assert find((*sizes(1), *(Compilation(3, SITE, 10**8, reason) for reason in reasons)))[0] == []


def test_two_functions_do_not_add_up():
    assert find((*sizes(2), *sizes(2, frame=4, site=CallSite("train.py", 9, "decode"))))[0] == []


@pytest.mark.parametrize(
    ("elapsed_ns", "severity"),
    [
        (3 * 10**9, Severity.MEDIUM),
        (3 * 10**9 + 10**7, Severity.LOW),
        (6 * 10**10, Severity.LOW),
        (61 * 10**9, Severity.INFO),
    ],
)
def test_what_no_recorded_step_shows_counts_by_its_share_of_the_process_time(elapsed_ns, severity):
    (found,), _ = find(sizes(3), elapsed_ns=elapsed_ns)
    assert (found.severity, found.edit) == (severity, None)


def test_where_most_steps_compile_the_replay_prices_it():
    (found,), facts = find(sizes(3), compiling_steps(True, True, False, True))
    assert found.severity is None
    assert found.edit is not None
    assert predict_saving(facts, found.edit).fraction == 0.6
    assert "again in most of the recorded steps" in found.message


def test_where_few_do_their_steps_are_no_measured_ones():
    (found,), facts = find(sizes(3), compiling_steps(False, True, False, False))
    assert facts.steps.measured.tolist() == [True, False, True, True]
    assert (found.edit, found.severity) == (None, Severity.LOW)


def test_what_another_function_compiles_is_not_its_price():
    (found,), _ = find(sizes(3), compiling_steps(True, True, True, True, note="dynamo_data: compile_id=7/0"))
    assert found.edit is None


def test_without_the_compilers_notes_all_is_that_of_the_only_function():
    (found,), facts = find(sizes(3), compiling_steps(True, True, True, True, note="something"))
    assert found.edit is not None
    assert predict_saving(facts, found.edit).fraction == 0.8


def test_that_the_compiler_gave_up_is_said():
    gave_up = Compilation(3, None, 10**6, failure="Dynamo recompile limit exceeded\n Explanation: ...")
    (found,), _ = find((*sizes(8), gave_up))
    assert found.evidence["gave_up"] == 1
    assert "it gave up" in found.message


def test_a_number_that_changes_should_be_a_tensor():
    reasons = [f"0/{i}: ___stack0 == {i}.5          # y = x * n  # train.py:6 in encode" for i in range(3)]
    (found,), _ = find(tuple(Compilation(0, SITE, 10**8, reason) for reason in reasons))
    assert "as a tensor" in found.fix
    assert "___stack0 == 2.5." in found.message


def test_a_program_that_compiles_nothing_is_silent():
    assert list(recompilation.check(facts_of(QUIET, run=Run(torch="2.13")))) == []


def test_a_recording_made_elsewhere_cannot_tell():
    with pytest.raises(CannotLook, match="profkit made"):
        list(recompilation.check(facts_of(QUIET)))


def test_the_compilers_events_in_the_steps_of_another_recording_tell():
    facts = facts_of(compiling_steps(True, True, False, True))
    (found,) = recompilation.check(facts)
    assert found.edit is not None
    assert predict_saving(facts, found.edit).fraction == 0.6
    assert found.message.startswith("A function is compiled again in 3 recorded steps, 600 µs a step.")
    assert "TORCH_LOGS=recompiles" in found.message


def runs_of(*frames: int) -> list[Json]:
    """What each of the steps runs once it is compiled."""
    return [op(f"Torch-Compiled Region: {frame}/{i}", 1000 * i + 930, 50) for i, frame in enumerate(frames)]


def test_where_the_compiler_notes_nothing_the_function_that_is_run_next_is_the_one():
    compiled = compiling_steps(*[True] * 4, note="something")
    assert len(list(recompilation.check(facts_of([*compiled, *runs_of(3, 3, 3, 3)])))) == 1
    with pytest.raises(CannotLook):
        list(recompilation.check(facts_of(compiled)))


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(compiling_steps(True, True, False, False), id="the first two steps"),
        pytest.param([*compiling_steps(*[True] * 4, note="something"), *runs_of(1, 2, 3, 4)], id="another function"),
        pytest.param([*compiling_steps(True, False, False, False), *runs_of(3, 3, 3, 3)], id="a cold start"),
    ],
)
def test_what_the_compiler_does_once_for_each_function_is_silent_in_another_recording_too(events):
    with pytest.raises(CannotLook):
        list(recompilation.check(facts_of(events)))
