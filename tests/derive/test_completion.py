"""A step ends when the host has reached its end and the device has finished the work launched until then."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from tests.traces import Json, annotation, facts_of, kernel, mark, op, python, runtime, step

LAUNCH = "cudaLaunchKernel"


def _us(values) -> list[float]:
    return [int(value) / 1000 for value in values]


def launched(at: float, start: float, length: float, number: int, stream: int = 7) -> list[Json]:
    return [runtime(LAUNCH, at, 2, correlation=number), kernel("mm", start, length, correlation=number, stream=stream)]


def ahead(steps: int = 4, kernel_us: float = 1_000) -> list[Json]:
    """The host takes 100 µs per step and runs ahead of the device, whose one kernel takes longer."""
    events = [op("aten::mm", 1, 1)]
    for n in range(steps):
        events += [step(n, 100 * n, 100), *launched(100 * n + 10, 20 + kernel_us * n, kernel_us, n + 1)]
    return events


def test_a_step_lasts_as_long_as_the_device_works_if_the_host_runs_ahead():
    steps = facts_of(ahead()).steps
    assert _us(steps.done_ns) == [1_020, 2_020, 3_020, 4_020]
    assert _us(steps.duration_ns) == [1_020, 1_000, 1_000, 1_000]
    assert _us(steps.host_ns) == [100] * 4
    assert steps.median_ns == 1_000_000


def test_work_belongs_to_the_step_that_launched_it():
    """The second step launches nothing: it ends on the host, although the device still works on the first."""
    facts = facts_of(
        [
            step(0, 0, 100),
            step(1, 100, 100),
            step(2, 200, 100),
            op("aten::mm", 1, 1),
            *launched(10, 20, 500, 1),
            *launched(210, 530, 100, 2),
        ]
    )
    assert _us(facts.steps.duration_ns) == [520, 0, 110]


def test_a_step_lasts_as_long_as_the_host_works_if_the_device_keeps_up():
    steps = facts_of(ahead(kernel_us=50)).steps
    assert _us(steps.duration_ns)[:3] == [100, 100, 100]


def test_work_launched_before_the_recording_belongs_to_no_step():
    """The first kernel has no recorded launch: it kept the device busy until the work of the first step began."""
    known = [
        event
        for n in range(3)
        for event in (step(n, 100 * n, 100), *launched(100 * n + 10, 2_000 + 1_000 * n, 1_000, n + 1))
    ]
    steps = facts_of([op("aten::mm", 1, 1), kernel("mm", 5, 1_990, correlation=99), *known]).steps
    assert _us(steps.begun_ns) == [1_995, 3_000, 4_000]
    assert _us(steps.duration_ns) == [1_005, 1_000, 1_000]


def test_without_recorded_earlier_work_the_first_step_begins_with_its_own():
    events = [
        event
        for n in range(3)
        for event in (step(n, 100 * n, 100), *launched(100 * n + 10, 2_000 + 1_000 * n, 1_000, n + 1))
    ]
    assert _us(facts_of([op("aten::mm", 1, 1), *events]).steps.duration_ns) == [1_000, 1_000, 1_000]


def test_a_first_step_lasts_at_least_as_long_as_the_host_works_in_it():
    """The device is busy with earlier work for 2 ms of the 3 ms that the host takes."""
    events = [
        op("aten::mm", 1, 1),
        kernel("mm", 5, 1_990, correlation=99),
        step(0, 0, 3_000),
        *launched(10, 2_000, 10, 1),
        step(1, 3_000, 3_000),
        *launched(3_010, 3_020, 10, 2),
    ]
    assert _us(facts_of(events).steps.duration_ns) == [3_000, 3_000]


def test_a_step_that_lost_much_of_its_work_is_left_out_if_another_is_complete():
    whole = ahead(steps=3)
    assert facts_of(whole).steps.measured.tolist() == [True, True, True]
    lost = [event for event in whole if not (event["cat"] == "kernel" and event["args"]["correlation"] == 3)]
    assert facts_of(lost).steps.measured.tolist() == [True, True, False]


def test_if_the_device_only_does_earlier_work_a_step_lasts_as_long_as_on_the_host():
    """The only measured step launches nothing, and the located step before it keeps the device busy throughout."""
    located = [step(0, 0, 100), mark(1, 1, 2), op("aten::mm", 1, 1), *launched(10, 20, 500, 1)]
    facts = facts_of([*located, step(1, 100, 80)])
    assert facts.steps.measured.tolist() == [False, True]
    assert facts.steps.median_ns == 80_000


def test_without_a_device_a_step_lasts_as_long_as_on_the_host():
    steps = facts_of([op("aten::mm", 1, 1), step(0, 0, 100), step(1, 110, 100)]).steps
    assert _us(steps.begun_ns) == _us(steps.start_ns) == [0, 110]
    assert _us(steps.done_ns) == _us(steps.end_ns) == [100, 210]


def test_time_spent_in_all_steps_is_the_same_share_of_the_median_step():
    steps = facts_of([op("aten::mm", 1, 1), step(0, 0, 100), step(1, 100, 100), step(2, 200, 400)]).steps
    assert steps.measured_ns == 600_000
    assert steps.per_step_ns(300_000) == 50_000  # half of 100 µs, not a third of 300


def _main_thread(facts: Facts) -> str:
    return facts.trace.lanes[facts.steps.main_lane].thread


@pytest.mark.parametrize("stacks", [False, True])
def test_the_backward_thread_is_not_the_main_thread_however_long_it_works(stacks):
    frames = [python("train.py(1): main", 0, 1_000)] if stacks else []
    node = [op("autograd::engine::evaluate_function: MmBackward0", 100, 800, tid=2), op("aten::mm", 110, 700, tid=2)]
    facts = facts_of([*frames, op("aten::linear", 10, 50), *node])
    assert _main_thread(facts) == "1"


def test_the_thread_that_steps_the_optimizer_is_the_main_thread():
    facts = facts_of([op("aten::conv2d", 0, 900, tid=3), annotation("Optimizer.step#SGD.step", 10, 20), mark(1, 5, 90)])
    assert _main_thread(facts) == "1"
