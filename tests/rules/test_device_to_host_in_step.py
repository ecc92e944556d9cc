"""Data that the host reads in the middle of a step, small reads at its end, and copies that nobody waits for."""

from __future__ import annotations

import pytest

from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.device_to_host_in_step import device_to_host_in_step
from profkit.rules.host_sync_in_step import host_sync_in_step
from profkit.run.directory import Run
from profkit.savings.simulate import predict_part, predict_saving
from tests.rules.transferring import PINNED, TO_PAGEABLE, TO_PINNED, Json, computed, sent, stepped
from tests.traces import facts_of, mark, op, pause, rows_named, runtime

KB = 1_000
READ_US = 80
"""How long the host waits in `read`."""


def find(facts) -> list[Suspicion]:
    return list(device_to_host_in_step.check(facts))


def read(start: float, size: int = 700, kind: str = TO_PAGEABLE, correlation: int = 1, **more: object) -> list[Json]:
    """``x.cpu()`` of 100 µs, queued behind a kernel that ends about 70 µs after the call begins."""
    return sent(start, size, kind, took=READ_US, copied=5, correlation=correlation, **more)


def amid() -> list[Json]:
    return [*computed(0, took=82, delay=6), *read(15), *computed(120, correlation=501)]


def test_a_small_read_costs_the_wait_for_the_work_queued_before_it():
    facts = facts_of(stepped(amid()))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::to")
    assert found.message == (
        "The host reads 700 B from the device once a step and waits 80.0 µs, 65.0 µs of it for work queued "
        "before. Meanwhile it launches nothing. Without that the step would be 40 % shorter."
    )
    assert found.evidence == {
        "bytes_per_step": 700,
        "waited_ns_per_step": 80_000,
        "waited_for_earlier_work_ns_per_step": 65_000,
    }
    assert predict_saving(facts, found.edit).fraction == pytest.approx(80 / 200, abs=0.02)


def test_a_read_shares_the_joint_saving_with_reads_of_single_numbers():
    number = [
        op("aten::item", 150, 40),
        op("aten::_local_scalar_dense", 151, 38),
        *sent(152, 4, TO_PINNED, took=15, copied=2, correlation=7)[2:],
    ]
    facts = facts_of(stepped(amid(), number))
    (found,) = find(facts)
    assert found.joint is not None
    assert 0.5 < found.part < 1.0
    assert predict_part(facts, found.joint, found.part).fraction < predict_saving(facts, found.joint).fraction


def test_the_reported_line_makes_the_read():
    located = [mark(2, 0, 12), *computed(0, took=82), mark(5, 14, 104), *read(15), *computed(120, correlation=501)]
    facts = facts_of([*stepped(located, steps=1), *stepped(amid(), first=1)])
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {5}


@pytest.mark.parametrize(("size", "reported"), [(16, 0), (17, 1)])
def test_a_read_of_a_single_number_is_left_to_host_sync_in_step(size, reported):
    facts = facts_of(stepped(computed(0, took=82), read(15, size), computed(120, correlation=501)))
    assert len(find(facts)) == reported
    assert len(list(host_sync_in_step.check(facts))) == 1 - reported


@pytest.mark.parametrize(("size", "reported"), [(65_536, 0), (65_537, 1)])
def test_a_small_read_at_the_end_of_a_step_is_left_to_host_sync_in_step(size, reported):
    facts = facts_of(stepped(computed(0, took=82), read(15, size)))
    assert len(find(facts)) == reported
    assert len(list(host_sync_in_step.check(facts))) == 1 - reported


def test_a_read_at_the_start_of_a_step_is_silent():
    assert find(facts_of(stepped(read(5), computed(120, took=60)))) == []


def test_a_read_from_a_device_that_is_busy_throughout_is_silent():
    busy = computed(0, took=198, delay=1, stream=9, correlation=700)
    assert find(facts_of(stepped(busy, computed(11, took=2), read(25), computed(130, took=2, correlation=501)))) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(1, 0), (2, 1)])
