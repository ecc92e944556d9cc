"""Listening to the ends of steps, and the note of why a window was opened."""

from __future__ import annotations

import pytest
import torch
from torch.optim import optimizer
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from profkit.collect.boundaries.changes import BLOCK_STEPS, Change, ChangeKind
from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.next_boundary import NextBoundary
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.change_watch import ChangeWatch
from profkit.collect.recorder.profiler import profile
from profkit.collect.whole_run.step_times import StepTimes
from profkit.run.directory import load_run
from profkit.run.plan import Plan, Subject
from profkit.run.whole_run import StepSpan


def train(steps: int) -> None:
    model = torch.nn.Linear(4, 4)
    descent = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        descent.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        descent.step()


def test_each_step_but_the_first_has_its_time():
    times = StepTimes()
    watch = ChangeWatch(lambda *_: None, times)
    watch.install()
    train(BLOCK_STEPS)
    watch.remove()
    train(5)
    spans = times.taken(0)
    assert sum(span.steps for span in spans) == BLOCK_STEPS - 1
    assert all(0 < span.fastest_ns <= span.slowest_ns <= span.took_ns for span in spans)


@pytest.mark.parametrize(("phase", "counted"), [("reference", 2), ("after", 2), ("located", 0), ("active", 0)])
def test_steps_of_a_window_count_unless_they_are_recorded(phase, counted):
    times = StepTimes()
    watch = ChangeWatch(lambda *_: None, times)
    watch.remove()
    progress = watch.counting(lambda *_: None)
    for _ in range(3):
        progress(phase, 1, 1)
    assert sum(span.steps for span in times.taken(0)) == counted


def test_why_a_window_was_opened_is_noted_before_the_program_ends(tmp_path):
    plan = Plan(wait=2, warmup=1, active=2, steps_from="optimizer", prologue=False)
    with profile.planned(tmp_path, plan, Subject(), why="the steps changed"):
        train(12)
        assert "the steps changed: profkit recorded there" in load_run(tmp_path).notes
    (note,) = (note for note in load_run(tmp_path).notes if "the steps changed" in note)
    assert note.startswith("the steps changed: profkit recorded there, for ")


def test_behind_a_recording_the_steps_are_counted_by_the_signal_that_ended_it(tmp_path):
    times = StepTimes()
    counting = ChangeWatch(lambda *_: None, times)
    plan = Plan(wait=2, warmup=1, active=1, after=3, steps_from="optimizer", prologue=False)
    with profile.planned(tmp_path, plan, Subject(), counting=counting) as recording:
        train(6)
        assert not recording.is_over
        assert times.taken(0) == ()
        train(24)
        assert recording.is_over
    counted = sum(span.steps for span in times.taken(0))
    assert counted in (25, 26)  # three were timed, and the first is not known
    assert len(optimizer._global_optimizer_post_hooks) == 0
    train(3)
    assert sum(span.steps for span in times.taken(0)) == counted


def test_cycles_that_a_recording_timed_count_as_the_steps_that_they_hold():
    times = StepTimes()
    ChangeWatch(lambda *_: None, times).note_timed([300 * 10**6, 200 * 10**6], 10**9, 10)
    first, second = times.taken(0)
    assert (first.steps, first.until_ns, first.fastest_ns) == (10, 800 * 10**6, 30 * 10**6)
    assert (second.steps, second.until_ns, second.fastest_ns) == (10, 10**9, 20 * 10**6)


