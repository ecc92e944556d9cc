"""Cycles: one in so many optimizer steps takes much longer, so profkit records whole cycles in the place of steps."""

from __future__ import annotations

import itertools
import math
import random
import signal
import statistics
import time
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD

from profkit.collect.boundaries import cycles
from profkit.collect.boundaries.cycles import Cycle, Extent, find_distance, find_period
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_live, load_run
from profkit.run.plan import Plan
from tests.collect.conftest import Clock
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
        (steps(40, 14, 5), None),  # three times the usual step, and 4 % of all
        (steps(4, 100, 5), 4),
        (steps(4, 100, 4), None),  # the shorter the distance, the more often it occurs by chance
        (steps(3, 20, 6), 3),
        (steps(3, 20, 5), None),
        (steps(2, 10, 8), 2),
        (steps(2, 10, 7), None),
        (steps(2, 7, 12), None),  # less than half as long again
        (steps(20, 100, 2) + steps(12, 100, 1) + steps(8, 100, 1) + steps(20, 100, 8), 20),  # one accident among many
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
    assert find_period(took_ns) == every


@given(st.lists(st.integers(10 * MS, 14 * MS), min_size=1, max_size=80))
def test_steps_that_vary_by_less_than_half_have_no_period(took_ns):
    assert find_period(took_ns) is None


@given(
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=40, max_size=80),
    long=st.lists(st.tuples(st.integers(0, 79), st.integers(15 * MS, 4000 * MS)), max_size=3),
)
def test_three_long_steps_have_no_period_wherever_they_are(usual, long):
    for where, took in long:
        usual[where % len(usual)] = took
    assert find_period(usual) is None


@given(
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=60, max_size=60),
    gaps=st.lists(st.integers(5, 12), min_size=4, max_size=5).filter(lambda gaps: len(set(gaps[1:])) > 1),
)
def test_long_steps_at_different_distances_have_no_period(usual, gaps):
    for where in accumulate(gaps):
        usual[where - 1] = 200 * MS
    assert find_period(usual[: sum(gaps)]) is None


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
        ends = [i + 1 for i, took in enumerate(took_ns) if i > 8 and took > 10 * MS]
        found += any(find_period(took_ns[:end]) for end in ends)
    assert found <= 1


@pytest.mark.parametrize(
    ("gaps", "long_ms", "several"),
    [
        ([3, 5, 4, 6, 3, 4, 5, 6, 4], 100, 6),  # a buffer that games of any length fill
        ([3, 5, 4, 6, 3, 4, 5], 100, None),  # too few
        ([3, 5, 4, 6, 3, 4, 5, 6, 4], 20, None),  # less than half of the time
        ([2, 2, 2, 2, 2, 2, 2, 2, 2, 40], 400, 19),  # one long pause
    ],
)
def test_long_steps_at_unequal_distances_are_recorded_several_steps_at_once(gaps, long_ms, several):
    assert find_distance([took for gap in gaps for took in steps(gap, long_ms, 1)]) == several


def test_the_last_step_must_be_long_so_that_a_recording_begins_with_the_others():
    assert find_distance([*steps(3, 100, 9), 5 * MS]) is None


@given(
    every=st.integers(2, 60),
    usual=st.lists(st.integers(3 * MS, 5 * MS), min_size=240, max_size=240),
    long=st.lists(st.integers(100 * MS, 130 * MS), min_size=8, max_size=8),
)
def test_the_period_is_found_whatever_the_other_steps_take(every, usual, long):
    count = {2: 8, 3: 6, 4: 5}.get(every, 4)
    took_ns = usual[: count * every]
    took_ns[every - 1 :: every] = long[:count]
    if sum(long[1:count]) > 0.3 * sum(took_ns[every:]):
        assert find_period(took_ns) == every


def test_the_reference_is_the_time_of_whole_cycles():
    took_ns = [3, *steps(5, 100, 2)]
    faults = list(range(len(took_ns)))
    assert cycles._cycle_of(5, took_ns, faults) == Cycle(
        5, (120 * MS, 120 * MS), (1 + 2 + 3 + 4 + 5, 6 + 7 + 8 + 9 + 10)
    )


