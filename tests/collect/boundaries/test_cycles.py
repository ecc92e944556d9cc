"""Steps of the optimizer of which one in so many holds much more than the others."""

from __future__ import annotations

import random
import signal
import statistics
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD

from profkit.collect.boundaries import cycles
from profkit.collect.boundaries.cycles import Cycle, find_period
from profkit.collect.recorder.profiler import profile
from profkit.plan import Plan
from profkit.run import load_live, load_run
from tests.collect.reading import Event, read_events, steps_of

MS = 10**6


@pytest.fixture(autouse=True)
def _no_step_is_timed_on() -> None:
    """Here they are."""


def steps(every: int, long_ms: float, count: int, usual_ms: float = 5) -> list[int]:
    """So many cycles, each with a long step at its end."""
    cycle = [usual_ms] * (every - 1) + [long_ms]
    return [round(took * MS) for took in cycle * count]


@pytest.mark.parametrize(
    ("took_ns", "every"),
    [
        (steps(20, 100, 4), 20),
        (steps(20, 100, 3), None),  # two distances that are the same are a chance of one in twenty
        (steps(20, 40, 4), 20),
        (steps(40, 14, 5), None),  # three times the median, and 4 % of all
        (steps(4, 100, 5), None),  # a recording of four steps holds one
        (steps(20, 100, 3) + steps(20, 130, 1), 20),  # as long as that now and then
        (steps(20, 100, 3) + steps(21, 100, 1), None),  # not regular
        (steps(26, 100, 1) + steps(20, 100, 4) + steps(26, 100, 1) + steps(20, 100, 4), None),
        (steps(20, 100, 1) + steps(20, 300, 3), None),  # one that is not like the others
        ([*steps(20, 100, 4), 5 * MS], None),  # known at the end of a long one alone
        (steps(7, 60, 1) + steps(13, 300, 1) + steps(20, 320, 3), 20),  # a hiccup of another kind between
        (steps(1, 5, 40), None),
        ([5 * MS], None),
    ],
)
def test_the_period_is_the_one_distance_of_long_steps(took_ns: list[int], every: int | None) -> None:
    assert find_period(took_ns, longer_than=4) == every


@given(st.lists(st.integers(1 * MS, 2 * MS), min_size=1, max_size=80))
def test_steps_that_vary_by_a_factor_of_two_have_no_period(took_ns: list[int]) -> None:
    assert find_period(took_ns, longer_than=4) is None


@given(
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=40, max_size=80),
    long=st.lists(st.tuples(st.integers(0, 79), st.integers(15 * MS, 4000 * MS)), max_size=3),
)
def test_three_long_steps_have_no_period_wherever_they_come(usual: list[int], long: list[tuple[int, int]]) -> None:
    for where, took in long:
        usual[where % len(usual)] = took
    assert find_period(usual, longer_than=4) is None


@given(
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=60, max_size=60),
    gaps=st.lists(st.integers(5, 12), min_size=4, max_size=5).filter(lambda gaps: len(set(gaps[1:])) > 1),
)
def test_long_steps_at_distances_that_differ_have_no_period(usual: list[int], gaps: list[int]) -> None:
    for where in accumulate(gaps):
        usual[where - 1] = 200 * MS
    assert find_period(usual[: sum(gaps)], longer_than=4) is None


def noisy_steps(seed: int, share: float, count: int = 200) -> list[int]:
    """Steps of 5 ms of which a share, anywhere, is 3 to 40 times as long: an evaluation, garbage, other programs."""
    chance = random.Random(seed)
    return [
        round(5 * MS * chance.uniform(0.9, 1.3) * (chance.uniform(3, 40) if chance.random() < share else 1))
        for _ in range(count)
    ]


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2, 0.3])
def test_noise_gives_a_cycle_in_less_than_one_of_a_hundred_programs(share: float) -> None:
    """Whichever of their long steps was the last that was seen."""
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
def test_the_period_is_found_whatever_the_others_take(every: int, usual: list[int], long: list[int]) -> None:
    took_ns = usual[: 4 * every]
    took_ns[every - 1 :: every] = long
    if sum(long[1:]) > 0.3 * sum(took_ns[every:]):
        assert find_period(took_ns, longer_than=4) == every


