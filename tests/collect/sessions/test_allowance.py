"""How much may still be recorded, given what recording cost so far and how long the program has run."""

from __future__ import annotations

import time

import pytest

from profkit.collect.sessions.allowance import Allowance

LEFT_S = 2.4
"""Of five seconds, without the fixed cost and what the watch of calls may take."""


class Watch:
    """Two clocks: the CPU time of the program's process, and that of profkit's thread."""

    def __init__(self) -> None:
        self.now = self.computed = 0.0
        self.allowance = Allowance(lambda: self.now, lambda: self.computed)

    def record(self, events: int, took_s: float) -> None:
        with self.allowance.spending():
            self.allowance.count(events)
            self.computed += took_s


def test_at_first_events_may_take_the_rest_of_five_seconds():
    assert Watch().allowance.events_left == int(LEFT_S / 26e-6)


def test_each_recording_leaves_less_for_the_next():
    watch = Watch()
    watch.record(50_000, took_s=0.85)  # 17 µs per event, and 9 µs for the rest
    assert watch.allowance.events_left == pytest.approx(LEFT_S / 26e-6 - 50_000, abs=1)


def test_of_the_opening_and_the_steps_only_one_is_judged():
    """Each part of the opening took 17 µs an event to stop. Judging the present one is paid for by not judging as many
    events of steps."""
    watch = Watch()
    for is_kept in (True, False):
        watch.record(20_000, took_s=0.34)
        watch.allowance.count_as_opening(20_000, is_kept)
    left_s = LEFT_S - 0.68
    assert watch.allowance.events_left == pytest.approx(left_s / 26e-6, abs=1)
    watch.record(60_000, took_s=1.02)
    assert watch.allowance.events_left == pytest.approx((left_s - 60_000 * 26e-6) / 26e-6, abs=1)


def test_an_opening_that_holds_more_than_the_steps_could_has_to_be_judged():
    watch = Watch()
    watch.record(90_000, took_s=1.53)
    watch.allowance.count_as_opening(90_000, is_kept=True)
    assert watch.allowance.events_left == pytest.approx((LEFT_S - 1.53 - 0.81) / 17e-6, abs=1)


def test_costlier_events_leave_fewer():
    cheap, dear = Watch(), Watch()
    cheap.record(10_000, took_s=0.07)
    dear.record(10_000, took_s=0.42)
    assert cheap.allowance.events_left == pytest.approx((LEFT_S - 0.16) / 16e-6, abs=1)
    assert dear.allowance.events_left == pytest.approx((LEFT_S - 0.51) / 51e-6, abs=1)


def test_a_small_recording_does_not_change_the_price_of_an_event():
    watch = Watch()
    watch.record(10, took_s=0.1)
    assert watch.allowance.events_left == pytest.approx((LEFT_S - 0.1) / 26e-6, abs=10)


def test_after_a_minute_a_tenth_of_the_time_is_the_larger_allowance():
    watch = Watch()
    watch.now = 50.0
    before = watch.allowance.events_left
    watch.now = 60.0
    assert (before, watch.allowance.events_left) == (int(LEFT_S / 26e-6), int((LEFT_S + 1) / 26e-6))


def test_the_events_left_are_never_negative():
    watch = Watch()
    watch.record(1_000_000, took_s=20.0)
    assert watch.allowance.events_left == 0


def test_nested_work_is_charged_once():
    watch = Watch()
    with watch.allowance.spending():
        watch.record(50_000, took_s=0.85)
    assert watch.allowance.events_left == pytest.approx(LEFT_S / 26e-6 - 50_000, abs=1)


def test_the_pace_is_that_of_the_densest_step_of_sufficient_size():
    allowance = Watch().allowance
    for events, took_s, computed_s in ((10_000, 1, 1), (40_000, 2, 4), (4_000, 0.01, 0.01), (10_000, 0, 0)):
        allowance.note_pace(events, took_s, computed_s)
    assert (allowance.events_per_s, allowance.events_per_busy_s) == (20_000, 20_000)


def test_the_pace_is_higher_while_the_program_has_a_cpu():
    allowance = Watch().allowance
    allowance.note_pace(10_000, took_s=4.0, computed_s=1.0)
    assert (allowance.events_per_s, allowance.events_per_busy_s) == (2_500, 10_000)