def test_reads_in_fewer_than_half_of_the_steps_are_silent(steps_with, reported):
    events = [*stepped(amid(), steps=steps_with), *stepped(computed(0), steps=4 - steps_with, first=steps_with)]
    assert len(find(facts_of(events))) == reported


def test_it_cannot_look_at_a_recording_of_one_step():
    with pytest.raises(CannotLook, match="one step was recorded"):
        find(facts_of(stepped(amid(), steps=1)))


def test_one_step_amid_the_program_is_like_the_others():
    (found,) = find(facts_of(stepped(amid(), steps=1, first=4), run=Run(step_signal="step()")))
    assert found.confidence == 0.7


def test_copies_to_the_device_are_silent():
    facts = facts_of(stepped(computed(0, took=82), read(15, 700, PINNED), computed(120, correlation=501)))
    assert find(facts) == []


# Copies with non_blocking=True

SHAPES = "[[64,10],[]]"
FLOATS = '["float","Scalar"]'


def promised(start: float = 15, **more: object) -> list[Json]:
    """``x.to("cpu", non_blocking=True)`` of 25 µs. The device begins to copy 30 µs after the call."""
    return [
        op("aten::to", start, 25, dims=SHAPES, types=FLOATS),
        op("aten::copy_", start + 3, 20),
        runtime("cudaMemcpyAsync", start + 5, 5, correlation=1),
        *sent(start + 30, 2560, TO_PINNED, took=20, copied=20, **more)[3:4],
    ]


def used(start: float = 45, dims: str = SHAPES, types: str = FLOATS) -> list[Json]:
    return [op("aten::softmax", start, 5, dims=dims, types=types)]


def test_a_non_blocking_copy_that_is_used_before_it_ends_is_reported():
    facts = facts_of(stepped(computed(0), promised(), used()))
    (found,) = find(facts)
    assert found.severity is Severity.MEDIUM
    assert found.edit is None
    assert "may compute with what that memory held before" in found.message
    assert "done.synchronize()" in found.fix


@pytest.mark.parametrize(
    "parts",
    [
        [promised()],
        [promised(), used(dims="[[64,11],[]]")],
        [promised(), used(types='["long int","Scalar"]')],
        [promised(), used(start=120)],
        [promised(), [runtime("cudaEventSynchronize", 41, 3)], used()],
        [promised(), used(), [runtime("cudaEventSynchronize", 150, 3)]],
        [promised(), [runtime("cudaEventQuery", 41, 3)], used()],
        [promised(), [op("aten::view", 45, 5, dims=SHAPES, types=FLOATS)]],
        [promised(), [op("aten::mul", 45, 9, dims=SHAPES, types=FLOATS), *computed(45, correlation=800)[1:]]],
    ],
    ids=[
        "unused",
        "another shape",
        "another type",
        "long after the copy",
        "awaited",
        "awaited before the next one",
        "asked for",
        "only looked at",
        "computed on the device",
    ],
)
def test_a_non_blocking_copy_that_is_awaited_or_not_used_is_silent(parts):
    assert find(facts_of(stepped(computed(0), *parts))) == []


def test_an_event_query_by_the_pinned_memory_allocator_is_not_a_wait():
    asked = [runtime("cudaEventQuery", 17, 0.5)]
    assert len(find(facts_of(stepped(computed(0), promised(), asked, used())))) == 1


def test_a_wait_by_profkit_itself_is_not_a_wait_for_the_copy():
    paused = [pause(150, 20), runtime("cudaDeviceSynchronize", 155, 5)]
    assert len(find(facts_of(stepped(computed(0), promised(), used(), paused)))) == 1


def test_without_a_gpu_the_rule_does_not_look():
    assert Need.DEVICE in missing_needs(facts_of(stepped([op("aten::mm", 10, 20)])), device_to_host_in_step.needs)