def test_what_was_timed_of_whole_cycles_is_their_reference() -> None:
    took_ns = [3, *steps(5, 100, 2)]
    faults = list(range(len(took_ns)))
    assert cycles._cycle_of(5, took_ns, faults) == Cycle(
        5, (120 * MS, 120 * MS), (1 + 2 + 3 + 4 + 5, 6 + 7 + 8 + 9 + 10)
    )


class Clock:
    """Passes as the program says: what the machine does is no test's business."""

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
    """Looks at the data with a sine after every tenth step; a step of the optimizer takes 5 ms, such a look 200."""

    def __init__(self, clock: Clock, step_ms: float = 5, look_ms: float = 200) -> None:
        self.model = nn.Linear(8, 2)
        self.optimizer = SGD(self.model.parameters(), lr=0.1)
        self._clock, self.step_ns, self._look_ns = clock, round(step_ms * MS), round(look_ms * MS)

    def learn(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 8)).sum().backward()
        self._clock.now_ns += self.step_ns
        self.optimizer.step()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            for _ in range(10):
                self.learn()
            torch.ones(1).sin()
            self._clock.now_ns += self._look_ns


def count(events: list[Event], name: str) -> int:
    return sum(event.get("name") == name for event in events)


def test_whole_cycles_take_the_place_of_single_steps(tmp_path: Path, clock: Clock) -> None:
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


