"""Cycles: one in so many optimizer steps takes much longer, so profkit records whole cycles in the place of steps."""

from __future__ import annotations

import random
import signal
import statistics
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD

from profkit.collect.boundaries import cycles
from profkit.collect.boundaries.cycles import Cycle, find_period
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_live, load_run
from profkit.run.plan import Plan
from tests.collect.reading import Event, read_events, steps_of

MS = 10**6


@pytest.fixture(autouse=True)
def _no_step_is_timed_on() -> None:
    """Here steps are timed on after the recording, to find cycles."""


def steps(every: int, long_ms: float, count: int, usual_ms: float = 5) -> list[int]:
    """``count`` cycles of ``every`` steps, the last of which is long."""
    cycle = [usual_ms] * (every - 1) + [long_ms]
    return [round(took * MS) for took in cycle * count]


@pytest.mark.parametrize(
    ("took_ns", "every"),
    [
        (steps(20, 100, 4), 20),
        (steps(20, 100, 3), None),  # two equal distances occur by chance one time in twenty
        (steps(20, 40, 4), 20),
        (steps(40, 14, 5), None),  # three times the median, and 4 % of all
        (steps(4, 100, 5), None),  # a recording of four steps holds one
        (steps(20, 100, 3) + steps(20, 130, 1), 20),  # one long step is a little longer
        (steps(20, 100, 3) + steps(21, 100, 1), None),  # irregular
        (steps(26, 100, 1) + steps(20, 100, 4) + steps(26, 100, 1) + steps(20, 100, 4), None),
        (steps(20, 100, 1) + steps(20, 300, 3), None),  # the first long step is unlike the others
        ([*steps(20, 100, 4), 5 * MS], None),  # a cycle is only known at the end of a long step
        (steps(7, 60, 1) + steps(13, 300, 1) + steps(20, 320, 3), 20),  # another kind of hiccup first
        (steps(1, 5, 40), None),
        ([5 * MS], None),
    ],
)
def test_the_period_is_the_constant_distance_between_long_steps(took_ns, every):
    assert find_period(took_ns, longer_than=4) == every


@given(st.lists(st.integers(1 * MS, 2 * MS), min_size=1, max_size=80))
def test_steps_that_vary_by_a_factor_of_two_have_no_period(took_ns):
    assert find_period(took_ns, longer_than=4) is None


@given(
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=40, max_size=80),
    long=st.lists(st.tuples(st.integers(0, 79), st.integers(15 * MS, 4000 * MS)), max_size=3),
)
def test_three_long_steps_have_no_period_wherever_they_are(usual, long):
    for where, took in long:
        usual[where % len(usual)] = took
    assert find_period(usual, longer_than=4) is None


@given(
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=60, max_size=60),
    gaps=st.lists(st.integers(5, 12), min_size=4, max_size=5).filter(lambda gaps: len(set(gaps[1:])) > 1),
)
def test_long_steps_at_different_distances_have_no_period(usual, gaps):
    for where in accumulate(gaps):
        usual[where - 1] = 200 * MS
    assert find_period(usual[: sum(gaps)], longer_than=4) is None


def noisy_steps(seed: int, share: float, count: int = 200) -> list[int]:
    """Steps of 5 ms; a random share is 3 to 40 times as long: evaluations, garbage collections, other programs."""
    chance = random.Random(seed)
    return [
        round(5 * MS * chance.uniform(0.9, 1.3) * (chance.uniform(3, 40) if chance.random() < share else 1))
        for _ in range(count)
    ]


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2, 0.3])
def test_noise_looks_like_a_cycle_in_at_most_one_of_a_hundred_programs(share):
    """At whichever long step the search is made."""
    found = 0
    for seed in range(100):
        took_ns = noisy_steps(seed, share)
        ends = [i + 1 for i, took in enumerate(took_ns) if i > 8 and took > 15 * MS]
        found += any(find_period(took_ns[:end], longer_than=4) for end in ends)
    assert found <= 1


