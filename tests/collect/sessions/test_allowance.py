"""What may still be recorded, told from what recording cost so far and how long the program has run."""

from __future__ import annotations

import pytest

from profkit.collect.sessions.allowance import Allowance


class Watch:
    """Two clocks: the program's, and what profkit's thread computed."""

    def __init__(self) -> None:
        self.now = self.computed = 0.0
        self.allowance = Allowance(lambda: self.now, lambda: self.computed)

    def record(self, events: int, took_s: float) -> None:
        with self.allowance.spending():
            self.allowance.count(events)
            self.computed += took_s


def test_at_first_what_may_be_recorded_takes_what_is_left_of_five_seconds() -> None:
    assert Watch().allowance.events_left == int(3.5 / 26e-6)


def test_each_recording_leaves_less_for_the_next() -> None:
    watch = Watch()
    watch.record(50_000, took_s=0.85)  # 17 µs an event, and 9 for the rest
    assert watch.allowance.events_left == pytest.approx(3.5 / 26e-6 - 50_000, abs=1)


def test_where_recording_turns_out_dearer_fewer_events_may_be_recorded() -> None:
    cheap, dear = Watch(), Watch()
    cheap.record(10_000, took_s=0.07)
    dear.record(10_000, took_s=0.42)
    assert cheap.allowance.events_left == pytest.approx((3.5 - 0.16) / 16e-6, abs=1)
    assert dear.allowance.events_left == pytest.approx((3.5 - 0.51) / 51e-6, abs=1)


def test_a_small_recording_says_nothing_of_the_price_of_an_event() -> None:
    watch = Watch()
    watch.record(10, took_s=0.1)
    assert watch.allowance.events_left == pytest.approx((3.5 - 0.1) / 26e-6, abs=10)


def test_after_a_minute_a_tenth_of_the_time_is_more() -> None:
    watch = Watch()
    watch.now = 50.0
    before = watch.allowance.events_left
    watch.now = 60.0
    assert (before, watch.allowance.events_left) == (int(3.5 / 26e-6), int(4.5 / 26e-6))


def test_what_was_spent_is_never_made_good_by_less_than_nothing() -> None:
    watch = Watch()
    watch.record(1_000_000, took_s=20.0)
    assert watch.allowance.events_left == 0


def test_work_within_work_is_paid_once() -> None:
    watch = Watch()
    with watch.allowance.spending():
        watch.record(50_000, took_s=0.85)
    assert watch.allowance.events_left == pytest.approx(3.5 / 26e-6 - 50_000, abs=1)


def test_the_pace_is_that_of_the_densest_step_that_says_something() -> None:
    allowance = Watch().allowance
    for events, took_s in ((10_000, 1.0), (40_000, 2.0), (4_000, 0.01), (10_000, 0.0)):
        allowance.note_pace(events, took_s)
    assert allowance.events_per_s == 20_000


@pytest.mark.parametrize(("grown_bytes", "event_bytes"), [(300_000, 150), (3_000_000, 300), (90_000_000, 460)])
def test_what_an_event_takes_is_told_by_the_last_recording_within_what_is_possible(
    grown_bytes: int, event_bytes: int
) -> None:
    """The program's own tensors grow too, and what was freed is filled again."""
    allowance = Watch().allowance
    assert allowance.event_bytes == 460
    allowance.note_size(4_999, 4_999 * 200)
    assert allowance.event_bytes == 460
    allowance.note_size(10_000, grown_bytes)
    assert allowance.event_bytes == event_bytes


def test_however_long_the_program_runs_no_more_is_recorded_than_can_be_stopped_in_seconds() -> None:
    watch = Watch()
    watch.now = 1e6
    assert watch.allowance.events_left == 300_000


def test_what_a_rank_records_is_limited_by_the_number_of_events_alone() -> None:
    """Another that paid less for the same events records the same steps."""
    allowance = Allowance(lambda: 0.0, lambda: 0.0, is_rank=True)
    allowance.note_pace(100_000, 1.0)
    assert (allowance.events_left, allowance.steps_left(80_000)) == (300_000, 3)
    allowance.count(250_000)
    assert (allowance.events_left, allowance.affords((1e9,), a_part_will_do=False)) == (50_000, False)
    allowance.count(100_000)
    assert allowance.events_left == 0


@pytest.mark.parametrize(("events", "steps"), [(1_000, 134), (200_000, 0), (0, 134_615)])
def test_as_many_steps_may_be_recorded_as_hold_what_is_left(events: int, steps: int) -> None:
    assert Watch().allowance.steps_left(events) == steps


@pytest.mark.parametrize(
    ("spent", "step_ns", "of_one", "of_a_part"),
    [
        (0, (1e9,), True, True),  # 100,000 events of 134,615
        (0, (2e9,), False, True),
        (0, (1e8, 1e9, 2e9), True, True),  # the median
        (0, (), False, True),  # nothing is known of a step
        (126_000, (1e9,), False, False),  # 8,615 are too few for a part
        (1_000_000, (5e7,), True, True),  # 5,000 are always few enough
        (1_000_000, (6e7,), False, False),
    ],
)
def test_a_large_step_is_affordable_if_what_is_left_holds_it_or_enough_of_it(
    spent: int, step_ns: tuple[int, ...], of_one: bool, of_a_part: bool
) -> None:
    watch = Watch()
    watch.allowance.note_pace(100_000, took_s=1.0)
    watch.record(spent, took_s=17e-6 * spent)
    affords = watch.allowance.affords
    assert (affords(step_ns, a_part_will_do=False), affords(step_ns, a_part_will_do=True)) == (of_one, of_a_part)
