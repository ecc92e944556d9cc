"""Line marks: exact lines, strict nesting, and no effect afterwards."""

from __future__ import annotations

import inspect
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from profkit.collect.sessions.lines import LineTracer
from profkit.core.marks import UNMARKED
from profkit.run.directory import CallSite
from profkit.source.user_code import UserFiles
from tests.collect.reading import Event, is_inside, marks_around, marks_of
from tests.collect.sessions import traced

Record = Callable[[Callable[[], Any]], list[Event]]
A = torch.rand(8)
SHORTER = " (record a shorter step, --at-step N)"


def make_tracer(**limits: Any) -> LineTracer:
    return LineTracer(UserFiles(), **limits)


def call_traced(tracer: LineTracer, action: Callable[[], Any], *, leaves_some: bool = False) -> Any:
    tracer.start(sys._getframe(), leaves_some=leaves_some)
    try:
        return action()
    finally:
        tracer.stop(sys._getframe())


def call_alone(tracer: LineTracer, action: Callable[[], Any]) -> Any:
    """As if no frame of the program called it."""
    tracer.start(None)
    try:
        return action()
    finally:
        tracer.stop(sys._getframe())


def sites_around(name: str, tracer: LineTracer, events: list[Event]) -> list[CallSite]:
    """The call sites whose marks enclose the one event of this name, outermost first."""
    (found,) = [event for event in events if event["name"] == name]
    return [tracer.callsites[index] for index in marks_around(found, events)]


def expected_lines(function: Callable[..., Any]) -> list[int]:
    """The numbers of the lines that are marked ``# here`` in a function's source."""
    function = inspect.unwrap(traced.ELSEWHERE.get(function.__name__, function))
    lines, first = inspect.getsourcelines(function)
    found = []
    for number, line in enumerate(lines, first):
        marker = re.search(r"# here(?: x (\d))?$", line.rstrip())
        found += [number] * int(marker[1] or 1) if marker else []
    return found


@pytest.mark.parametrize("function", traced.LOCATED, ids=lambda function: function.__name__)
def test_the_innermost_mark_around_an_operator_is_its_exact_line(function, recorded):
    tracer = make_tracer()
    events = recorded(lambda: call_traced(tracer, function))
    multiplications = [event for event in events if event["name"] == "aten::mul"]
    sites = [tracer.callsites[marks_around(event, events)[-1]] for event in multiplications]
    assert [site.line for site in sites] == expected_lines(function) != []
    assert {site.file for site in sites} == {traced.__file__}


def test_a_call_site_holds_source_and_qualified_function(recorded):
    tracer = make_tracer()
    events = recorded(lambda: call_traced(tracer, traced.in_a_module))
    site = sites_around("aten::mul", tracer, events)[-1]
    assert site.source == "return a * b  # here"
    assert site.function == ("Doubling.forward" if sys.version_info >= (3, 11) else "forward")


def test_marks_of_calling_lines_enclose_those_of_called_lines(recorded):
    tracer = make_tracer()
    events = recorded(lambda: call_traced(tracer, traced.in_nested_functions))
    sources = [site.source for site in sites_around("aten::mul", tracer, events)]
    assert sources[-2:] == ["result = inner(A)", "return a * B  # here"]


def test_a_comprehension_counts_as_the_function_around_it():
    tracer = make_tracer()
    call_traced(tracer, traced.in_a_comprehension)
    names = {site.function for site in tracer.callsites if site.file == traced.__file__}
    assert "in_a_comprehension" in names
    if sys.version_info >= (3, 11):
        assert names == {"in_a_comprehension"}


def test_marks_are_strictly_nested_even_when_exceptions_unwind_many_frames(recorded):
    def dig(depth: int) -> Tensor:
        return dig(depth - 1) if depth else traced.fail()

    def give_up_and_go_on() -> None:
        for depth in (1, 5):
            try:
                dig(depth)
            except ValueError:
                torch.rand(1)
            traced.in_a_generator()

    marks = marks_of(recorded(lambda: call_traced(make_tracer(), give_up_and_go_on)))
    assert len(marks) > 40
    for first in marks:
        for second in marks:
            apart = first["ts"] + first["dur"] <= second["ts"] or second["ts"] + second["dur"] <= first["ts"]
            assert apart or is_inside(first, second) or is_inside(second, first)