@given(
    every=st.integers(5, 60),
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=240, max_size=240),
    long=st.lists(st.integers(100 * MS, 130 * MS), min_size=4, max_size=4),
)
def test_the_period_is_found_whatever_the_other_steps_take(every, usual, long):
    took_ns = usual[: 4 * every]
    took_ns[every - 1 :: every] = long
    if sum(long[1:]) > 0.3 * sum(took_ns[every:]):
        assert find_period(took_ns, longer_than=4) == every


def test_the_reference_is_the_time_of_whole_cycles():
    took_ns = [3, *steps(5, 100, 2)]
    faults = list(range(len(took_ns)))
    assert cycles._cycle_of(5, took_ns, faults) == Cycle(
        5, (120 * MS, 120 * MS), (1 + 2 + 3 + 4 + 5, 6 + 7 + 8 + 9 + 10)
    )


class Clock:
    """Moves only when a program advances it, whatever the machine does."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for reader in ("recorder.recorder", "sessions.device_moments", "boundaries.choice"):
        monkeypatch.setattr(f"profkit.collect.{reader}.time", clock)
    return clock


class Learner:
    """Trains in steps of 5 ms, and evaluates for 200 ms with one sine after every tenth."""

    def __init__(self, clock: Clock, step_ms: float = 5, look_ms: float = 200) -> None:
        self.model = nn.Linear(8, 2)
        self.optimizer = SGD(self.model.parameters(), lr=0.1)
        self._clock, self.step_ns, self._look_ns = clock, round(step_ms * MS), round(look_ms * MS)

    def learn(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 8)).sum().backward()
        self._clock.now_ns += self.step_ns
        self.optimizer.step()

    def run(self, rounds: int, step_ms: float | None = None) -> None:
        if step_ms is not None:
            self.step_ns = round(step_ms * MS)
        for _ in range(rounds):
            for _ in range(10):
                self.learn()
            torch.ones(1).sin()
            self._clock.now_ns += self._look_ns


def count(events: list[Event], name: str) -> int:
    return sum(event.get("name") == name for event in events)


def test_whole_cycles_take_the_place_of_single_steps(tmp_path, clock):
    with profile(tmp_path):
        Learner(clock).run(12)
    run = load_run(tmp_path)
    assert (run.step_signal, run.signals_per_step, run.window) == ("optimizer", 10, 2)
    assert any(note.startswith("one in 10 optimizer steps takes much longer") for note in run.notes)
    assert [path.name for path in tmp_path.glob("*.pt.trace.json.gz")] == [run.trace]
    assert set(run.reference_step_ns) == {250 * MS}
    events = read_events(tmp_path)
    assert len(steps_of(events)) == 4
    assert count(events, "aten::sin") == 4
    assert count(events, "aten::linear") == 40
    assert [sample.step for sample in load_live(tmp_path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("rounds", range(2, 10))
def test_single_steps_stay_if_the_program_ends_before_all_cycles_are_measured(tmp_path, clock, rounds):
    with profile(tmp_path) as recording:
        Learner(clock).run(rounds)
    run = load_run(tmp_path)
    assert run.signals_per_step == (10 if rounds == 9 else 1)
    assert len(steps_of(read_events(tmp_path))) == (4 if rounds == 9 else 5)
    assert recording.directories == (tmp_path,)


@pytest.mark.parametrize("options", [{"steps_from": "optimizer"}, {"at_step": 3}, {"limit_s": 0.99}])
def test_no_cycle_is_recorded_if_the_user_chose_steps_or_it_is_too_long(tmp_path, clock, options):
    with profile(tmp_path, **options):
        Learner(clock).run(12)
    assert load_run(tmp_path).signals_per_step == 1


def test_announced_steps_are_never_grouped_into_cycles(tmp_path, clock):
    learner = Learner(clock)
    with profile(tmp_path) as recording:
        for number in range(120):
            learner.learn()
            clock.now_ns += 200 * MS * (number % 10 == 9)
            recording.step()
    assert load_run(tmp_path).signals_per_step == 1


def test_no_cycle_with_too_many_events_is_recorded(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("profkit.collect.sessions.allowance.MAX_EVENTS", 100)
    with profile(tmp_path):
        Learner(clock).run(12)
    assert load_run(tmp_path).signals_per_step == 1


@pytest.mark.parametrize(("step_ms", "is_over"), [(0.29, True), (0.31, False)])
def test_only_steps_too_long_to_notice_the_cost_are_timed_on(tmp_path, clock, step_ms, is_over):
    """The hook costs three microseconds."""
    with profile(tmp_path) as recording:
        Learner(clock, step_ms, look_ms=0).run(20)
        assert recording.is_over == is_over
    run = load_run(tmp_path)
    assert len(run.reference_step_ns) == 33, "steps after the recording are no reference"
    assert bool(run.later_step_ns) != is_over


def test_timing_ends_after_forty_seconds(tmp_path, clock):
    with profile(tmp_path) as recording:
        learner = Learner(clock, step_ms=500, look_ms=0)
        learner.run(8)
        assert not recording.is_over
        learner.run(1)
        assert recording.is_over


def test_timing_ends_if_another_window_is_requested(tmp_path, clock):
    with profile(tmp_path / "first") as recording:
        learner = Learner(clock, look_ms=0)
        learner.run(6)
        assert not recording.is_over
        signal.raise_signal(signal.SIGUSR1)
        learner.run(2)
        assert [path.name for path in recording.directories] == ["first", "first-window2"]


@pytest.mark.parametrize(("before", "after"), [(1, 6), (20, 12)], ids=["soon", "late"])
def test_steps_that_become_longer_are_recorded_anew(tmp_path, clock, before, after):
    """For example those of a server that learns from clients, once these have learned, or the games of a player."""
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(before)
        learner.run(after, step_ms=12)
    run = load_run(tmp_path)
    assert (run.signals_per_step, run.window) == (1, 2)
    assert "the steps after the recorded ones take much longer: profkit recorded those instead" in run.notes
    assert statistics.median(run.reference_step_ns) == 12 * MS
    assert len(steps_of(read_events(tmp_path))) == 5


def test_steps_that_keep_growing_are_recorded_anew_twice(tmp_path, clock):
    with profile(tmp_path) as recording:
        learner = Learner(clock, look_ms=0)
        for step_ms in (5, 11, 30, 100):
            learner.run(12, step_ms)
    run = load_run(tmp_path)
    assert recording.directories == (tmp_path,)
    assert max(run.reference_step_ns) == 30 * MS
    assert run.later_step_ns[-1] == 100 * MS


def test_the_recording_stays_if_the_program_ends_before_longer_steps_are_measured(tmp_path, clock):
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(4)
        learner.run(3, step_ms=12)
        assert load_run(tmp_path).window == 1
    assert len(steps_of(read_events(tmp_path))) == 5


@pytest.mark.parametrize("later_ms", [3, 9.9])
def test_steps_up_to_twice_as_long_are_not_recorded_anew(tmp_path, clock, later_ms):
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(1)
        learner.run(6, step_ms=later_ms)
    assert load_run(tmp_path).window == 1


def test_a_cycle_begins_after_a_long_step():
    """So each cycle holds one long step, at its end, and none is cut in two."""
    plan = Cycle(10, (250 * MS,), (7,)).plan(Plan(at_step=0))
    assert (plan.wait, plan.warmup, plan.active, plan.every, plan.window) == (0, 1, cycles.MEASURED, 10, 2)
    assert (plan.known_step_ns, plan.known_step_faults, plan.finds_cycles) == ((250 * MS,), (7,), False)