@pytest.mark.parametrize(("grown_bytes", "event_bytes"), [(300_000, 150), (3_000_000, 300), (90_000_000, 460)])
def test_the_size_of_an_event_follows_the_last_recording_within_limits(grown_bytes, event_bytes):
    """The growth may include the program's tensors, and freed memory may hide it."""
    allowance = Watch().allowance
    assert allowance.event_bytes == 460
    allowance.note_size(4_999, 4_999 * 200)
    assert allowance.event_bytes == 460
    allowance.note_size(10_000, grown_bytes)
    assert allowance.event_bytes == event_bytes


def test_events_are_limited_however_long_the_program_runs():
    watch = Watch()
    watch.now = 1e6
    assert watch.allowance.events_left == 300_000


def test_a_rank_is_limited_by_the_number_of_events_only():
    """So a rank on which events cost less records the same steps."""
    allowance = Allowance(lambda: 0.0, lambda: 0.0, is_rank=True)
    allowance.note_pace(100_000, 1.0, 1.0)
    assert (allowance.events_left, allowance.steps_left(80_000)) == (300_000, 3)
    allowance.count(250_000)
    assert (allowance.events_left, allowance.affords((1e9,), a_part_will_do=False)) == (50_000, False)
    allowance.count(100_000)
    assert allowance.events_left == 0


@pytest.mark.parametrize(("events", "steps"), [(1_000, 92), (200_000, 0), (0, 92_307)])
def test_as_many_steps_may_be_recorded_as_fit_into_the_events_left(events, steps):
    assert Watch().allowance.steps_left(events) == steps


def test_a_few_small_steps_are_recorded_whatever_was_spent_before():
    """An import of 3.6 s between the located step and the measured ones left no room for any (H200)."""
    watch = Watch()
    watch.record(300, took_s=3.6)
    assert watch.allowance.events_left == 0
    assert [watch.allowance.steps_left(events) for events in (300, 5_000, 5_001)] == [16, 1, 0]


@pytest.mark.parametrize(
    ("spent", "step_ns", "of_one", "of_a_part"),
    [
        (0, (1e9,), True, True),  # 80,000 events of 92,307
        (0, (2e9,), False, True),
        (0, (1e8, 1e9, 2e9), True, True),  # the median
        (0, (), False, True),  # no step is known
        (84_000, (1e9,), False, False),  # 8,307 are too few for a part
        (1_000_000, (5e7,), True, True),  # 5,000 are always few enough
        (1_000_000, (7e7,), False, False),
    ],
)
def test_a_large_step_is_affordable_if_it_or_enough_of_it_fits(spent, step_ns, of_one, of_a_part):
    watch = Watch()
    watch.allowance.note_pace(80_000, took_s=1.0, computed_s=1.0)
    watch.record(spent, took_s=17e-6 * spent)
    affords = watch.allowance.affords
    assert (affords(step_ns, a_part_will_do=False), affords(step_ns, a_part_will_do=True)) == (of_one, of_a_part)


def test_time_on_the_wall_allows_nothing_and_costs_nothing(monkeypatch):
    """The promise is one of CPU time: a program that waits for hours must not be recorded for longer."""
    allowance = Allowance()
    before = allowance.events_left
    for clock in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, clock, lambda: 1e9)
    with allowance.spending():
        pass
    assert allowance.events_left == pytest.approx(before, rel=0.01)


def test_profkits_own_work_is_no_part_of_the_programs_time():
    watch = Watch()
    watch.now = 80.0
    watch.record(0, took_s=10.0)
    assert watch.allowance.events_left == 0  # a tenth of 70 s, less 2.6 s and those 10
    watch.now = 180.0
    assert watch.allowance.events_left == int((17.0 - 2.6 - 10.0) / 26e-6)


def test_the_watch_of_calls_costs_what_it_took_beyond_what_is_left_aside():
    watch = Watch()
    watch.allowance.charge(0.4)
    assert watch.allowance.events_left == int(LEFT_S / 26e-6)
    watch.allowance.charge(0.4)
    assert watch.allowance.events_left == int((LEFT_S - 0.2) / 26e-6)
