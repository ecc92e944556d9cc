"""The prologue: how long it lasts, whether it begins again, and whether events or the program made the process grow."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from math import inf

import pytest
import torch

from profkit.collect.recorder.prologue import Prologue
from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.held_memory import HeldMemory
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.tensors.denormals import DenormalWatch
from profkit.source.user_code import UserFiles

NOTHING = HeldMemory(lambda: 0, lambda: None)
"""A process that never grows."""


def tensor_that_lived_during(look: Callable[[], object]) -> object:
    """What is left of a local variable once its function has ended, without the garbage collector."""

    def program() -> weakref.ref[torch.Tensor]:
        tensor = torch.ones(8)
        look()
        return weakref.ref(tensor)

    return program()()


@pytest.mark.parametrize("limit_s", [60.0, 0.0])
def test_checking_the_prologue_keeps_nothing_of_the_program_alive(limit_s, tmp_path):
    """A frame that refers to itself would wait for the garbage collector, with its callers and all that they hold."""
    recordings, tracer = Recordings(tmp_path, lambda: None, Allowance()), LineTracer(UserFiles((tmp_path,)))
    prologue = Prologue(recordings, tracer, limit_s, NOTHING, Allowance(), DenormalWatch())
    prologue.begin()
    try:
        assert tensor_that_lived_during(prologue.look_at) is None
    finally:
        prologue.close()
        recordings.remove()


class Parts:
    """Stands in for the recordings and the tracer: when recordings began, and their numbers of events."""

    def __init__(self, clock: dict[str, float], *events: int) -> None:
        self.began: list[float] = []
        self.running: object | None = None
        self.prologue: object | None = None
        self.cut_operators_off = self.has_ended = False
        self.max_lines, self.spent_lines, self.notes = 0, 1_000, list[str]()
        self._clock, self._events = clock, list(events)

    def start(self, *_: object) -> None:
        if not _:
            self.began.append(self._clock["now"])
            self.running = object()

    def stop(self, frame: object) -> None:
        """Of the tracer."""

    def keep_prologue(self) -> int:
        self.prologue, self.running = self.running, None
        return self._events.pop(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    times = {"now": 100.0, "cpu_s": 1.0}
    monkeypatch.setattr("profkit.collect.recorder.prologue.time.monotonic", lambda: times["now"])
    monkeypatch.setattr("profkit.collect.recorder.prologue.time.process_time", lambda: times["cpu_s"])
    # patience does not count what the thread really waits for a CPU: a crowded machine would make it longer
    monkeypatch.setattr("profkit.collect.machine.patience.count_crowded_ns", lambda _: 0)
    return times


class Looks:
    """Stands in for the watch of denormal numbers, which cost more from one second on, until that is kept."""

    def __init__(self, clock: dict[str, float], slower_from: float = inf) -> None:
        self.looked: list[float] = []
        self.kept: list[float] = []
        self._clock, self._slower_from = clock, slower_from

    def look(self) -> bool:
        self.looked.append(round(self._clock["now"] - 100, 1))
        return self.looked[-1] >= self._slower_from > max(self.kept, default=0)

    def keep(self) -> None:
        self.kept.append(self.looked[-1])

    keep_more = keep


def begin(
    parts: Parts, held: HeldMemory = NOTHING, allowance: Allowance | None = None, looks: Looks | None = None
) -> Prologue:
    """A prologue of three seconds that has just begun."""
    looks = looks or Looks({"now": 0.0})
    prologue = Prologue(parts, parts, 3.0, held, allowance or Allowance(), looks)
    prologue.begin()
    return prologue


def look(prologue: Prologue, clock: dict[str, float], computed_s: float = 0.05) -> bool:
    """One look of the sampling thread, before which the program computed for so long."""
    clock["now"] += 0.05
    clock["cpu_s"] += computed_s
    return prologue.is_due()


def run_for(seconds: int, prologue: Prologue, clock: dict[str, float]) -> None:
    """Check it five times a second, as the sampling thread and the main thread do."""
    for _ in range(5 * seconds):
        clock["now"] += 0.2
        clock["cpu_s"] += 0.2
        if prologue.is_due():
            prologue.look_at()


def test_a_program_that_ends_no_step_is_recorded_again_later(clock):
    """The prologue lasts three seconds, each later part two."""
    parts = Parts(clock, 9, 9, 9, 9)
    prologue = begin(parts)
    run_for(60, prologue, clock)
    assert [round(at - 100) for at in parts.began] == [0, 6, 12, 24]
    assert parts.running is None
    assert (prologue.was_full, prologue.was_renewed) == (True, True)


def test_denormal_numbers_are_looked_for_less_and_less_often(clock):
    """At both ends of each later part, too; while a part is recorded, what was seen is about it."""
    parts, looks = Parts(clock, 9, 9, 9, 9), Looks(clock)
    run_for(60, begin(parts, looks=looks), clock)
    assert looks.looked == [2.0, 3.0, 3.4, 5.6, 6.2, 8.2, 9.0, 12.2, 14.2, 14.6, 23.4, 24.2, 26.2, 37.6]
    assert looks.kept == [2.0, 3.0, 6.2, 8.2, 12.2, 14.2, 24.2, 26.2]


def test_the_prologue_begins_again_once_denormal_numbers_cost_more(clock):
    parts, looks = Parts(clock, 9, 9, 9, 9, 9), Looks(clock, slower_from=30)
    run_for(120, begin(parts, looks=looks), clock)
    assert [round(at - 100) for at in parts.began] == [0, 6, 12, 24, 38]
    assert looks.kept[-2:] == [37.6, 39.8]


def test_an_operator_that_was_cut_off_keeps_denormal_numbers_from_being_looked_for(clock):
    parts, looks = Parts(clock, 9), Looks(clock, slower_from=30)
    prologue = begin(parts, looks=looks)
    parts.cut_operators_off = True
    run_for(120, prologue, clock)
    assert looks.looked == [2.0, 3.0]
    assert parts.began == [100.0]


def test_an_unrecorded_prologue_is_soon_over(clock):
    """Then calls of the model may end steps. After an interruption, as for a fork, it goes on unrecorded."""
    parts = Parts(clock, 0, 0)
    prologue = Prologue(parts, parts, 30.0, HeldMemory(lambda: 9, lambda: None), Allowance(), Looks(clock))
    prologue.begin(is_recorded=False)
    prologue.go_on()
    run_for(1, prologue, clock)
    assert not prologue.was_full
    run_for(60, prologue, clock)
    assert prologue.was_full
    assert parts.began == []


def test_the_prologue_does_not_begin_again_once_a_step_ended(clock):
    parts = Parts(clock, 9)
    prologue = begin(parts)
    run_for(5, prologue, clock)
    prologue.close()
    run_for(60, prologue, clock)
    assert parts.began == [100.0]


@pytest.mark.parametrize("obstacle", ["an operator that was cut off", "a recorded step"])
def test_the_prologue_does_not_begin_again_amid_a_recorded_step_or_a_cut_off_operator(obstacle, clock):
    parts = Parts(clock, 9)
    prologue = begin(parts)
    parts.cut_operators_off = obstacle == "an operator that was cut off"
    run_for(5, prologue, clock)
    parts.running = None if parts.cut_operators_off else object()
    run_for(60, prologue, clock)
    assert parts.began == [100.0]


@pytest.mark.parametrize(("modules", "is_over"), [(800, False), (100, True), (0, True)])
def test_memory_of_imported_modules_does_not_end_the_prologue(monkeypatch, clock, modules, is_over):
    """PyTorch imports 800 modules when a program makes its first optimizer."""
    held = [300 << 20]
    parts = Parts(clock, 9)
    prologue = begin(parts, HeldMemory(lambda: held[0], lambda: None))
    held[0] += 80 << 20
    for number in range(modules):
        monkeypatch.setitem(sys.modules, f"module_{number}", sys)
    assert look(prologue, clock) == is_over
    held[0] += 25 << 20
    assert look(prologue, clock)


@pytest.mark.parametrize(
    ("spent_lines", "looks"),
    [
        (1_000, [False, True]),  # their events can be why
        (999, [False, False, False, False, True]),
    ],
)
def test_after_few_lines_only_lasting_growth_ends_the_prologue(clock, spent_lines, looks):
    held = [300 << 20]
    parts = Parts(clock, 9)
    prologue = begin(parts, HeldMemory(lambda: held[0], lambda: None))
    parts.spent_lines = spent_lines
    assert not look(prologue, clock)
    for size, is_due in zip([300] * 1 + [340] * 4, looks, strict=False):
        held[0] = size << 20
        assert look(prologue, clock) == is_due


def test_looks_between_which_the_program_hardly_computed_do_not_count(clock):
    """On a crowded machine it holds large results for many looks; once it has computed for as long, they do."""
    held = [300 << 20]
    parts = Parts(clock, 9)
    prologue = begin(parts, HeldMemory(lambda: held[0], lambda: None))
    parts.spent_lines = 20
    held[0] = 340 << 20
    clock["cpu_s"] += 1.0
    assert [look(prologue, clock, computed_s=0.01) for _ in range(12)] == [False] * 12
    assert look(prologue, clock)


def test_large_results_that_are_dropped_again_do_not_end_the_prologue(clock):
    held = [300 << 20]
    parts = Parts(clock, 9)
    prologue = begin(parts, HeldMemory(lambda: held[0], lambda: None))
    parts.spent_lines = 20
    for size in (350, 330, 350, 302, 350, 350, 330, 303):
        held[0] = size << 20
        assert not look(prologue, clock)


def test_the_prologue_does_not_begin_again_if_no_more_may_be_recorded(clock):
    parts, allowance = Parts(clock, 9), Allowance(lambda: 0.0, lambda: 0.0)
    prologue = begin(parts, allowance=allowance)
    allowance.count(1_000_000)
    run_for(60, prologue, clock)
    assert parts.began == [100.0]


@pytest.mark.parametrize(("events", "times"), [(35_000, 2), (9, 4)])
def test_a_later_part_of_the_prologue_leaves_half_of_what_may_be_recorded_to_steps(events, times, clock):
    """Some 92,000 events may be recorded in all; stopping costs nothing here, judging as much as elsewhere."""
    allowance = Allowance(lambda: 0.0, lambda: 0.0)
    parts = Parts(clock, *[events] * 4)
    prologue = begin(parts, allowance=allowance)
    keep = parts.keep_prologue

    def keep_and_count() -> int:
        allowance.count(kept := keep())
        return kept

    parts.keep_prologue = keep_and_count
    run_for(60, prologue, clock)
    assert len(parts.began) == times


@pytest.mark.parametrize(
    ("was_full", "events", "by_events"), [(True, 9_000, True), (True, 8_999, False), (False, 9_000, False)]
)
def test_a_prologue_of_few_events_was_filled_by_the_programs_tensors(was_full, events, by_events):
    prologue = Prologue.__new__(Prologue)  # only these two attributes count
    prologue.was_full, prologue.events = was_full, events
    assert prologue.was_filled_by_events is by_events
