"""The watch of repeated calls ends by the CPU time that it took, never by time on the wall, and says why."""

from __future__ import annotations

import pytest
import torch

from profkit.collect.program.clocks import time
from profkit.collect.tensors import call_budget, recomputation
from profkit.collect.tensors.call_budget import MOST_NS, CallBudget
from profkit.collect.tensors.recomputation import CallWatch


class Clock:
    """The CPU time of a thread, which a test sets."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def spend(budget: CallBudget, clock: Clock, took_ns: int, calls: int = 0, tensors: int = 0) -> bool:
    begun_ns = budget.begin()
    clock.now_ns += took_ns
    budget.seen += 1
    return budget.spend(begun_ns, calls, tensors)


def test_it_ends_when_its_cpu_time_is_used_and_says_after_how_many_calls():
    clock = Clock()
    budget = CallBudget(clock)
    assert spend(budget, clock, MOST_NS)
    clock.now_ns += 10 * MOST_NS  # the program's own work
    assert not spend(budget, clock, 1)
    assert budget.ended == (
        "watching for repeated calls used its 600 ms of CPU time after 2 calls: record a step with fewer (--at-step N)"
    )


@pytest.mark.parametrize(
    ("calls", "tensors", "used"),
    [(20_000, 0, "its room for 20,000 calls"), (0, 40_000, "its room for 40,000 tensors"), (19_999, 39_999, "")],
)
def test_it_ends_when_it_keeps_as_much_as_it_may(calls, tensors, used):
    clock = Clock()
    budget = CallBudget(clock)
    assert spend(budget, clock, 1, calls, tensors) == (not used)
    assert used in budget.ended
    assert bool(budget.ended) == bool(used)


def test_what_was_spent_is_taken_once_and_the_budget_remembers_it():
    clock = Clock()
    budget = CallBudget(clock)
    spend(budget, clock, 300)
    assert (budget.take_spent_ns(), budget.take_spent_ns()) == (300, 0)
    assert not spend(budget, clock, MOST_NS - 299)


def test_the_clock_is_the_cpu_time_of_the_watching_thread():
    assert CallBudget()._clock is time.thread_time_ns


def run_two_steps(watch: CallWatch) -> None:
    x = torch.rand(4)
    watch.begin()
    try:
        for _ in range(2):
            x.relu(), x.relu()
            watch.end_step()
    finally:
        watch.stop()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> CallWatch:
    monkeypatch.setattr(recomputation, "_is_unnoticed", lambda: True)
    return CallWatch()


@pytest.mark.parametrize(("wall_ns", "cpu_ns", "is_ended"), [(10**10, 0, False), (0, 10**10, True)])
def test_time_on_the_wall_does_not_end_the_watch_but_cpu_time_does(watch, monkeypatch, wall_ns, cpu_ns, is_ended):
    """Each look at a clock finds so much more time gone, as on a machine where others have the CPUs."""
    clocks = {"wall": 0, "cpu": 0}

    def read(name: str, step_ns: int) -> int:
        clocks[name] += step_ns
        return clocks[name]

    monkeypatch.setattr(time, "perf_counter_ns", lambda: read("wall", wall_ns))
    monkeypatch.setattr(time, "monotonic_ns", lambda: read("wall", wall_ns))
    monkeypatch.setattr(recomputation, "CallBudget", lambda: CallBudget(lambda: read("cpu", cpu_ns)))
    run_two_steps(watch)
    assert bool(watch.budget.ended) is is_ended
    assert (watch.found is None) is is_ended


def test_a_program_that_would_notice_the_watch_is_told_so(monkeypatch):
    monkeypatch.setattr(recomputation, "_is_unnoticed", lambda: False)
    watch = CallWatch()
    run_two_steps(watch)
    assert watch.found is None
    assert watch.budget.ended == call_budget.NOTICED


def test_a_failure_of_the_watch_is_named(watch, monkeypatch):
    def fail(*_: object) -> None:
        raise TypeError("no tensor")

    monkeypatch.setattr(CallWatch, "_look_at", fail)
    run_two_steps(watch)
    assert watch.budget.ended == "watching for repeated calls failed: TypeError: no tensor"


def test_what_interrupts_a_look_is_left_out():
    clock = Clock()
    budget = CallBudget(clock)
    begun_ns = budget.begin()
    clock.now_ns += 5
    aside_ns = budget.begin()
    clock.now_ns += 10 * MOST_NS  # a recording is stopped and written
    budget.leave_out(aside_ns)
    clock.now_ns += 2
    assert budget.spend(begun_ns, 0, 0)
    assert budget.take_spent_ns() == 7


def test_work_aside_is_not_the_watchs(monkeypatch):
    """It may begin between two bytecodes of the watch itself."""
    watch, clock = CallWatch(), Clock()
    watch.begin()
    try:
        watch.budget = CallBudget(clock)
        begun_ns = watch.budget.begin()
        with watch.aside(), watch.aside():
            clock.now_ns += 10 * MOST_NS
        assert watch.budget.spend(begun_ns, 0, 0)
    finally:
        watch.stop()