@pytest.mark.parametrize("step_ns", [10_000, 700_000, 10_000_000, 200_000_000])
def test_ends_that_wait_for_one_another_lose_no_step_and_no_time(monkeypatch, step_ns):
    now = [10**9]
    monkeypatch.setattr("profkit.collect.recorder.change_watch.time.perf_counter_ns", lambda: now[0])
    times = StepTimes()
    counting = ChangeWatch(lambda *_: None, times)
    counting.count_by("optimizer")
    step = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step
    for _ in range(1001):
        now[0] += step_ns
        step()
    counting.remove()
    spans = times.taken(0)
    together = max(1, min(100, 5_000_000 // step_ns))
    assert 1000 - together < sum(span.steps for span in spans) <= 1000
    assert {(span.fastest_ns, span.slowest_ns) for span in spans} == {(step_ns, step_ns)}
    assert sum(span.took_ns for span in spans) == step_ns * sum(span.steps for span in spans)


@pytest.mark.parametrize(("signal", "is_counted"), [("step()", True), ("forward", False), (None, False)])
def test_announced_steps_are_counted_and_calls_of_a_model_are_not(signal, is_counted):
    times = StepTimes()
    counting = ChangeWatch(lambda *_: None, times)
    counting.count_by(signal)
    for _ in range(4):
        counting.take(StepBoundary.here("step()"))
    counting.remove()
    assert sum(span.steps for span in times.taken(0)) == (3 if is_counted else 0)


def test_of_two_optimizers_the_one_whose_steps_were_recorded_goes_on(tmp_path):
    model = torch.nn.Linear(4, 4)
    often, seldom = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    times = StepTimes()
    counting = ChangeWatch(lambda *_: None, times)
    plan = Plan(wait=1, warmup=1, active=1, after=1, steps_from="optimizer", prologue=False)
    with profile.planned(tmp_path, plan, Subject(), counting=counting) as recording:
        for _ in range(8):
            seldom.step()
            for _ in range(5):
                often.step()
        assert recording.is_over
    assert 0 < sum(span.steps for span in times.taken(0)) <= 8


def test_batches_are_counted_although_an_optimizer_is_awaited():
    times, errors = StepTimes(), list[BaseException]()
    counting = ChangeWatch(lambda *_: None, times)
    counting.count_by("dataloader")
    awaited = NextBoundary(Guard(errors.append), lambda: False, lambda _: None, "optimizer")
    awaited.want()
    try:
        for _ in DataLoader(list(range(10))):
            pass
    finally:
        awaited.remove()
        counting.remove()
    assert not errors
    assert sum(span.steps for span in times.taken(0)) == 9  # ten steps end, of which the first has no time


def test_of_two_loaders_the_one_whose_batches_were_recorded_goes_on(tmp_path):
    one, other = (DataLoader([0] * 40) for _ in range(2))
    times = StepTimes()
    counting = ChangeWatch(lambda *_: None, times)
    plan = Plan(wait=1, warmup=1, active=1, after=1, steps_from="dataloader", prologue=False)
    with profile.planned(tmp_path, plan, Subject(), counting=counting) as recording:
        batches = iter(one)
        for _ in range(8):
            next(batches)
        assert recording.is_over
        known = sum(span.steps for span in times.taken(0))
        list(other)
        list(batches)
        assert sum(span.steps for span in times.taken(0)) == known + 33


def test_only_what_gives_the_signal_stays_in_the_program():
    before = set(vars(_BaseDataLoaderIter))
    counting = ChangeWatch(lambda *_: None, StepTimes())
    counting.count_by("optimizer")
    assert set(vars(_BaseDataLoaderIter)) == before
    counting.remove()
    counting.count_by("dataloader")
    assert set(vars(_BaseDataLoaderIter)) != before
    assert len(optimizer._global_optimizer_post_hooks) == 0
    counting.remove()
    assert set(vars(_BaseDataLoaderIter)) == before


def test_steps_that_were_timed_come_first():
    times = StepTimes()
    ChangeWatch(lambda *_: None, times).note_timed([60_000_000, 50_000_000], 200_000_000)
    assert times.taken(0) == (StepSpan(200_000_000, 2, 110_000_000, 50_000_000, 60_000_000),)


def test_after_a_window_the_same_optimizer_is_counted():
    """Whichever stepped first after it would make other steps of the same training."""
    model = torch.nn.Linear(4, 4)
    often, seldom = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    times = StepTimes()
    changes = []
    watch = ChangeWatch(lambda *change: changes.append(change), times)
    watch.install()
    seldom.step()
    watch._found = Change(ChangeKind.MEMORY, 2.0, 1, (), 0)
    seldom.step()
    assert len(changes) == 1
    watch.count_on()
    for _ in range(6):
        for _ in range(5):
            often.step()
        seldom.step()
    watch.remove()
    assert sum(span.steps for span in times.taken(0)) == 1 + 5  # the first after the window has no time


@pytest.mark.parametrize(
    ("begin", "said"),
    [(ChangeWatch.install, "looking for changes"), (ChangeWatch.count_on, "counting the run's steps")],
)
def test_a_failure_says_what_ends_with_it(capsys, begin, said):
    watch = ChangeWatch(lambda *_: None)
    begin(watch)
    watch._guard(lambda: 1 // 0)
    assert capsys.readouterr().err.startswith(f"profkit: no longer {said}: ZeroDivisionError")
    assert len(optimizer._global_optimizer_post_hooks) == 0
