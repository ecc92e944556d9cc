"""What a step takes when nothing is recorded, and what bounds it."""

from __future__ import annotations

import pytest

from profkit.run.directory import Run
from profkit.savings.step_time import StepTime, as_in_step_ns, step_time
from tests.savings.replaying import LAUNCH
from tests.traces import facts_of, kernel, op, runtime, step

US = 1_000


def known(kernel_us: float, host_us: float = 100, **run) -> StepTime:
    """Steps of which the host takes so long, and the device for one kernel so long."""
    length = max(host_us, kernel_us)
    events = [op("aten::mm", 1, 1)]
    for n in range(4):
        events += [
            step(n, host_us * n, host_us),
            runtime(LAUNCH, host_us * n + 10, 2, correlation=n + 1),
            kernel("mm", 20 + length * n, kernel_us, correlation=n + 1),
        ]
    return step_time(facts_of(events, run=Run(**run)))


def test_a_device_that_is_behind_bounds_the_step():
    found = known(1_000)
    assert (found.recorded_ns, found.unrecorded_ns, found.source) == (1_000 * US, None, None)
    assert found.device_ns == pytest.approx(1_000 * US, rel=0.01)
    assert found.host_ns == pytest.approx(100 * US, rel=0.01)
    assert found.bound_by == "device"
    assert found.ns == 1_000 * US


def test_a_host_that_the_device_waits_for_bounds_the_step():
    found = known(30)
    assert (found.recorded_ns, found.bound_by) == (100 * US, "host")
    assert found.device_ns == pytest.approx(31.5 * US, rel=0.1)  # with what passes between two kernels


def test_the_device_alone_does_not_wait_for_a_launch_that_loads_code():
    """The only launch takes 900 µs until its kernel begins: the device needs 30 µs all the same."""
    events = [step(0, 0, 1_000), op("aten::mm", 1, 1), runtime(LAUNCH, 10, 901, correlation=1)]
    found = step_time(facts_of([*events, kernel("mm", 910, 30, correlation=1)]))
    assert found.device_ns == pytest.approx(30 * US, rel=0.05)
    assert found.bound_by == "host"


def test_the_hosts_clock_tells_nothing_of_steps_that_it_only_launches():
    found = known(1_000, reference_step_ns=(80 * US, 90 * US, 85 * US))
    assert found.unrecorded_ns == pytest.approx(1_000 * US, rel=0.01)
    assert found.source == "measured"
    assert found.bound_by == "device"


def test_the_hosts_clock_tells_of_steps_that_it_bounds():
    found = known(30, reference_step_ns=(80 * US, 90 * US, 85 * US))
    assert (found.unrecorded_ns, found.bound_by) == (85 * US, "host")
    assert found.range_ns == (int(85 * US / 1.4), None)  # too few events for an estimate of what CUPTI added


def _timed(host_us: float, **run) -> StepTime:
    """Two steps of 520 operators, 2 µs from one to the next, and one kernel in each."""
    events = [op("aten::mm", 0.2, 0.5)]
    for n in range(2):
        at = 1_000 * n
        events += [step(n, at, 1_000), runtime(LAUNCH, at + 0.3, 0.2, correlation=n + 1)]
        events += [kernel("mm", at + 3, 10, correlation=n + 1)]
        events += [op("aten::add", at + 1.9 * i + 1, 1) for i in range(520)]
    return step_time(facts_of(events, run=Run(reference_step_ns=(round(host_us * US),) * 3, **run)))


def test_steps_timed_while_cupti_stood_by_took_up_to_two_fifths_longer():
    """Of 1,000 µs as recorded the estimate leaves 0.45."""
    below, between, above = _timed(1_000), _timed(600), _timed(440)
    assert below.unrecorded_ns == pytest.approx(714 * US, rel=0.01)
    assert between.unrecorded_ns == pytest.approx(450 * US, rel=0.02)
    assert between.range_ns == (None, 600 * US)
    assert above.unrecorded_ns == pytest.approx((440 / 1.4 + 440) / 2 * US, rel=0.01)  # it lies above: the middle
    assert above.range_ns == (above.least_ns, 440 * US)


def test_steps_timed_on_the_device_are_believed_as_cupti_was_detached():
    found = _timed(1_000, reference_step_device_ns=(900 * US,) * 3)
    assert (found.unrecorded_ns, found.range_ns) == (900 * US, (None, None))


