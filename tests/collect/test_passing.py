"""Steps that nobody records end by a quick way."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.plan import EXPLICIT, Plan
from tests.collect.listening import Listener, make_optimizer


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_steps_that_pass_by_end_by_the_quick_way_alone(listener: Listener) -> None:
    """The first tells which optimizer it is that ends steps; another's steps go neither way."""
    first, second = make_optimizer(), make_optimizer()
    with listener.on():
        first.step()
        listener.lets_pass = True
        for _ in range(3):
            first.step()
            second.step()
        listener.lets_pass = False
        first.step()
    assert (listener.passed, len(listener.ends)) == (3, 2)


def test_an_error_on_the_quick_way_is_met_again_on_the_other(listener: Listener, monkeypatch: Any) -> None:
    def fails() -> bool:
        raise ValueError("broken")

    monkeypatch.setattr(listener, "passes_by", fails)
    optimizer = make_optimizer()
    with listener.on():
        for _ in range(3):
            optimizer.step()
    assert (len(listener.ends), listener.errors) == (3, [])


def test_of_steps_that_are_skipped_nobody_is_told(listener: Listener) -> None:
    optimizer, other = make_optimizer(), make_optimizer()
    with listener.on() as signals:
        optimizer.step()
        listener.lets_pass = True
        signals.skip(2)
        for _ in range(3):
            optimizer.step()
            other.step()
        assert (listener.passed, len(listener.ends)) == (1, 1)
        signals.skip(2)
        signals.give(EXPLICIT)
        optimizer.step()
    assert len(listener.ends) == 2


def test_far_from_the_window_most_steps_are_skipped_and_all_are_counted() -> None:
    """Thirty at a time, until as many are left, each of which is told, and the one before."""
    schedule = Schedule(Plan(at_step=100, opening=False))
    schedule.begin(0)
    told, now_ns, skipped = 0, 0, [0]
    while schedule.phase is Phase.REFERENCE:
        now_ns += 10**6
        if skipped[-1]:
            skipped[-1] -= 1
            continue
        told += 1
        if not schedule.pass_by(now_ns, lambda: 0, skipped.append):
            schedule.advance(now_ns)
            schedule.begin(now_ns)
    assert (schedule.step, now_ns // 10**6) == (100, 100)
    assert told == 3 + 31
    assert schedule.reference_step_ns == [10**6] * 30