def test_an_operator_after_a_caught_exception_is_not_inside_the_failed_call(recorded):
    tracer = make_tracer()
    events = recorded(lambda: call_traced(tracer, traced.after_an_exception_was_caught))
    sources = [site.source for site in sites_around("aten::mul", tracer, events)]
    assert "raise ValueError" not in sources
    assert "fail()" not in sources


def test_a_suspended_generator_has_no_open_mark(recorded):
    def use() -> None:
        generator = traced.produce()
        next(generator)
        torch.sub(traced.A, 1)
        generator.close()

    tracer = make_tracer()
    events = recorded(lambda: call_traced(tracer, use))
    sites = sites_around("aten::sub", tracer, events)
    assert sites[-1].source == "torch.sub(traced.A, 1)"
    assert not any(site.file == traced.__file__ for site in sites)


def test_lines_of_libraries_are_not_marked():
    tracer = make_tracer()
    call_traced(tracer, lambda: torch.nn.functional.dropout(traced.A, 0.5))
    assert {site.file for site in tracer.callsites} == {__file__}


def test_another_tracer_is_left_alone_and_noted():
    def other(frame: Any, event: str, argument: Any) -> None:
        return None

    before, tracer = sys.gettrace(), make_tracer()
    sys.settrace(other)
    try:
        started = tracer.start(sys._getframe())
        kept = sys.gettrace()
        tracer.stop(sys._getframe())
        kept_after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert not started
    assert kept is kept_after is other
    assert "debugger" in tracer.notes[0]


def test_no_frame_and_no_thread_is_traced_after_the_stop():
    tracer = make_tracer()
    generator = traced.produce()
    call_traced(tracer, lambda: next(generator))
    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None
    assert generator.gi_frame.f_trace is None


def test_the_budget_of_lines_ends_the_tracing_of_an_outermost_loop():
    def loop() -> int:
        total = 0
        for number in range(1000):
            total += number
        return total

    tracer = make_tracer(max_lines=50)
    assert call_alone(tracer, loop) == 499500
    assert tracer.notes == [f"lines were located for the first 50 lines that ran, and no longer{SHORTER}"]


def test_the_budget_of_time_ends_the_tracing_even_in_library_code():
    looks = iter(range(10_000))
    tracer = make_tracer(max_seconds=2, patience=lambda _: SimpleNamespace(is_over=lambda: next(looks) > 2))
    call_traced(tracer, lambda: [inspect.unwrap(len) for _ in range(2000)])
    assert tracer.notes == [f"lines were located for the first 2 s, and no longer{SHORTER}"]


def test_calls_inside_libraries_spend_the_budget_too():
    def unwrap() -> None:
        for _ in range(2000):
            inspect.unwrap(len)

    tracer = make_tracer(max_lines=100)
    call_alone(tracer, unwrap)
    assert tracer.has_ended
    assert tracer.notes == [f"lines were located for the first 100 lines that ran, and no longer{SHORTER}"]


def test_after_the_budget_no_operator_lies_in_a_mark(recorded):
    def loop() -> None:
        for _ in range(1000):
            pass
        torch.sub(traced.A, 1)

    tracer = make_tracer(max_lines=50)
    events = recorded(lambda: call_alone(tracer, loop))
    assert sites_around("aten::sub", tracer, events) == []


def test_a_python_loop_leaves_half_of_the_lines_to_what_follows(recorded):
    """It may use 20 of 40 lines; what it runs later is located at the line that calls it."""
    tracer = make_tracer(max_lines=40)

    def count(times: int) -> Tensor:
        total = 0
        for _ in range(times):
            total += 1
        return A * total

    def work() -> Tensor:
        first = count(100)
        second = count(1)
        return first * second

    events = recorded(lambda: call_traced(tracer, work))
    products = [event for event in events if event["name"] == "aten::mul"]
    sources = [tracer.callsites[marks_around(event, events)[-1]].source for event in products]
    assert sources == ["first = count(100)", "second = count(1)", "return first * second"]
    assert [note for note in tracer.notes if "count" in note] == tracer.notes != []
    assert not tracer.has_ended