def test_a_step_that_the_host_held_up_takes_nothing_from_the_devices_time_of_the_others():
    events = [op("aten::mm", 1, 1)]
    for n, start_us in enumerate((0, 100, 200, 1_200)):
        length_us = 1_000 if n == 2 else 100
        events += [
            step(n, start_us, length_us),
            runtime(LAUNCH, start_us + 1, 2, correlation=n + 1),
            kernel("mm", start_us + 4, 96, correlation=n + 1),
        ]
    found = step_time(facts_of(events))
    assert found.recorded_ns == pytest.approx(100 * US, rel=0.01)
    assert found.device_ns == pytest.approx(97 * US, rel=0.02)
    assert found.bound_by == "host"  # of all four steps together, as the table has it
    assert found.busy_ns == pytest.approx(100 * US * 4 * 96 / 1_300, rel=0.01)


def test_a_step_with_more_work_for_the_device_is_no_usual_one():
    events = [op("aten::mm", 1, 1)]
    for n, kernel_us in enumerate((96, 96, 880, 96)):
        start_us = 100 * n if n < 3 else 1_200
        events += [
            step(n, start_us, 100 if n != 2 else 1_000),
            runtime(LAUNCH, start_us + 1, 2, correlation=n + 1),
            kernel("mm", start_us + 4, kernel_us, correlation=n + 1),
        ]
    assert step_time(facts_of(events)).device_ns == pytest.approx(97 * US, rel=0.02)


def test_the_devices_clock_is_believed():
    found = known(1_000, reference_step_ns=(80 * US,) * 3, reference_step_device_ns=(940 * US, 0, 960 * US))
    assert (found.unrecorded_ns, found.source, found.least_ns) == (950 * US, "measured", 950 * US)
    assert found.range_ns == (None, None)


def test_steps_that_alternate_take_as_long_as_they_come():
    """Two workers deliver at a time: half of the steps wait."""
    timed_ns = tuple(US * us for us in (84, *[15, 355] * 12))
    found = known(10, reference_step_ns=timed_ns, reference_step_device_ns=timed_ns)
    assert found.unrecorded_ns == pytest.approx(185 * US, rel=0.02)


def test_without_a_device_nothing_bounds_the_step():
    facts = facts_of([op("aten::mm", 1, 1), step(0, 0, 100)], run=Run(reference_step_ns=(90 * US,)))
    found = step_time(facts)
    assert (found.recorded_ns, found.unrecorded_ns, found.source) == (100 * US, 90 * US, "measured")
    assert (found.bound_by, found.recorded_bound_by, found.busy_ns, found.device_ns) == (None,) * 4
    assert sum(time for _, time in found.rows) == pytest.approx(90 * US)


@pytest.mark.parametrize(
    ("plain_us", "ns", "held_up_ns"),
    [([90] * 20, 90, None), ([100] * 20, 100, None), ([130] * 20, 100, 130), ([60, 460] * 10, 260, None)],
)
def test_steps_that_took_longer_without_the_recording_were_held_up(plain_us, ns, held_up_ns):
    """Recording makes no step shorter: then prices refer to what was recorded. Steps of two sorts are no such case."""
    run = Run(reference_step_ns=tuple(us * US for us in plain_us))
    events = [event for n in range(4) for event in (step(n, 100 * n, 100), op("aten::mm", 100 * n, 50))]
    found = step_time(facts_of(events, run=run))
    assert (found.ns, found.held_up_ns) == (ns * US, None if held_up_ns is None else held_up_ns * US)
    assert sum(time for _, time in found.rows) == pytest.approx(ns * US)


@pytest.mark.parametrize(("plain_us", "told_us"), [(50, 20), (100, 40), (170, 40)])
def test_a_time_beside_a_price_is_the_same_share_of_the_step_as_the_price(plain_us, told_us):
    run = Run(reference_step_ns=(plain_us * US,) * 5)
    facts = facts_of([step(0, 0, 100), op("aten::mm", 1, 99)], run=run)
    assert as_in_step_ns(facts, 40 * US) == pytest.approx(told_us * US)