def test_growth_can_be_told_from_the_cycles_alone(tmp_path: Path, clock: Clock) -> None:
    with profile(tmp_path):
        Learner(clock).run(12)
    assert [sample.step for sample in load_live(tmp_path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("rounds", range(2, 10))
def test_single_steps_stand_where_the_program_ends_before_all_cycles_were_measured(
    tmp_path: Path, clock: Clock, rounds: int
) -> None:
    with profile(tmp_path) as recording:
        Learner(clock).run(rounds)
    run = load_run(tmp_path)
    assert run.signals_per_step == (10 if rounds == 9 else 1)
    assert len(steps_of(read_events(tmp_path))) == (4 if rounds == 9 else 5)
    assert recording.directories == (tmp_path,)


@pytest.mark.parametrize("options", [{"steps_from": "optimizer"}, {"at_step": 3}])
def test_what_the_user_chose_is_a_step(tmp_path: Path, clock: Clock, options: dict[str, Any]) -> None:
    with profile(tmp_path, **options):
        Learner(clock).run(12)
    assert load_run(tmp_path).signals_per_step == 1


def test_what_the_program_calls_a_step_is_one(tmp_path: Path, clock: Clock) -> None:
    learner = Learner(clock)
    with profile(tmp_path) as recording:
        for number in range(120):
            learner.learn()
            clock.now_ns += 200 * MS * (number % 10 == 9)
            recording.step()
    assert load_run(tmp_path).signals_per_step == 1


def test_a_cycle_too_long_to_be_recorded_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    with profile(tmp_path, limit_s=0.99):
        Learner(clock).run(12)
    assert load_run(tmp_path).signals_per_step == 1


def test_a_cycle_of_too_many_events_is_left_alone(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profkit.collect.sessions.allowance.MAX_EVENTS", 100)
    with profile(tmp_path):
        Learner(clock).run(12)
    assert load_run(tmp_path).signals_per_step == 1


@pytest.mark.parametrize(("step_ms", "is_over"), [(0.29, True), (0.31, False)])
def test_steps_are_timed_for_longer_where_they_are_long_enough_not_to_feel_it(
    tmp_path: Path, clock: Clock, step_ms: float, is_over: bool
) -> None:
    """What the hook costs is three microseconds."""
    with profile(tmp_path) as recording:
        Learner(clock, step_ms, look_ms=0).run(20)
        assert recording.is_over == is_over
    run = load_run(tmp_path)
    assert len(run.reference_step_ns) == 33, "what becomes slower later is no reference"
    assert bool(run.later_step_ns) != is_over


def test_after_forty_seconds_nothing_is_timed_any_more(tmp_path: Path, clock: Clock) -> None:
    with profile(tmp_path) as recording:
        learner = Learner(clock, step_ms=500, look_ms=0)
        learner.run(8)
        assert not recording.is_over
        learner.run(1)
        assert recording.is_over


def test_where_another_window_is_asked_for_nothing_is_timed_for_longer(tmp_path: Path, clock: Clock) -> None:
    with profile(tmp_path / "first") as recording:
        learner = Learner(clock, look_ms=0)
        learner.run(6)
        assert not recording.is_over
        signal.raise_signal(signal.SIGUSR1)
        learner.run(2)
        assert [path.name for path in recording.directories] == ["first", "first-window2"]


def test_steps_that_became_others_are_recorded_anew(tmp_path: Path, clock: Clock) -> None:
    """As those of a server that learns from its clients once these have learnt."""
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(1)
        learner.step_ns = 12 * MS
        learner.run(6)
    run = load_run(tmp_path)
    assert (run.signals_per_step, run.window) == (1, 2)
    assert "the steps after the recorded ones take much longer: profkit recorded those instead" in run.notes
    assert statistics.median(run.reference_step_ns) == 12 * MS
    assert len(steps_of(read_events(tmp_path))) == 5


def test_steps_that_become_longer_late_are_recorded_anew_then(tmp_path: Path, clock: Clock) -> None:
    """As the games of a player that learns: nothing tells so in the steps soon after the recording."""
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(20)
        learner.step_ns = 12 * MS
        learner.run(12)
    run = load_run(tmp_path)
    assert run.window == 2
    assert statistics.median(run.reference_step_ns) == 12 * MS
    assert len(steps_of(read_events(tmp_path))) == 5


def test_steps_that_grow_on_are_recorded_anew_twice_and_then_stand(tmp_path: Path, clock: Clock) -> None:
    with profile(tmp_path) as recording:
        learner = Learner(clock, look_ms=0)
        for step_ms in (5, 11, 30, 100):
            learner.step_ns = step_ms * MS
            learner.run(12)
    run = load_run(tmp_path)
    assert recording.directories == (tmp_path,)
    assert max(run.reference_step_ns) == 30 * MS
    assert run.later_step_ns[-1] == 100 * MS


def test_what_was_recorded_stands_where_the_program_ends_before_longer_steps_were_measured(
    tmp_path: Path, clock: Clock
) -> None:
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(4)
        learner.step_ns = 12 * MS
        learner.run(3)
        assert load_run(tmp_path).window == 1
    assert len(steps_of(read_events(tmp_path))) == 5


@pytest.mark.parametrize("later_ms", [3, 9.9])
def test_steps_are_the_same_up_to_twice_the_time(tmp_path: Path, clock: Clock, later_ms: float) -> None:
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(1)
        learner.step_ns = round(later_ms * MS)
        learner.run(6)
    assert load_run(tmp_path).window == 1


def test_a_cycle_of_three_or_more_begins_where_a_long_step_ended() -> None:
    """So that each holds one, at its end: nothing of the program is cut in two."""
    plan = Cycle(10, (250 * MS,), (7,)).plan(Plan(at_step=0))
    assert (plan.wait, plan.warmup, plan.active, plan.every, plan.window) == (0, 1, cycles.MEASURED, 10, 2)
    assert (plan.known_step_ns, plan.known_step_faults, plan.finds_cycles) == ((250 * MS,), (7,), False)