def test_comprehensions_leave_lines_once_half_of_them_are_spent(recorded):
    """Three of them run 90 lines, of 64. Each is a part of a line that is marked, and its work is located there."""
    tracer = make_tracer(max_lines=64)

    def work() -> Tensor:
        first = [number + 1 for number in range(30)]
        second = [number + 2 for number in range(30)]
        third = [A * number for number in range(30)]
        return third[0] * (first[0] + second[0])

    events = recorded(lambda: call_traced(tracer, work, leaves_some=True))
    products = [event for event in events if event["name"] == "aten::mul"]
    sources = [tracer.callsites[marks_around(event, events)[-1]].source for event in products]
    assert sources[:-1] == ["third = [A * number for number in range(30)]"] * 30
    assert sources[-1] == "return third[0] * (first[0] + second[0])"
    assert tracer.notes == []
    assert not tracer.has_ended


def test_several_loops_over_numbers_leave_the_last_lines_to_others(recorded):
    """Each of three functions runs a third of the lines, so that none is stopped at half of them."""
    tracer = make_tracer(max_lines=80)

    def one(total: int = 0) -> int:
        for _ in range(15):
            total += 1
        return total

    def other(total: int = 0) -> int:
        for _ in range(15):
            total += 2
        return total

    def third(total: int = 0) -> int:
        for _ in range(15):
            total += 3
        return total

    def work() -> Tensor:
        total = one() + other() + third()
        return A * total

    events = recorded(lambda: call_traced(tracer, work, leaves_some=True))
    (product,) = (event for event in events if event["name"] == "aten::mul")
    assert tracer.callsites[marks_around(product, events)[-1]].source == "return A * total"
    assert not tracer.has_ended


def test_who_waits_for_the_end_of_the_lines_wants_none_to_be_left(recorded):
    tracer = make_tracer(max_lines=64)

    def work() -> Tensor:
        counted = [number + 1 for number in range(30)]
        counted += [number + 2 for number in range(30)]
        return A * len(counted)

    recorded(lambda: call_traced(tracer, work))
    assert tracer.has_ended


def test_the_trace_shows_when_a_function_is_marked_no_further(recorded):
    tracer = make_tracer(max_lines=40)

    def multiply(times: int) -> Tensor:
        total = A
        for _ in range(times):
            total = total * A
        return total

    def work() -> Tensor:
        return multiply(30) + multiply(30)

    events = recorded(lambda: call_traced(tracer, work))
    (moment,) = (event for event in events if event["name"] == UNMARKED)
    around = [tracer.callsites[mark].source for mark in marks_around(moment, events)]
    assert around[-1] == "return multiply(30) + multiply(30)"
    products = [event for event in events if event["name"] == "aten::mul"]
    own = [tracer.callsites[marks_around(event, events)[-1]].source == "total = total * A" for event in products]
    assert own == [event["ts"] < moment["ts"] for event in products]
    assert {True, False} == set(own)


def test_tracing_can_be_ended_in_a_function_whose_lines_are_used_up():
    """By another thread, while the function makes no Python call."""
    tracer, passed_by = make_tracer(max_lines=40), threading.Event()

    def work() -> bool:
        while tracer.active:
            if not sys._getframe().f_trace_lines:
                passed_by.set()
        return tracer.has_ended

    def expire() -> None:
        passed_by.wait()
        tracer.expire()

    other = threading.Thread(target=expire)
    other.start()
    assert call_traced(tracer, work)
    other.join()


def test_tracing_ends_at_the_next_line_around_calls_of_a_function_whose_lines_are_used_up():
    """Such a call is no longer traced, and the loop around it may have no more than a few lines left to run."""
    tracer = make_tracer(max_lines=40)

    def count() -> int:
        total = 0
        for _ in range(30):
            total += 1
        return total

    def work() -> tuple[bool, bool]:
        count()
        before, _, _ = tracer.has_ended, count(), tracer.expire()
        return before, tracer.has_ended

    assert call_traced(tracer, work) == (False, True)


def test_a_frame_whose_lines_are_used_up_is_restored_when_tracing_ends():
    tracer = make_tracer(max_lines=40)

    def count() -> bool:
        for _ in range(30):
            pass
        during = sys._getframe().f_trace_lines
        tracer.stop(sys._getframe())
        return not during and sys._getframe().f_trace_lines

    assert call_traced(tracer, count)


