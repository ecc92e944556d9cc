"""Replaying steps whose work a device does, in the order of its streams."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.savings.edits import Edit, combine, remove, shrink_work, unblock
from tests.savings.replaying import LAUNCH, SYNC, _ns, _replay_us, _rows
from tests.traces import facts_of, kernel, mark, op, runtime, step


def _launch_bound() -> Facts:
    """Each kernel takes 5 µs and starts as soon as it is launched, every 50 µs."""
    events = [step(0, 0, 200)]
    for i in range(4):
        at = 50 * i
        events += [op("python_like", at + 5, 30), op("aten::mul", at + 36, 10)]
        events += [runtime(LAUNCH, at + 38, 4, correlation=i + 1), kernel("mul", at + 43, 5, correlation=i + 1)]
    return facts_of(events)


def _device_bound() -> Facts:
    """Four kernels of 100 µs, all launched in the first 100 µs, then a wait for the last."""
    events = [step(0, 0, 430), op("aten::item", 100, 320), runtime(SYNC, 105, 310)]
    for i in range(4):
        events += [
            op("python_like", 20 * i + 2, 8),
            runtime(LAUNCH, 20 * i + 10, 4, correlation=i + 1),
            kernel("mul", 100 * i + 14, 100, correlation=i + 1),
        ]
    return facts_of(events)


def test_an_exposed_host_event_is_worth_its_length():
    facts = _launch_bound()
    assert _replay_us(facts, Edit()) == (200, 200)
    assert _replay_us(facts, remove(_rows(facts, "python_like"))) == (200, 80)


def test_a_host_event_hidden_behind_a_busy_device_is_worth_nothing():
    facts = _device_bound()
    assert _replay_us(facts, Edit()) == (430, 430)
    later = _rows(facts, "python_like")[1:]
    assert _replay_us(facts, remove(later)) == (430, 430)


def test_what_delays_the_first_launch_is_not_hidden():
    facts = _device_bound()
    assert _replay_us(facts, remove(_rows(facts, "python_like")[:1])) == (430, 422)


def test_a_shorter_kernel_is_worth_its_gain_only_where_the_device_is_the_bottleneck():
    bound = _device_bound()
    assert _replay_us(bound, shrink_work(bound.launches.work, _ns(40, 40, 40, 40), 0.1)) == (430, 430 - 240)
    launched = _launch_bound()
    assert _replay_us(launched, shrink_work(launched.launches.work, _ns(1, 1, 1, 1), 0.1)) == (200, 200)


def test_removed_work_takes_its_place_in_the_queue_with_it():
    facts = _device_bound()
    nothing = np.zeros(0, dtype=np.int64)
    assert _replay_us(facts, remove(nothing, work=facts.launches.work[1:3])) == (430, 230)


def test_a_piece_of_work_named_twice_is_shortened_once():
    facts = _device_bound()
    work = facts.launches.work[:1]
    edits = [shrink_work(work, _ns(60), 0.1), shrink_work(work, _ns(30), 0.1)]
    assert _replay_us(facts, combine(edits)) == (430, 360)


def _reading() -> Facts:
    """A read of a number: the host waits for one kernel and launches the next one 10 µs after."""
    return facts_of(
        [
            step(0, 0, 200),
            runtime(LAUNCH, 5, 5, correlation=1),
            kernel("first", 20, 100, correlation=1),
            op("aten::item", 28, 99),
            runtime(SYNC, 30, 95),
            runtime(LAUNCH, 135, 5, correlation=2),
            kernel("second", 140, 10, correlation=2),
        ]
    )


def test_going_on_instead_of_waiting_gives_back_what_the_device_then_does_earlier():
    """The second kernel would be launched at 40 and stand in the queue when the first ends: 1.5 µs pass between two."""
    facts = _reading()
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (200, 131.5)


def test_a_wait_inside_a_removed_event_holds_nobody_up():
    facts = _reading()
    assert _replay_us(facts, remove(_rows(facts, "aten::item"))) == (200, 131.5)


def test_removing_what_stands_before_a_wait_only_lengthens_it():
    facts = facts_of(
        [
            step(0, 0, 130),
            runtime(LAUNCH, 5, 5, correlation=1),
            kernel("first", 10, 100, correlation=1),
            op("slow", 15, 50),
            runtime(SYNC, 70, 45),
        ]
    )
    assert _replay_us(facts, remove(_rows(facts, "slow"))) == (130, 130)
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(20), 0.1)) == (130, 85)


def test_a_wait_that_waited_for_nothing_is_host_time():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 1, 2), kernel("k", 5, 5), runtime(SYNC, 50, 20)])
    assert _replay_us(facts, remove(_rows(facts, SYNC))) == (100, 80)
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (100, 80)


def test_a_wait_of_a_helper_thread_does_not_hold_the_main_thread_up():
    facts = facts_of(
        [
            step(0, 0, 100),
            op("aten::mm", 1, 2),
            runtime(LAUNCH, 5, 5, correlation=1),
            kernel("k", 12, 60, correlation=1),
            runtime(SYNC, 20, 55, tid=9),
            op("slow", 80, 10),
        ]
    )
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(10), 0.1)) == (100, 100)
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (100, 100)


def test_two_streams_run_side_by_side():
    facts = facts_of(
        [
            step(0, 0, 50),
            op("aten::mm", 1, 2),
            runtime(LAUNCH, 5, 2, correlation=1),
            runtime(LAUNCH, 8, 2, correlation=2),
            kernel("long", 10, 90, correlation=1),
            kernel("short", 12, 40, correlation=2, stream=20),
        ]
    )
    assert _replay_us(facts, Edit()) == (100, 100)
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(20, 40), 0.1)) == (100, 52)


def test_a_wait_that_ends_with_the_shorter_of_two_overlapping_pieces_is_reproduced():
    facts = facts_of(
        [
            step(0, 0, 100),
            op("aten::mm", 1, 2),
            kernel("long", 10, 40),
            kernel("short", 20, 10),
            runtime(SYNC, 25, 6),
            op("slow", 60, 5),
        ]
    )
    assert _replay_us(facts, Edit()) == (100, 100)
    assert _replay_us(facts, remove(_rows(facts, "slow"))) == (100, 95)


def test_work_of_no_length_that_ends_a_wait_is_reproduced():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 1, 2), runtime(SYNC, 10, 10), kernel("empty", 20, 0)])
    assert _replay_us(facts, Edit()) == (100, 100)


def test_work_that_seems_to_start_before_its_launch_keeps_its_whole_length():
    facts = facts_of(
        [
            step(0, 0, 20),
            op("aten::mm", 1, 2),
            runtime(LAUNCH, 18, 1, correlation=1),
            kernel("early", 10, 30, correlation=1),
        ]
    )
    assert _replay_us(facts, Edit()) == (40, 40)
    assert _replay_us(facts, shrink_work(facts.launches.work, _ns(25), 0.1)) == (40, 35)


def _behind() -> Facts:
    """The device is 50 µs behind the host all the time: kernels of 100 µs, one a step; the first step is located."""
    events = [mark(1, 1, 2), op("aten::mm", 1, 1)]
    for n in range(3):
        at = 100 * n
        events += [
            step(n, at, 100),
            op("before", at + 3, 20),
            runtime(LAUNCH, at + 25, 5, correlation=n + 1),
            kernel("mm", at + 50, 100, correlation=n + 1),
        ]
    return facts_of(events)


def test_a_device_that_is_always_behind_by_the_same_does_not_make_the_window_longer():
    assert _replay_us(_behind(), Edit()) == (200, 200)


def test_work_of_the_step_before_still_keeps_the_device_busy():
    facts = _behind()
    assert _replay_us(facts, remove(_rows(facts, "before"))) == (200, 200)
    assert _replay_us(facts, shrink_work(facts.launches.work[:1], _ns(10), 0.1)) == (200, 200)


def test_work_launched_before_the_recording_keeps_the_device_busy():
    facts = facts_of(
        [
            op("before", 0, 20),
            runtime(LAUNCH, 25, 5, correlation=1),
            kernel("mm", 5_000, 100, correlation=1),
            runtime(SYNC, 40, 5_060),
        ]
    )
    assert _replay_us(facts, remove(_rows(facts, "before"))) == (5_100, 5_100)


def test_the_profilers_own_wait_is_not_replayed():
    facts = facts_of(
        [
            op("aten::mm", 0, 9),
            runtime(LAUNCH, 2, 2, correlation=1),
            kernel("mm", 5, 40, correlation=1),
            runtime("cudaDeviceSynchronize", 20, 30),
        ]
    )
    assert facts.waits.own.tolist() == [True]
    assert _replay_us(facts, unblock(facts.waits.rows)) == (45, 45)


def test_less_work_of_the_device_shortens_a_recording_that_ends_in_the_profilers_wait():
    """The host is done at 20 µs and would stand in the wait until 50, however little the device does."""
    facts = facts_of(
        [
            op("aten::mm", 0, 20),
            runtime(LAUNCH, 2, 2, correlation=1),
            kernel("mm", 5, 40, correlation=1),
            runtime("cudaDeviceSynchronize", 20, 30),
        ]
    )
    none = np.zeros(0, dtype=np.int64)
    assert _replay_us(facts, remove(none, facts.launches.work, 0.0)) == (45, 20)


def test_without_the_devices_side_a_wait_has_no_price():
    facts = facts_of([step(0, 0, 100), op("aten::item", 5, 50), runtime(SYNC, 10, 40)])
    assert _replay_us(facts, unblock(_rows(facts, SYNC))) == (100, 100)


def test_the_latency_of_a_launch_is_no_charge_while_earlier_work_runs():
    """Idle, a kernel starts 10 µs after its launch; the second one was launched while the first ran."""
    facts = facts_of(
        [
            step(0, 0, 100),
            op("aten::mm", 1, 2),
            runtime(LAUNCH, 5, 2, correlation=1),
            kernel("first", 15, 40, correlation=1),
            runtime(LAUNCH, 50, 2, correlation=2),
            kernel("second", 60, 45, correlation=2),
        ]
    )
    assert _replay_us(facts, Edit()) == (105, 105)
    assert _replay_us(facts, shrink_work(facts.launches.work[:1], _ns(30), 0.1)) == (105, 105)  # launched at 50 anyway
    assert _replay_us(facts, remove(_rows(facts, "aten::mm"))) == (105, 103)


def _two_streams(waits: bool, after: float = 2, launch: str = LAUNCH) -> Facts:
    """A collective that starts when the gradient is there, 2 µs after, or by itself 40 µs later."""
    start = 110 + after if waits else 150
    return facts_of(
        [
            step(0, 0, 60),
            op("aten::mm", 1, 2),
            runtime(launch, 5, 2, correlation=1),
            kernel("gradient", 10, 100, correlation=1),
            runtime(launch, 8, 2, correlation=2),
            kernel("ncclAllReduce", start, 50, correlation=2, stream=20),
        ]
    )


def test_a_stream_that_waits_for_another_goes_on_when_that_one_has_come_so_far():
    facts = _two_streams(waits=True)
    assert _replay_us(facts, Edit()) == (162, 162)
    assert _replay_us(facts, shrink_work(facts.launches.work[:1], _ns(60), 0.1)) == (162, 122)


@pytest.mark.parametrize(
    ("launch", "after", "follows"),
    [(LAUNCH, 16, False), ("hipLaunchKernel", 16, True), ("hipLaunchKernel", 26, False)],
)
def test_on_an_amd_device_a_stream_goes_on_later(launch, after, follows):
    facts = _two_streams(waits=True, after=after, launch=launch)
    end_us = 160 + after
    assert _replay_us(facts, Edit()) == (end_us, end_us)
    shorter = shrink_work(facts.launches.work[:1], _ns(60), 0.1)
    assert _replay_us(facts, shorter) == (end_us, end_us - 40 if follows else end_us)


def test_a_stream_that_starts_late_for_no_reason_in_the_recording_still_does():
    facts = _two_streams(waits=False)
    assert _replay_us(facts, shrink_work(facts.launches.work[:1], _ns(60), 0.1)) == (200, 200)


def _full_queue() -> Facts:
    """Kernels of 100 µs, one launch every 10 µs; 300 may be outstanding, and then each waits until a place is free."""
    events, returned = [op("aten::mm", 1, 1)], 0
    for n in range(400):
        started = max(returned + 5, 5)
        freed = 20 + 100 * (n - 299)  # when the kernel 300 before has ended
        returned = max(started + 5, freed) if n >= 300 else started + 5
        events += [runtime(LAUNCH, started, returned - started, correlation=n + 1)]
        events += [kernel("mm", 20 + 100 * n, 100, correlation=n + 1)]
    return facts_of([step(0, 0, returned + 1_000), *events])


def test_a_launch_into_a_full_queue_is_a_wait_and_no_work_of_the_host():
    facts = _full_queue()
    assert _replay_us(facts, Edit()) == (40_020, 40_020)
    halved = shrink_work(facts.launches.work, np.full(400, 50_000, dtype=np.int64), 0.1)
    assert _replay_us(facts, halved) == (40_020, 20_020)
    tiny = shrink_work(facts.launches.work, np.full(400, 1_000, dtype=np.int64), 0.1)
    assert _replay_us(facts, tiny) == (40_020, 4_665)  # 332 free launches of 10 µs, 68 of 5, and 1,000 µs at the end


def test_a_host_that_ran_ahead_before_the_window_is_still_as_slow_as_it_is():
    """The device is 1,000 µs behind at the start. Where its work takes no time, the host's 100 µs a step remain."""
    events = [step(0, 0, 100), mark(1, 1, 2), op("aten::mm", 1, 1)]
    for n in range(4):
        at = 100 * n
        events += [step(n, at, 100)] if n else []
        events += [runtime(LAUNCH, at + 25, 5, correlation=n + 1), kernel("mm", 50 + 1000 * n, 1000, correlation=n + 1)]
    facts = facts_of(events)
    assert facts.steps.median_ns == 1_000_000
    everything = shrink_work(facts.launches.work, np.full(4, 1_000, dtype=np.int64), 0.1)
    assert _replay_us(facts, everything) == (3_000, 300)
