"""After which steps the census is taken."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.recorder import census_times as looking
from profkit.collect.recorder.archive import RunFile
from profkit.collect.recorder.census_times import ENOUGH, CensusTimes
from profkit.patterns.retention.holding import MIN_SAMPLES
from profkit.run.plan import Plan, Subject

STEP_NS = 10**9


class Names:
    """Stands in for the census: each one takes ``look_ns`` of a clock that stands still otherwise."""

    def __init__(self, look_ns: int) -> None:
        self.steps: list[int] = []
        self.clock_ns = 0
        self._look_ns = look_ns

    def take(self, step: int, frame: FrameType | None) -> None:
        self.steps.append(step)
        self.clock_ns += self._look_ns

    @property
    def taken(self) -> int:
        return len(self.steps)


def looked_after(
    plan: Plan, look_ns: int, monkeypatch: pytest.MonkeyPatch, settles: int = 0
) -> list[tuple[Phase, int]]:
    """The steps of a recording after which a census was taken."""
    names: Any = Names(look_ns)
    monkeypatch.setattr(looking.time, "thread_time_ns", lambda: names.clock_ns)
    schedule = Schedule(plan)
    times = CensusTimes(names, schedule, RunFile(Subject()), plan)
    schedule.begin(0)
    found, now_ns = [], 0
    while schedule.phase is not Phase.DONE:
        ended, before = schedule.phase, names.taken
        times.after(ended, times.are_due(ended), sys._getframe())
        if names.taken > before:
            found.append((ended, names.steps[-1]))
        now_ns += STEP_NS
        if schedule.advance(now_ns) is not Phase.LOCATED and ended is Phase.LOCATED:
            schedule.let_settle(settles)
        schedule.begin(now_ns)
    return found


def test_as_many_samples_are_taken_as_growth_needs():
    assert ENOUGH == MIN_SAMPLES


def test_a_cheap_census_is_taken_after_each_recorded_step(monkeypatch):
    looks = looked_after(Plan(prologue=False), STEP_NS // 100, monkeypatch)
    assert looks == [(Phase.LOCATED, 2), (Phase.REFERENCE, 3), *((Phase.ACTIVE, step) for step in (4, 5, 6, 7))]


def test_an_expensive_census_is_taken_from_the_last_measured_step_on(monkeypatch):
    """So no measured step begins with the caches that a census leaves. The last four samples are of consecutive steps:
    what begins to grow late grows in four samples too."""
    looks = looked_after(Plan(prologue=False), STEP_NS // 99, monkeypatch)
    assert looks == [
        (Phase.LOCATED, 2),
        (Phase.REFERENCE, 3),
        (Phase.ACTIVE, 7),
        *((Phase.AFTER, step) for step in (8, 9, 10)),
    ]


@pytest.mark.parametrize(
    ("plan", "settles", "steps"),
    [
        (Plan(prologue=False, active=2, after=0), 0, [4, 5]),
        (Plan(prologue=False, active=9, after=0), 0, [8, 12]),
        (Plan(prologue=False, warmup=2, active=4, after=0), 0, [8]),
        (Plan(prologue=False, active=4, after=0), 3, [9]),
        (Plan(prologue=False, active=1, after=0), 0, [4]),
        (Plan(prologue=False, active=4, after=1), 0, [7]),
        (Plan(prologue=False, warmup=0, active=4, after=0), 0, [3, 4, 5, 6]),
    ],
)
def test_there_are_enough_samples_if_the_steps_suffice_and_always_a_last_one(plan, settles, steps, monkeypatch):
    looks = looked_after(plan, STEP_NS, monkeypatch, settles)
    assert [step for phase, step in looks if phase is Phase.ACTIVE] == steps


def test_without_a_timed_step_the_first_measured_one_has_a_census_too(monkeypatch):
    plan = Plan(wait=0, warmup=1, active=4, after=0, prologue=False)
    assert [step for _, step in looked_after(plan, STEP_NS, monkeypatch)] == [0, 1, 2, 3, 4]
