"""Data that go to the device from memory that is not pinned, and copies that cost nothing."""

from __future__ import annotations

import pytest

from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.host_sync_in_step import host_sync_in_step
from profkit.rules.pageable_transfer import pageable_transfer
from profkit.savings.simulate import predict_saving
from tests.rules.transferring import PINNED, TO_PAGEABLE, computed, sent, stepped
from tests.traces import facts_of, mark, op, rows_named

MB = 1_000_000
A100 = [{"name": "NVIDIA A100-SXM4-40GB"}]


def find(facts) -> list[Suspicion]:
    return list(pageable_transfer.check(facts))


def test_the_host_goes_on_and_the_copy_takes_what_it_takes_from_pinned_memory():
    facts = facts_of(stepped(sent(10, MB), computed(140)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::to")
    assert found.message == (
        "1.00 MB a step is copied to the device from memory that is not pinned, at 10.5 GB/s. The host waits 100 µs "
        "and launches nothing. Pinned memory reaches 13.4 GB/s on such a link."
    )
    assert found.evidence == {
        "bytes_per_step": MB,
        "waited_ns_per_step": 100_000,
        "waited_for_earlier_work_ns_per_step": 0,
        "pinned_bytes_per_second": 13_387_500_000,
    }
    assert predict_saving(facts, found.edit).fraction == pytest.approx(100 / 200, abs=0.01)


def test_the_data_sheet_of_the_gpu_tells_the_rate_of_its_link():
    (found,) = find(facts_of(stepped(sent(10, MB), computed(140)), deviceProperties=A100))
    assert found.evidence["pinned_bytes_per_second"] == 26_775_000_000
    assert found.edit.work_kept_ns.tolist() == [1_400 + 37_348] * 4
    assert found.edit.uncertainty == 0.3


def test_pinned_copies_of_the_same_recording_tell_it_better():
    pinned = sent(150, 2 * MB, PINNED, took=20, copied=40, correlation=2, stream=8, synchronises=False)
    (found,) = find(facts_of(stepped(sent(10, MB), computed(140), pinned), deviceProperties=A100))
    assert found.evidence["pinned_bytes_per_second"] == 50_000_000_000
    assert found.edit.uncertainty == 0.1
    assert "50.0 GB/s here" in found.message


def test_the_small_tensors_of_the_batch_are_mended_with_it():
    labels = sent(132, 256, took=10, copied=2, correlation=2)
    facts = facts_of(stepped(sent(10, MB), labels, computed(165)))
    (found,) = find(facts)
    assert found.count == 1
    assert len(found.edit.work) == 2 * 4
    device_ends_later_us = 18.5
    expected = (4 * 110 - device_ends_later_us) / 800
    assert predict_saving(facts, found.edit).fraction == pytest.approx(expected, abs=1e-3)


def test_a_small_tensor_behind_a_kernel_is_another_matter():
    (found,) = find(facts_of(stepped(sent(10, MB), computed(135), sent(150, 256, took=10, copied=2, correlation=2))))
    assert len(found.edit.work) == 4


def test_non_blocking_alone_does_not_help():
    (found,) = find(facts_of(stepped(sent(10, MB, synchronises=False), computed(140))))
    assert "`non_blocking=True` does not help" in found.message


@pytest.mark.parametrize(("kernel_us", "before_us"), [(80, 62), (90, 72)])
def test_a_wait_for_what_was_queued_before_is_told_apart_where_it_is_most_of_it(kernel_us, before_us):
    facts = facts_of(stepped(computed(0, took=kernel_us, delay=2), sent(12, MB, took=130, copied=60), computed(165)))
    (found,) = find(facts)
    assert found.evidence["waited_for_earlier_work_ns_per_step"] == before_us * 1_000
    queued = f"130 µs, {before_us}.0 µs of it for work queued before, and launches"
    assert (queued in found.message) == (before_us >= 65)


def test_data_sent_on_a_stream_of_their_own_would_cost_less_still():
    facts = facts_of(stepped(sent(10, 2 * MB, took=120), computed(150, took=140), length=310))
    (found,) = find(facts)
    assert "on its own stream" in found.message


def test_the_line_is_that_of_the_copy():
    located = [mark(2, 9, 125), *sent(10, MB), mark(3, 135, 20), *computed(140)]
    facts = facts_of([*stepped(located, steps=1), *stepped(sent(10, MB), computed(140), first=1)])
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {2}


@pytest.mark.parametrize(("size", "reported"), [(65_536, 0), (65_537, 1)])
def test_what_cuda_stages_by_itself_is_small(size, reported):
    assert len(find(facts_of(stepped(sent(10, size), computed(140))))) == reported


@pytest.mark.parametrize(("steps_with", "reported"), [(1, 0), (2, 1)])
def test_it_counts_from_half_of_the_steps_on(steps_with, reported):
    events = [
        *stepped(sent(10, MB), computed(140), steps=steps_with),
        *stepped(computed(140), steps=4 - steps_with, first=steps_with),
    ]
    assert len(find(facts_of(events))) == reported


@pytest.mark.parametrize(
    "parts",
    [
        [sent(10, MB, PINNED), computed(140)],
        [sent(10, MB, TO_PAGEABLE), computed(140)],
        [computed(0, took=199, delay=1, stream=9, correlation=3), sent(12, MB), computed(140, took=1)],
        [[{**event, "tid": 2} if event["pid"] == 1 else event for event in sent(10, MB)], computed(140)],
        [[op("aten::rand", 1, 8), op("aten::uniform_", 2, 5)], sent(10, MB), computed(140)],
    ],
    ids=["pinned", "to the host", "hidden behind other work", "on a thread of its own", "made up by the host"],
)
def test_copies_that_hold_nobody_up_or_that_another_rule_tells_of_are_silent(parts):
    assert find(facts_of(stepped(*parts))) == []


def test_what_is_told_here_is_not_told_again_as_a_wait():
    assert list(host_sync_in_step.check(facts_of(stepped(sent(10, MB), computed(140))))) == []


def test_parameters_that_are_sent_in_a_row_are_no_batches_in_a_recording_of_one_step():
    row = [event for i in range(3) for event in sent(10 + 130 * i, MB, correlation=i + 1)]
    with pytest.raises(CannotLook, match="one step was recorded"):
        find(facts_of(stepped(row, computed(400), steps=1, length=500)))


def test_copies_between_kernels_are_batches_even_in_a_recording_of_one_step():
    turns = [
        event
        for i in range(3)
        for event in (*sent(10 + 150 * i, MB, correlation=i + 1), *computed(135 + 150 * i, correlation=500 + i))
    ]
    (found,) = find(facts_of(stepped(turns, steps=1, length=500)))
    assert found.confidence == 0.7


def test_where_the_memory_is_not_named_nothing_can_be_said():
    with pytest.raises(CannotLook, match="does not say which of the host's memory is pinned"):
        find(facts_of(stepped(sent(10, MB, "HtoD (Host -> Device)"), computed(140))))


def test_copies_without_a_call_cannot_be_judged():
    events = [event for event in stepped(sent(10, MB), computed(140)) if event["cat"] != "cuda_runtime"]
    with pytest.raises(CannotLook, match="does not say which calls copy"):
        find(facts_of(events))


def test_without_a_gpu_the_rule_does_not_look():
    facts = facts_of(stepped([op("aten::mm", 10, 20)]))
    assert Need.DEVICE in missing_needs(facts, pageable_transfer.needs)


@pytest.mark.parametrize(("longest_us", "counted"), [(290, 10), (310, 9)])
def test_a_stop_of_the_machines_in_one_step_is_no_cost_of_the_memory(longest_us, counted):
    """Up to three times the usual wait counts. Beyond that, what the others wait is told of all steps, and that one
    gives back nothing."""
    usual = stepped(sent(10, MB), computed(140), steps=9, length=800)
    longer = stepped(sent(10, MB, took=longest_us), computed(longest_us + 60), first=9, steps=1, length=800)
    (found,) = find(facts_of([*usual, *longer]))
    assert len(found.edit.work) == counted
    assert found.evidence["bytes_per_step"] == MB
    mean_us = (9 * 100 + longest_us) / 10 if counted == 10 else 100
    assert found.evidence["waited_ns_per_step"] == pytest.approx(1000 * mean_us, abs=500)