def test_steps_that_were_timed_say_nothing_of_a_recording_that_is_none_or_a_part_of_one():
    whole, none = [step(0, 0, 100), op("aten::mm", 1, 99)], [op("aten::mm", 1, 99)]
    run, part = Run(reference_step_ns=(800 * US,)), Run(reference_step_ns=(800 * US,), is_part=True)
    assert step_time(facts_of(whole, run=run)).source == "measured"
    assert step_time(facts_of(whole, run=part)).ns == 100 * US
    assert step_time(facts_of(none, run=run)).ns == 99 * US


def _launches(count: int, every_us: float, kernel_us: float) -> list[dict]:
    """One step whose host launches kernels one by one, each after an operator."""
    events = [step(0, 0, count * every_us)]
    for n in range(count):
        at = n * every_us
        events += [
            op("aten::mm", at, every_us - 1),
            runtime(LAUNCH, at + 2, 5, correlation=n + 1),
            kernel("mm", at + 10, kernel_us, correlation=n + 1),
        ]
    return events


@pytest.mark.parametrize("kernel_us", [1, 6, 12])
def test_a_step_without_the_recording_is_estimated_no_shorter_than_the_device_is_busy(kernel_us):
    """Recording takes most of this host's 13 µs between two launches."""
    found = step_time(facts_of(_launches(1_000, 13, kernel_us)))
    assert found.source == "estimated"
    assert found.busy_ns == pytest.approx(1_000 * kernel_us * US, abs=10)
    assert found.busy_ns <= found.unrecorded_ns < found.recorded_ns
    assert sum(time for _, time in found.rows) == pytest.approx(found.unrecorded_ns, rel=1e-6)
    assert (found.recorded_bound_by, found.bound_by) == {
        1: ("host", "host"),
        6: ("host", "mixture"),
        12: ("device", "device"),
    }[kernel_us]


def test_what_the_recording_does_not_slow_keeps_its_time_in_the_shorter_step():
    """Half of the host's time goes to short operators, half to getting memory from the driver."""
    events = [*_launches(1_000, 13, 1), runtime("cudaMalloc", 13_000, 13_000)]
    events[0] = step(0, 0, 26_000)
    found = step_time(facts_of(events))
    rows, recorded = dict(found.rows), dict(found.recorded_rows)
    assert found.unrecorded_ns < 20_000 * US
    assert rows["idle: allocating or freeing memory"] == pytest.approx(13_000 * US, rel=0.05)
    assert rows["device: computing"] == recorded["device: computing"]
    assert rows["idle: launching work"] < 0.6 * recorded["idle: launching work"]


def test_what_the_device_finishes_from_before_the_step_is_no_part_of_it():
    """For its first 9 ms the device works on kernels whose launch is not recorded; the host then launches 1 ms more,
    slowly, as it is recorded: what came before does not make the other steps longer."""
    before = [kernel("mm", 0, 9_000)]
    events = _launches(1_000, 13, 1)
    found = step_time(facts_of([*before, *events]))
    assert found.source == "estimated"
    rows = dict(found.recorded_rows)
    assert rows["device: computing"] >= 9_000 * US
    assert found.unrecorded_ns == pytest.approx(step_time(facts_of(events)).unrecorded_ns, rel=0.05)


def test_the_range_of_an_estimate_holds_a_slower_and_a_faster_host():
    """0.45 of 13 ms are left; the device idles for most of it."""
    found = step_time(facts_of(_launches(1_000, 13, 1)))
    assert found.unrecorded_ns == pytest.approx(0.45 * 13_000 * US, rel=0.01)
    assert found.range_ns == pytest.approx((found.unrecorded_ns / 1.5, 1.5 * found.unrecorded_ns), rel=0.01)


def test_a_slower_host_may_take_longer_than_the_device_that_hides_the_estimated_one():
    """The device needs 7.5 of 13 ms, the host 0.45 of 13, or up to 1.5 times as long."""
    found = step_time(facts_of(_launches(1_000, 13, 6)))
    assert found.unrecorded_ns == pytest.approx(7_500 * US, rel=0.01)
    least_ns, most_ns = found.range_ns
    assert least_ns is None
    assert most_ns == pytest.approx(1.5 * 0.45 * 13_000 * US, rel=0.02)
    assert step_time(facts_of(_launches(1_000, 13, 12))).range_ns == (None, None)