def test_an_error_in_the_tracer_never_reaches_the_program(monkeypatch):
    def break_down(name: str) -> Any:
        raise RuntimeError("no marks today")

    tracer = make_tracer()
    monkeypatch.setattr("profkit.collect.sessions.lines.open_mark", torch.autograd.profiler.record_function)
    tracer.start(sys._getframe())
    monkeypatch.setattr("profkit.collect.sessions.lines.open_mark", break_down)
    assert traced.in_nested_functions().shape == (8,)
    tracer.stop(sys._getframe())
    assert tracer.notes == ["locating lines failed: RuntimeError: no marks today"]


class Held:
    """An object that allows weak references."""


def test_tracing_keeps_nothing_of_a_running_function_alive():
    tracer, held = make_tracer(), Held()
    alive = weakref.ref(held)
    tracer.start(sys._getframe())
    is_seen = alive() is not None
    tracer.stop(sys._getframe())
    del held
    assert is_seen
    assert alive() is None


def hold_and_drop() -> Iterator[Any]:
    held = Held()
    alive = weakref.ref(held)
    yield alive
    del held
    yield alive


def test_tracing_keeps_nothing_of_a_suspended_generator_alive():
    tracer, generator = make_tracer(), hold_and_drop()
    alive = call_traced(tracer, lambda: next(generator))
    assert alive() is not None
    next(generator)
    assert alive() is None


def test_a_dict_that_the_program_took_from_locals_is_unchanged():
    learning_rate = 0.1
    settings = locals()
    call_traced(make_tracer(), traced.in_nested_functions)
    assert settings["learning_rate"] == learning_rate


def test_local_variables_survive_the_tracing():
    def change() -> tuple[int, list[int]]:
        number, captured = 1, [1]
        tracer = make_tracer()
        tracer.start(sys._getframe())
        number += 1
        captured = [*captured, number]
        tracer.stop(sys._getframe())
        number += 1
        return number, [*captured, *(number for _ in range(1))]

    assert change() == (3, [1, 2, 3])


def test_other_threads_are_not_traced():
    tracer, seen = make_tracer(), []

    def run() -> None:
        thread = threading.Thread(target=lambda: seen.append(sys.gettrace()))
        thread.start()
        thread.join()

    call_traced(tracer, run)
    assert seen == [None]


def test_pytorchs_public_marks_locate_too(recorded, monkeypatch):
    monkeypatch.setattr("profkit.collect.sessions.lines.open_mark", torch.autograd.profiler.record_function)
    tracer = make_tracer()
    events = recorded(lambda: call_traced(tracer, traced.in_nested_functions))
    assert sites_around("aten::mul", tracer, events)[-1].source == "return a * B  # here"


def test_pausing_closes_marks_and_resuming_opens_them(recorded):
    tracer = make_tracer()

    def pause_between() -> None:
        tracer.pause()
        torch.sub(traced.A, 1)
        tracer.resume(sys._getframe())
        torch.add(traced.A, 1)

    events = recorded(lambda: call_traced(tracer, pause_between))
    assert sites_around("aten::sub", tracer, events) == []
    assert sites_around("aten::add", tracer, events)[-1].source == "torch.add(traced.A, 1)"


def test_the_compiler_compiles_nothing_of_the_tracer_beside_the_programs_compiled_code():
    def square(x: Tensor) -> Tensor:
        return x * x

    def train(x: Tensor) -> None:
        square(x).sum().backward()
        torch._dynamo.graph_break()
        square(x + 1).sum().backward()

    def count_frames(tracer: LineTracer | None) -> int:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(train, backend="eager")
        weight = torch.ones(3, requires_grad=True)
        if tracer is None:
            compiled(weight)
        else:
            call_traced(tracer, lambda: compiled(weight))
        return int(torch._dynamo.utils.counters["frames"]["total"])

    passes: list[Any] = []
    tracer = make_tracer(on_backward=lambda roots: passes.append(torch.is_tensor(roots)))
    assert count_frames(tracer) == count_frames(None)
    assert len(passes) == 2
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
