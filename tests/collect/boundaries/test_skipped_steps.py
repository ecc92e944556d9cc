"""Steps that are not recorded end by a quick way: they are counted without a signal."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.profiler import profile
from profkit.run.plan import Plan, Subject
from tests.collect.boundaries.listening import Listener, installed, make_optimizer
from tests.collect.reading import read_events, steps_of


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_steps_that_pass_end_by_the_quick_way_only(listener):
    """The first step decides which optimizer ends steps; those of another end none."""
    first, second = make_optimizer(), make_optimizer()
    with listener.on():
        first.step()
        listener.passes = 1
        for _ in range(3):
            first.step()
            second.step()
        listener.passes = 0
        first.step()
    assert (listener.passed, len(listener.ends)) == (3, 2)


def test_an_error_on_the_quick_way_leaves_the_step_to_the_usual_way():
    def fails() -> int:
        raise ValueError("broken")

    known: list[StepBoundary] = []
    errors: list[BaseException] = []
    signals, optimizer = StepSignals(known.append, Guard(errors.append), pass_by=fails), make_optimizer()
    with installed(signals):
        for _ in range(3):
            optimizer.step()
    assert (len(known), errors) == (3, [])


def test_skipped_steps_give_no_signal(listener):
    optimizer, other = make_optimizer(), make_optimizer()
    with listener.on() as signals:
        optimizer.step()
        listener.passes = 3
        for _ in range(3):
            optimizer.step()
            other.step()
        assert (listener.passed, len(listener.ends)) == (1, 1)
        optimizer.step()
        listener.passes = 0
        signals.skip_none()
        optimizer.step()
    assert (listener.passed, len(listener.ends)) == (2, 2)


def test_far_from_the_window_most_steps_are_skipped_but_all_are_counted():
    """Thirty at a time until thirty are left; those give a signal each, as does the one before."""
    schedule = Schedule(Plan(at_step=100, prologue=False))
    schedule.begin(0)
    known, now_ns, skipped = 0, 0, 0
    while schedule.phase is Phase.REFERENCE:
        now_ns += 10**6
        if skipped:
            skipped -= 1
            continue
        known += 1
        if passed := schedule.pass_by(now_ns, lambda: 0):
            skipped = passed - 1
        else:
            schedule.advance(now_ns)
            schedule.begin(now_ns)
    assert (schedule.step, now_ns // 10**6) == (100, 100)
    assert known == 3 + 31
    assert schedule.reference_step_ns == [10**6] * 30


@pytest.mark.parametrize(("chosen", "first"), [("dataloader", 100), ("step", 99)])
def test_only_steps_of_an_optimizer_are_skipped(tmp_path, chosen, first):
    """Each call or batch ends a step, however far the recorded ones are. As `step()` is called within its batch, the
    recording is on one batch earlier."""
    is_on: list[bool] = []
    plan = Plan(at_step=100, active=1, prologue=False, steps_from=chosen)
    with profile.planned(tmp_path, plan, Subject()) as recording:
        for _ in DataLoader(TensorDataset(torch.zeros(140, 1))):
            recording.step()
            is_on.append(torch.autograd._profiler_enabled())
    assert is_on.index(True) == first
    assert sorted(steps_of(read_events(tmp_path))) == [100, 102]
