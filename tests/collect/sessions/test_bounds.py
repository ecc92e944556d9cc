"""How large a recording may grow: bounds on its time and on what the process holds, as events cannot be counted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from profkit.collect.sessions import bounds
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.held_memory import HeldMemory

MB = 1 << 20
MANY = 10**7
"""Events: so many that only the other bounds matter."""


class Process:
    """A process whose memory and clocks a test sets; it once held ``peak_mb``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, peak_mb: int = 500, available_mb: int = 100_000) -> None:
        self.held_mb, self.now, self.computed, self.watched = 300, 1000.0, 20.0, 0.0
        self.calls = 0, False
        monkeypatch.setattr(bounds.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(bounds.time, "process_time", lambda: self.computed)
        monkeypatch.setattr(bounds, "peak_rss_bytes", lambda: peak_mb * MB)
        memory = SimpleNamespace(available=available_mb * MB)
        monkeypatch.setattr(bounds.psutil, "virtual_memory", lambda: memory)
        self.allowance = SimpleNamespace()
        resident = HeldMemory(lambda: self.held_mb * MB, lambda: None)
        self.bounds = Bounds(30.0, resident, self.allowance, watched_s=lambda: self.watched, calls=lambda: self.calls)

    def begin(
        self,
        events: int = MANY,
        *,
        is_first: bool = True,
        are_large: bool = False,
        event_bytes: int = 460,
        events_per_s: float = 0.0,
        pace: float = 0.0,
        trusts_pace: bool = False,
    ) -> None:
        """Large steps are cut off at half of the events that are left."""
        self.allowance.events_left, self.allowance.event_bytes = events * (2 if are_large else 1), event_bytes
        self.allowance.events_per_busy_s = events_per_s
        self.bounds.begin(is_first, are_large, is_second=events_per_s > 0, pace=pace, trusts_pace=trusts_pace)

    def is_full_at(self, mb: int, after_s: float = 10.0, share: float = 1.0) -> bool:
        """``share`` is the CPU time of the process per second, on all processors together."""
        self.held_mb, self.now, self.computed = mb, self.now + after_s, self.computed + share * after_s
        return self.bounds.are_exceeded(has_ended=False)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    process = Process(monkeypatch)
    yield process
    process.bounds.end()  # and its alarm, which looks often at large steps


def test_a_recording_may_hold_256_mb_beyond_the_peak_of_the_program(process):
    process.begin()
    assert [process.is_full_at(mb) for mb in (300, 500 + 256, 500 + 257)] == [False, False, True]


def test_a_recording_of_large_steps_may_hold_less(process):
    process.begin(are_large=True)
    assert [process.is_full_at(mb) for mb in (300 + 48, 300 + 49)] == [False, True]


def test_with_little_free_memory_it_may_hold_less(monkeypatch):
    process = Process(monkeypatch, available_mb=1500)
    process.begin()
    assert [process.is_full_at(mb) for mb in (500 + 100, 500 + 101)] == [False, True]


def test_time_ends_a_recording_however_little_it_holds(process, monkeypatch):
    process.begin()
    now = bounds.time.monotonic()
    monkeypatch.setattr(bounds.time, "monotonic", lambda: now + 61)
    assert process.is_full_at(300)


def test_a_step_may_be_given_less_time_on_the_wall_and_of_the_processor(process):
    process.allowance.events_left, process.allowance.event_bytes = MANY, 460
    process.allowance.events_per_busy_s = 0.0
    process.bounds.begin(is_first=False, are_large=False, is_second=False, most_s=5.0)
    process.bounds.begin_step()
    assert not process.is_full_at(300, after_s=5.1, share=0.5)
    assert not process.is_full_at(300, after_s=4.8, share=0.5)
    assert process.is_full_at(300, after_s=0.2)
    process.bounds.begin_step()
    assert not process.is_full_at(300, after_s=4.9)


def test_outside_a_recording_nothing_is_too_much(process):
    assert not process.is_full_at(10**6)
    process.begin()
    process.bounds.end()
    assert not process.is_full_at(10**6)


def test_all_growth_counts_once_the_lines_of_the_located_step_ran_out(process):
    process.begin()
    assert not process.is_full_at(300 + 48)
    assert not process.bounds.are_exceeded(has_ended=True)
    assert not process.is_full_at(300 + 49)
    assert process.bounds.are_exceeded(has_ended=True)
    assert not process.bounds.are_exceeded(has_ended=False)


def test_lines_that_ran_out_do_not_matter_in_measured_steps(process):
    process.begin(is_first=False)
    process.held_mb, process.now = 300 + 49, process.now + 10
    assert not process.bounds.are_exceeded(has_ended=True)


@pytest.mark.parametrize(
    ("events", "are_large", "most_mb"), [(60_000, False, 526), (60_000, True, 326), (0, False, 508), (0, True, 304)]
)
def test_it_may_hold_only_as_much_as_the_remaining_events(process, events, are_large, most_mb):
    process.begin(events, are_large=are_large)
    assert [process.is_full_at(mb) for mb in (most_mb, most_mb + 1)] == [False, True]


def test_with_smaller_events_it_may_hold_less(process):
    process.begin(60_000, are_large=True, event_bytes=150)
    assert [process.is_full_at(mb) for mb in (300 + 8, 300 + 9)] == [False, True]


def test_a_second_recording_may_last_as_long_as_its_expected_events(process):
    process.begin(60_000, events_per_s=20_000)
    assert [process.is_full_at(300, after_s) for after_s in (6.0, 0.1)] == [False, True]
    process.begin(60_000)
    assert not process.is_full_at(300, 59.0)


@pytest.mark.parametrize(("are_large", "is_full"), [(False, [False, False, True]), (True, [True, True, True])])
def test_once_the_allowance_is_spent_there_is_time_for_a_few_events_of_small_steps(process, are_large, is_full):
    process.begin(0, are_large=are_large, events_per_s=400_000)
    assert [process.is_full_at(300, after_s) for after_s in (0.1, 0.08, 0.01)] == is_full


def test_time_in_which_others_compute_brings_no_events(process):
    process.begin(60_000, events_per_s=20_000)
    assert [process.is_full_at(300, after_s, share=0.25) for after_s in (20.0, 3.9, 0.2)] == [False, False, True]


def test_several_threads_bring_no_more_events_than_one(process):
    process.begin(60_000, events_per_s=20_000)
    assert [process.is_full_at(300, after_s, share=4.0) for after_s in (6.0, 0.1)] == [False, True]


@pytest.mark.parametrize(("watched_s", "is_full"), [(0.0, True), (0.6, False)])
def test_time_of_profkits_watches_brings_no_events(process, watched_s, is_full):
    process.begin(60_000, events_per_s=20_000)
    process.watched = watched_s
    assert process.is_full_at(300, 6.1) is is_full


def test_time_that_was_watched_before_does_not_count(process):
    process.watched = 5.0
    process.begin(60_000, events_per_s=20_000)
    assert [process.is_full_at(300, after_s) for after_s in (6.0, 0.1)] == [False, True]
    assert process.bounds.ran_s == pytest.approx(6.1)


@pytest.mark.parametrize(("pace", "is_full"), [(20_000, True), (10_000, False)])
def test_a_step_is_tried_again_at_its_own_pace(process, pace, is_full):
    process.begin(60_000, events_per_s=20_000, pace=pace)
    assert process.is_full_at(300, 6.1) is is_full


def test_at_a_slow_pace_memory_still_grows_by_events_at_the_fastest(process):
    """The part that was cut off had few events; a loop of small operators follows."""
    process.begin(80_000, are_large=True, events_per_s=100_000, pace=5_000)
    assert [process.is_full_at(300 + mb, after_s=0.5) for mb in (20, 41)] == [False, True]


@pytest.mark.parametrize(("trusts_pace", "is_full"), [(False, True), (True, False)])
def test_once_the_pace_is_known_what_grows_faster_is_tensors(process, trusts_pace, is_full):
    """The scores of a step, 60 MB, grow in 2 s. Ten thousand events a second take 9 MB."""
    process.begin(80_000, are_large=True, events_per_s=100_000, pace=5_000, trusts_pace=trusts_pace)
    full = [process.is_full_at(300 + 15 * look, 0.5) for look in range(1, 5)]
    assert full[-1] is is_full


def test_where_the_pace_is_known_a_step_that_grows_by_it_is_still_cut(process):
    process.begin(8_000, are_large=True, events_per_s=100_000, pace=5_000, trusts_pace=True)
    assert [process.is_full_at(300 + mb, 0.5) for mb in (2, 4, 6)] == [False, False, True]


@pytest.mark.parametrize(("share", "is_full"), [(1.0, True), (0.05, False)])
def test_growth_while_others_have_the_processor_is_not_one_of_events(process, share, is_full):
    """The graph of a step, 60 MB, is made while the process computes for a twentieth of the time."""
    process.begin(80_000, are_large=True, events_per_s=100_000)
    full = [process.is_full_at(300 + 15 * look, 0.4, share) for look in range(1, 5)]
    assert full[-1] is is_full


def test_growth_faster_than_events_is_the_programs(process):
    """An evaluation that keeps its graph takes 2 GB within 0.1 s, again and again; then events follow."""
    process.begin()
    for _ in range(5):
        assert not process.is_full_at(2300, after_s=0.1)
        assert not process.is_full_at(360, after_s=0.1)
    for mb in (480, 600, 720):
        assert not process.is_full_at(mb, after_s=1.0)
    assert process.is_full_at(840, after_s=1.0)


def test_all_growth_counts_in_large_steps(process):
    process.begin(are_large=True)
    assert process.is_full_at(300 + 60, after_s=0.1)


@pytest.mark.parametrize(("mb", "is_full"), [(300 + 400, False), (300 + 8, False), (300 + 41, True)])
def test_what_grows_faster_than_the_prologues_events_belongs_to_a_large_steps_tensors(process, mb, is_full):
    """The graph of a step takes 400 MB at once; 100,000 events a second, of 460 bytes, take 46 MB at most."""
    process.begin(80_000, are_large=True, events_per_s=100_000)
    looks = 1 if mb > 600 else 10
    full = [process.is_full_at(300 + (mb - 300) * (look + 1) // looks, after_s=0.1) for look in range(looks)]
    assert full[-1] == is_full


@pytest.mark.parametrize(("modules", "is_full"), [(800, False), (0, True)])
def test_memory_of_newly_imported_modules_does_not_count(process, monkeypatch, modules, is_full):
    process.begin(60_000, are_large=True)
    for number in range(modules):
        monkeypatch.setitem(sys.modules, f"module_{number}", sys)
    assert process.is_full_at(380) == is_full
    assert [process.is_full_at(mb) for mb in (380 + 26, 380 + 27)] == [is_full, True]


def test_imported_modules_explain_no_more_than_modules_take(process, monkeypatch):
    """A hundred take 10 MB."""
    process.begin(60_000, are_large=True)
    for number in range(100):
        monkeypatch.setitem(sys.modules, f"module_{number}", sys)
    assert process.is_full_at(380)


def test_memory_that_was_given_back_hides_no_later_events(process):
    process.begin()
    assert not process.is_full_at(5000, after_s=0.1)
    assert not process.is_full_at(300, after_s=0.1)
    assert [process.is_full_at(mb, after_s=2.0) for mb in (500, 700, 900)] == [False, False, True]


@pytest.mark.parametrize(("seen", "is_full"), [(2000, False), (2001, True)])
def test_calls_show_how_many_events_a_large_step_has(process, seen, is_full):
    """Ten each: 2,000 calls are twice 10,000 events, the other half of which is left for what arrives late."""
    process.begin(events=10_000, are_large=True)
    process.calls = seen, True
    assert process.is_full_at(300) is is_full


def test_calls_that_are_not_seen_any_more_go_on_at_their_pace(process):
    process.begin(events=10_000, are_large=True)
    process.calls = 500, True
    assert not process.is_full_at(300, after_s=1.0)
    process.calls = 500, False  # the watch has used what it may cost
    assert [process.is_full_at(300, after_s) for after_s in (3.0, 0.1)] == [False, True]


def test_calls_of_another_recording_or_of_small_steps_do_not_count(process):
    process.calls = 10**6, False  # those of the recording before, whose watch is over
    process.begin(events=10_000, are_large=True)
    assert not process.is_full_at(300)
    process.begin(events=10_000)
    process.calls = 10**6, True
    assert not process.is_full_at(300)
