"""What the program asks its parent for: when, over which steps, and what it leaves alone."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.stacks import requests
from profkit.collect.stacks.requests import REQUEST_FILE, StackRequest, StackRequests, read_request
from profkit.run.plan import Plan

MS = 1_000_000
SHORT = Plan(wait=2, warmup=1, active=2, after=3, prologue=False)


class Clock:
    """Stands still until it is moved."""

    now_ns = 1000

    def perf_counter_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(requests, "time", SimpleNamespace(perf_counter_ns=made.perf_counter_ns))
    return made


def play(directory: Path, clock: Clock, steps: int, plan: Plan = SHORT, *, is_asked: bool = True) -> StackRequests:
    """That many whole steps of a millisecond, and the beginning of the next."""
    schedule = Schedule(plan)
    made = StackRequests(directory, is_asked, schedule, lambda: False)
    for step in range(steps + 1):
        made.enter()
        if step < steps:
            schedule.begin(clock.now_ns)
            clock.now_ns += MS
            schedule.advance(clock.now_ns)
    return made


def test_nothing_is_asked_before_the_measured_steps(tmp_path, clock):
    play(tmp_path, clock, 2)
    assert not (tmp_path / REQUEST_FILE).exists()


def test_it_is_asked_when_the_measured_steps_begin_and_told_when_the_plain_ones_do(tmp_path, clock):
    play(tmp_path, clock, 4)
    begun_ns = 1000 + 3 * MS
    assert read_request(tmp_path) == StackRequest(os.getpid(), threading.get_ident(), begun_ns)
    (tmp_path / REQUEST_FILE).unlink()
    clock.now_ns = 1000
    play(tmp_path, clock, 6)
    found = read_request(tmp_path)
    assert found is not None
    assert (found.begun_ns, found.plain_ns, found.is_over) == (begun_ns, begun_ns + 2 * MS, False)


def test_the_end_names_the_whole_plain_steps(tmp_path, clock):
    play(tmp_path, clock, 7).end()
    found = read_request(tmp_path)
    assert found is not None
    assert (found.is_over, found.were_recorded, found.steps) == (True, False, 2)
    assert (found.from_ns, found.to_ns) == (1000 + 5 * MS, 1000 + 7 * MS)


def test_without_plain_steps_the_measured_ones_count(tmp_path, clock):
    play(tmp_path, clock, 5).end()
    found = read_request(tmp_path)
    assert found is not None
    assert (found.is_over, found.were_recorded, found.steps) == (True, True, 2)
    assert (found.from_ns, found.to_ns) == (1000 + 3 * MS, 1000 + 5 * MS)


@pytest.mark.parametrize(("waited_ns", "is_over"), [(5000 * MS, True), (5000 * MS - 1, False)])
def test_five_seconds_of_whole_steps_are_enough(tmp_path, clock, waited_ns, is_over):
    made = play(tmp_path, clock, 6)
    clock.now_ns = 1000 + 5 * MS + waited_ns
    made.look()
    found = read_request(tmp_path)
    assert found is not None
    assert found.is_over is is_over


def test_a_first_step_that_lasts_is_waited_for(tmp_path, clock):
    made = play(tmp_path, clock, 5)
    clock.now_ns += 60_000 * MS
    made.look()
    found = read_request(tmp_path)
    assert found is not None
    assert not found.is_over


def test_nobody_is_asked_who_does_not_listen(tmp_path, clock):
    play(tmp_path, clock, 8, is_asked=False).end()
    assert list(tmp_path.iterdir()) == []


def test_a_fork_ends_nothing(tmp_path, clock, monkeypatch):
    made = play(tmp_path, clock, 7)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    made.end()
    found = read_request(tmp_path)
    assert found is not None
    assert not found.is_over


def test_a_directory_that_is_gone_is_no_error(tmp_path, clock):
    play(tmp_path / "gone", clock, 7).end()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"process": "x"}'])
def test_a_damaged_request_is_none(tmp_path, content):
    (tmp_path / REQUEST_FILE).write_bytes(content)
    assert read_request(tmp_path) is None


def test_windows_are_not_sampled_and_replacements_are():
    plan = replace(SHORT, samples_stacks=True)
    assert not plan.for_window(2, "optimizer").samples_stacks
    assert plan.for_better("optimizer").samples_stacks
    assert Schedule(plan).phase is Phase.REFERENCE
