"""How much of a step the recording itself was, and where it lay."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.steps.distortion import _water_level
from profkit.run import Run
from tests.traces import facts_of, kernel, memory, op, pause, python, runtime, step


def _overhead(events, *reference_us: int) -> list[tuple[int, int]]:
    facts = facts_of(events, run=Run(reference_step_ns=tuple(1000 * time for time in reference_us)))
    found = facts.overhead.where
    return [(int(s), int(e)) for s, e in zip(found.start_ns, found.end_ns, strict=True)]


def test_the_difference_is_shared_evenly_by_the_starts_and_ends_of_events():
    """Between two operators lie an end and a start, so that stretch has twice the share of the others."""
    events = [step(0, 0, 100), op("aten::a", 20, 10), op("aten::b", 60, 10)]
    assert _overhead(events, 90) == [(17_500, 20_000), (55_000, 60_000), (97_500, 100_000)]


def test_an_edge_takes_no_more_than_the_stretch_beside_it():
    events = [step(0, 0, 100), op("aten::a", 20, 20), op("aten::inner", 22, 10), op("aten::b", 60, 10)]
    assert _overhead(events, 84) == [(17_200, 22_000), (37_200, 40_000), (54_400, 60_000), (97_200, 100_000)]


def test_an_edge_takes_no_more_than_such_work_can_take():
    """The machine was busy: 80 µs longer for four edges."""
    events = [step(0, 0, 100), op("aten::a", 20, 10)]
    assert _overhead(events, 20) == [(15_000, 20_000), (95_000, 100_000)]


def test_time_that_no_event_can_have_cost_stays():
    assert _overhead([step(0, 0, 100), op("aten::a", 2, 98)], 50) == [(0, 2_000)]


def test_the_median_step_without_the_profiler_is_what_counts():
    events = [step(0, 0, 100), op("aten::a", 20, 10)]
    assert _overhead(events, 95, 20, 400) == [(17_500, 20_000), (97_500, 100_000)]


@pytest.mark.parametrize("reference_us", [(), (100,), (130,)])
def test_without_a_difference_nothing_was_added(reference_us):
    assert _overhead([step(0, 0, 100), op("aten::a", 20, 10)], *reference_us) == []


def test_steps_that_are_not_measured_and_pauses_have_no_part_in_it():
    events = [step(0, 0, 100), op("aten::a", 20, 10), pause(40, 50)]
    assert _overhead(events, 40) == [(15_000, 20_000), (95_000, 100_000)]


def _with_faults(events, reference_us, **counted) -> list[tuple[int, int]]:
    facts = facts_of(events, run=Run(reference_step_ns=(1000 * reference_us,), **counted))
    return [(int(s), int(e)) for s, e in zip(facts.overhead.where.start_ns, facts.overhead.where.end_ns, strict=True)]


GROWING = [step(0, 0, 100), op("aten::a", 20, 30), memory(25, 3000, 64), op("aten::b", 60, 30), memory(61, 1000, 128)]


def test_pages_that_only_the_recording_needed_are_taken_from_what_allocates():
    """Ten pages at 800 ns by the bytes, and nothing for the edges: the difference is 8 µs."""
    counted = {"reference_step_faults": (2,), "measured_step_faults": (12,), "page_fault_ns": 800}
    assert _with_faults(GROWING, 92, **counted) == [(44_000, 50_000), (88_000, 90_000)]


def test_pages_cost_no_more_than_the_difference_and_no_more_than_what_allocates_took():
    counted = {"reference_step_faults": (0,), "measured_step_faults": (1000,), "page_fault_ns": 1000}
    assert _with_faults(GROWING, 96, **counted) == [(47_000, 50_000), (89_000, 90_000)]
    most = [(15_000, 20_000), (25_000, 60_000), (61_000, 90_000), (95_000, 100_000)]
    assert _with_faults(GROWING, 1, **counted) == most


@pytest.mark.parametrize(
    "counted",
    [
        {"reference_step_faults": (12,), "measured_step_faults": (12,), "page_fault_ns": 800},
        {"reference_step_faults": (12,), "measured_step_faults": (2,), "page_fault_ns": 800},
        {"reference_step_faults": (2,), "measured_step_faults": (12,)},
        {"page_fault_ns": 800},
    ],
)
def test_without_more_pages_or_without_their_price_the_edges_take_all(counted):
    assert _with_faults(GROWING, 92, **counted) == _with_faults(GROWING, 92)


@pytest.mark.parametrize("wanted", [0.0, 1.0, 7.5, 30.0, 59.0, 60.0, 1000.0])
def test_the_level_fills_what_is_wanted_to_the_nanosecond(wanted):
    room, weight = np.array([30, 1, 10, 20], dtype=np.int64), np.array([2, 1, 1, 2], dtype=np.int64)
    filled = int(np.minimum(room, weight * _water_level(room, weight, wanted)).sum())
    assert min(wanted, 61.0) - weight.sum() < filled <= max(wanted, 0.0)


def _many(each_us: float, kernel_us: float, events: int = 1_000, stacks: bool = False):
    """Operators of half the time between them, one after another, and one kernel that the first launches."""
    step_us = each_us * events
    found = [step(0, 0, step_us), runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1),
             kernel("mm", 1, kernel_us, correlation=1)]  # fmt: skip
    make, name = (python, "f.py(1): f") if stacks else (op, "aten::add")
    repeated = [make(name, each_us * i + 1, each_us / 2) for i in range(events - 1)]
    return facts_of([op("aten::mm", 0.3, 0.1), *found, *repeated])


def test_without_steps_to_compare_with_the_cost_of_the_events_is_estimated():
    """A thousand operators at 2 µs each, of 10 ms."""
    facts = _many(10, 100)
    assert facts.overhead.total_ns == pytest.approx(2_000 * 1_000, rel=0.01)


def test_three_quarters_are_the_most_that_is_taken():
    assert _many(1, 10).overhead.total_ns == pytest.approx(0.75 * 1_000_000, rel=0.01)


def test_of_few_events_nothing_is_estimated():
    assert _many(10, 100, events=990).overhead.total_ns == 0


def test_without_a_device_nothing_is_estimated():
    facts = facts_of([step(0, 0, 10_000), *(op("aten::add", 10 * i, 5) for i in range(1_000))])
    assert facts.overhead.total_ns == 0


def test_waits_for_the_device_are_no_cost_of_the_recording():
    waiting = _many(10, 100)
    longer = facts_of([step(0, 0, 110_000), runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1),
                       kernel("mm", 1, 109_000, correlation=1), op("aten::mm", 0.3, 0.1),
                       *(op("aten::add", 10 * i + 1, 5) for i in range(999)),
                       runtime("cudaDeviceSynchronize", 10_000, 99_500)])  # fmt: skip
    assert longer.overhead.total_ns == pytest.approx(waiting.overhead.total_ns, rel=0.01)


@pytest.mark.parametrize(("kernel_us", "left_us"), [(3_000, 8_000), (4_200, 4_200)])
def test_a_host_that_may_be_as_fast_as_the_device_is_taken_to_be(kernel_us, left_us):
    """A thousand frames at 2 µs each leave 8 of 10 ms, and the host may be twice as fast as that."""
    facts = _many(10, kernel_us, stacks=True)
    assert 10_000_000 - facts.overhead.total_ns == pytest.approx(1_000 * left_us, rel=0.02)


def _waiting(kernel_us: float, step_us: float, reference_us: float):
    """A thousand operators in 10 ms, and then a wait of what is left of the step for a kernel that began at once."""
    events = [step(0, 0, step_us), runtime("cudaLaunchKernel", 0.1, 0.1, correlation=1), op("aten::mm", 0.05, 0.2),
              kernel("mm", 1, kernel_us, correlation=1), *(op("aten::add", 10 * i + 1, 5) for i in range(999)),
              runtime("cudaDeviceSynchronize", 10_000, step_us - 10_000)]  # fmt: skip
    return facts_of(events, run=Run(reference_step_ns=(round(1_000 * reference_us),)))


def test_a_wait_for_a_busy_device_hides_what_recording_cost_the_host():
    """The steps take as long with the profiler as without, since the device does: a thousand operators at 2 µs."""
    assert _waiting(19_900, 20_000, 20_000).overhead.total_ns == pytest.approx(2_000_000, rel=0.01)


def test_a_wait_hides_no_more_than_it_takes():
    assert _waiting(10_900, 11_000, 11_000).overhead.total_ns == pytest.approx(1_000_000, rel=0.01)


def test_a_wait_for_a_device_with_time_to_spare_hides_nothing():
    """The host bounds these steps, and their length says what recording added: nothing, or 1 ms."""
    assert _waiting(17_000, 20_000, 20_000).overhead.total_ns == 0
    assert _waiting(17_000, 20_000, 19_000).overhead.total_ns == pytest.approx(1_000_000, rel=0.01)