def test_the_reference_of_a_long_step_is_the_time_of_the_last_step_of_each_cycle():
    took_ns = [3, *steps(5, 100, 2)]
    cycle = cycles._cycle_of(5, took_ns, list(range(len(took_ns))), Extent.LONG_STEP)
    assert cycle == Cycle(5, (100 * MS, 100 * MS), (5, 10), Extent.LONG_STEP, 100 / 120)
    assert cycle.note == "one in 5 optimizer steps takes much longer, 83 % of the time: profkit recorded that one alone"


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
    looked_at = [sample.step for sample in load_live(tmp_path)]
    assert len(looked_at) >= 4
    assert looked_at[-4:] == [*range(looked_at[-1] - 3, looked_at[-1] + 1)]  # growth shows in consecutive steps


@pytest.mark.parametrize("rounds", range(2, 10))
def test_single_steps_stay_if_the_program_ends_before_a_cycle_is_measured(tmp_path, clock, rounds):
    with profile(tmp_path) as recording:
        Learner(clock).run(rounds)
    run = load_run(tmp_path)
    cycles_recorded = max(0, rounds - 5)
    assert run.signals_per_step == (10 if cycles_recorded > 1 else 1)
    assert len(steps_of(read_events(tmp_path))) == (cycles_recorded if cycles_recorded > 1 else 5)
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
    run = load_run(tmp_path)
    assert (run.signals_per_step, run.one_in) == (1, 1)


