"""What a step takes when nothing is recorded, and what bounds it."""

from __future__ import annotations

import pytest

from profkit.run import Run
from profkit.savings.step_time import StepTime, step_time
from tests.savings.replaying import LAUNCH
from tests.traces import facts_of, kernel, op, runtime, step

US = 1_000


def told(kernel_us: float, host_us: float = 100, **run) -> StepTime:
    """Steps of which the host takes so long, and the device for one kernel so long."""
    length = max(host_us, kernel_us)
    events = [op("aten::mm", 1, 1)]
    for n in range(4):
        events += [step(n, host_us * n, host_us), runtime(LAUNCH, host_us * n + 10, 2, correlation=n + 1),
                   kernel("mm", 20 + length * n, kernel_us, correlation=n + 1)]  # fmt: skip
    return step_time(facts_of(events, run=Run(**run)))


def test_a_device_that_is_behind_bounds_the_step():
    found = told(1_000)
    assert (found.recorded_ns, found.unrecorded_ns, found.source) == (1_000 * US, None, None)
    assert found.device_ns == pytest.approx(1_000 * US, rel=0.01)
    assert found.host_ns == pytest.approx(100 * US, rel=0.01)
    assert found.bound_by == "device"
    assert found.ns == 1_000 * US


def test_a_host_that_the_device_waits_for_bounds_the_step():
    found = told(30)
    assert (found.recorded_ns, found.bound_by) == (100 * US, "host")
    assert found.device_ns == pytest.approx(31.5 * US, rel=0.1)  # with what passes between two kernels


def test_the_hosts_clock_tells_nothing_of_steps_that_it_only_launches():
    found = told(1_000, reference_step_ns=(80 * US, 90 * US, 85 * US))
    assert found.unrecorded_ns == pytest.approx(1_000 * US, rel=0.01)
    assert found.source == "measured"
    assert found.bound_by == "device"


def test_the_hosts_clock_tells_of_steps_that_it_bounds():
    found = told(30, reference_step_ns=(80 * US, 90 * US, 85 * US))
    assert (found.unrecorded_ns, found.bound_by) == (85 * US, "host")
    assert found.least_ns == int(85 * US / 1.4)  # CUPTI may have stood by


def test_the_devices_clock_is_believed():
    found = told(1_000, reference_step_ns=(80 * US,) * 3, reference_step_device_ns=(940 * US, 0, 960 * US))
    assert (found.unrecorded_ns, found.source, found.least_ns) == (950 * US, "measured", 950 * US)


def test_without_a_device_nothing_bounds_the_step():
    facts = facts_of([op("aten::mm", 1, 1), step(0, 0, 100)], run=Run(reference_step_ns=(90 * US,)))
    assert step_time(facts) == StepTime(100 * US, 90 * US, "measured")


def test_steps_that_were_timed_say_nothing_of_a_recording_that_is_none_or_a_part_of_one():
    whole, none = [step(0, 0, 100), op("aten::mm", 1, 99)], [op("aten::mm", 1, 99)]
    run, part = Run(reference_step_ns=(800 * US,)), Run(reference_step_ns=(800 * US,), is_part=True)
    assert step_time(facts_of(whole, run=run)).ns == 800 * US
    assert step_time(facts_of(whole, run=part)).ns == 100 * US
    assert step_time(facts_of(none, run=run)).ns == 99 * US