def test_of_a_cycle_with_too_many_events_the_long_step_is_recorded(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("profkit.collect.boundaries.cycles.MANY_EVENTS", 10)
    monkeypatch.setattr(cycles.CycleWatch, "_events_in", lambda *_: 10**6)
    with profile(tmp_path):
        Learner(clock).run(12)
    run = load_run(tmp_path)
    assert (run.signals_per_step, run.one_in, run.share_of_time) == (1, 10, 205 / 250)
    assert set(run.reference_step_ns) == {205 * MS}
    assert run.later_step_ns == ()
    events = read_events(tmp_path)
    assert len(steps_of(events)) == 2
    assert (count(events, "aten::sin"), count(events, "aten::linear")) == (2, 2)


def test_the_long_step_must_take_most_of_the_time_to_be_recorded_alone(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("profkit.collect.boundaries.cycles.MANY_EVENTS", 10)
    monkeypatch.setattr(cycles.CycleWatch, "_events_in", lambda *_: 10**6)
    with profile(tmp_path):
        Learner(clock, look_ms=35).run(12)
    assert load_run(tmp_path).one_in == 1


def test_four_updates_after_a_rollout_are_one_step(tmp_path, clock):
    learner = Learner(clock)
    with profile(tmp_path):
        for _ in range(20):
            torch.ones(1).sin()
            clock.now_ns += 100 * MS
            for _ in range(4):
                learner.learn()
    run = load_run(tmp_path)
    assert run.signals_per_step == 4
    assert set(run.reference_step_ns) == {120 * MS}
    events = read_events(tmp_path)
    assert (len(steps_of(events)), count(events, "aten::sin")) == (4, 4)


@pytest.mark.parametrize(("long", "recorded"), [(5, 5), (6, 2), (7, 3)], ids=["unrecorded", "first", "second"])
def test_a_measured_step_that_would_take_what_cycles_need_is_left_out(tmp_path, monkeypatch, long, recorded):
    """Steps 3 and 6 to 9 are recorded."""
    is_measured = property(lambda self: math.inf if self._recordings.located is None else 0.05)
    monkeypatch.setattr("profkit.collect.recorder.phase_recordings.PhaseRecordings._most_s", is_measured)
    model = nn.Linear(8, 2)
    optimizer = SGD(model.parameters(), lr=0.1)
    with profile(tmp_path) as recording:
        for number in range(20):
            until = time.process_time() + 0.4 * (number == long)
            while time.process_time() < until:
                torch.ones(1).sin()
            model(torch.ones(1, 8)).sum().backward()
            optimizer.step()
        assert not recording.is_over
    assert len(steps_of(read_events(tmp_path))) >= recorded
    run = load_run(tmp_path)
    assert run.reference_step_ns
    assert not run.is_part


def test_every_second_step_may_be_long(tmp_path, clock):
    learner = Learner(clock)
    with profile(tmp_path):
        for number in range(60):
            learner.learn()
            clock.now_ns += 10 * MS * (number % 2)
    assert load_run(tmp_path).signals_per_step == 2


def test_updates_of_varying_number_between_games_are_recorded_several_at_once(tmp_path, clock):
    learner = Learner(clock)
    with profile(tmp_path):
        for updates in (3, 5, 4, 6) * 8:
            torch.ones(1).sin()
            clock.now_ns += 100 * MS
            for _ in range(updates):
                learner.learn()
    run = load_run(tmp_path)
    assert run.signals_per_step == 6
    assert any(note.startswith("some optimizer steps take much longer") for note in run.notes)


@pytest.mark.parametrize(
    ("cycle_ms", "extent", "after"),
    [
        (10, Extent.WHOLE, 300),  # no more than so many
        (250, Extent.WHOLE, 20),  # five seconds of them
        (9000, Extent.IRREGULAR, 1),
        (250, Extent.LONG_STEP, 0),  # the steps between are others
    ],
)
def test_cycles_are_timed_behind_the_recorded_ones_for_as_long_as_stacks_are_sampled(cycle_ms, extent, after):
    plan = Cycle(10, (cycle_ms * MS,) * 3, (7,) * 3, extent).plan(Plan())
    assert plan.after == after


def test_steps_that_changed_keep_what_follows_them():
    assert Cycle(1, (250 * MS,), (7,)).plan(Plan(after=4)).after == 4


def test_a_search_for_cycles_may_wait_for_a_cpu(tmp_path, clock, monkeypatch):
    """It is paid by the CPU time that it takes, or a busy machine would soon end all searches."""
    a_second_later = itertools.count(0, 10**9).__next__
    waits = SimpleNamespace(perf_counter_ns=a_second_later, time_ns=a_second_later, thread_time_ns=lambda: 0)
    monkeypatch.setattr(cycles, "time", waits)
    with profile(tmp_path):
        Learner(clock).run(12)
    assert load_run(tmp_path).signals_per_step == 10


def test_the_wait_for_a_cpu_is_no_part_of_a_step(monkeypatch):
    crowded_ns = iter([0, 0, 30, 30, 90])  # the first two when it begins
    monkeypatch.setattr(cycles, "count_crowded_ns_of_all", lambda: 0)
    monkeypatch.setattr(cycles, "count_crowded_ns", lambda: next(crowded_ns))
    waits = cycles._Waits()
    for step, took_ns in ((0, 10), (2, 50), (3, 10), (7, 40)):
        waits.note(step, took_ns)
    assert waits.left_out_of([10, 11, 50, 10, 5, 5, 5, 40]) == [10, 11, 20, 10, 5, 5, 5, 0]


def test_long_steps_while_other_programs_have_the_cpus_are_no_games(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(cycles, "count_crowded_ns_of_all", lambda: clock.now_ns // 2)
    learner = Learner(clock)
    with profile(tmp_path):
        for updates in (3, 5, 4, 6) * 8:
            clock.now_ns += 100 * MS
            for _ in range(updates):
                learner.learn()
    assert load_run(tmp_path).signals_per_step == 1


@pytest.mark.parametrize(("step_ms", "is_over"), [(0.29, True), (0.31, False)])
def test_only_steps_too_long_to_notice_the_cost_are_timed_on(tmp_path, clock, monkeypatch, step_ms, is_over):
    """The hook costs three microseconds, which so few steps do not show."""
    monkeypatch.setattr(cycles, "_FEW_STEPS", 30)
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


@pytest.mark.parametrize("who", ["count_crowded_ns", "count_crowded_ns_of_all"], ids=["this thread", "any thread"])
def test_steps_that_others_on_the_machine_make_longer_are_not_recorded_anew(tmp_path, clock, monkeypatch, who):
    """Each of them waits for a CPU for 7 of its 12 ms."""
    with profile(tmp_path):
        learner = Learner(clock, look_ms=0)
        learner.run(1)
        begun_ns = clock.now_ns
        monkeypatch.setattr(cycles, who, lambda: (clock.now_ns - begun_ns) * 7 // 12)
        learner.run(6, step_ms=12)
    assert load_run(tmp_path).window == 1


def test_a_cycle_begins_after_a_long_step():
    """So each cycle holds one long step, at its end, and none is cut in two."""
    plan = Cycle(10, (250 * MS,), (7,)).plan(Plan(at_step=0))
    assert (plan.wait, plan.warmup, plan.active, plan.every, plan.window) == (0, 1, cycles.MEASURED, 10, 2)
    assert (plan.known_step_ns, plan.known_step_faults, plan.finds_cycles) == ((250 * MS,), (7,), False)
