"""Many small tensors that are sent one after another, and some that cannot be sent together."""

from __future__ import annotations

import pytest

from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.host_sync_in_step import host_sync_in_step
from profkit.rules.many_small_transfers import many_small_transfers
from profkit.run.directory import Run
from profkit.savings.simulate import predict_saving
from tests.rules.transferring import PINNED, Json, computed, sent, stepped
from tests.traces import facts_of, kernel, mark, op, rows_named, runtime

KB = 1_000


def find(facts) -> list[Suspicion]:
    return list(many_small_transfers.check(facts))


def row(count: int, start: float = 10, *, pause: float = 5, size: int = 40 * KB, direction: str = PINNED) -> list[Json]:
    """Copies of 30 µs each: 20 µs of the host's own work, and 10 µs of which it waits 6."""
    starts = [(i + 1, start + (30 + pause) * i) for i in range(count)]
    return [
        event for number, at in starts for event in sent(at, size, direction, took=10, copied=2, correlation=number)
    ]


def test_one_call_takes_the_place_of_all():
    facts = facts_of(stepped(row(10), computed(370), length=400))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::to")
    assert found.evidence == {"transfers_per_step": 10.0, "bytes_per_step": 400 * KB, "host_ns_per_step": 300_000}
    assert found.message == (
        "10 small tensors a step are sent to the device one by one, 400 kB in all. The calls take the host 300 µs, and "
        "one would do."
    )
    kept_us = 30 - 6  # the first call, without its wait
    assert predict_saving(facts, found.edit).fraction == pytest.approx((345 - kept_us) / 400, abs=0.01)


def test_the_bytes_still_cross_the_bus():
    (found,) = find(facts_of(stepped(row(10), computed(370), steps=2, length=400)))
    assert found.edit.work_kept_ns.tolist() == [20_000, *[0] * 9] * 2  # no longer than the copies took, which is 20 µs


@pytest.mark.parametrize(("count", "reported"), [(7, 0), (8, 1)])
def test_a_batch_of_a_few_tensors_is_none(count, reported):
    assert len(find(facts_of(stepped(row(count), computed(370), length=400)))) == reported


@pytest.mark.parametrize(("size", "reported"), [(65_536, 1), (65_537, 0)])
def test_what_is_large_pays_for_its_call(size, reported):
    assert len(find(facts_of(stepped(row(10, size=size), computed(370), length=400)))) == reported


@pytest.mark.parametrize(("pause", "reported"), [(119, 1), (122, 0)])
def test_what_arrives_later_cannot_be_sent_with_the_others(pause, reported):
    facts = facts_of(stepped(row(8, pause=pause), computed(1300), length=1400))
    assert len(find(facts)) == reported


def test_what_the_device_works_on_before_the_next_comes_cannot_either():
    turns = [
        event
        for i in range(10)
        for event in (
            *sent(10 + 50 * i, 40 * KB, PINNED, took=10, copied=2, correlation=i + 1),
            *computed(42 + 50 * i, correlation=500 + i),
        )
    ]
    assert find(facts_of(stepped(turns, length=600))) == []


def test_copies_to_the_host_are_none():
    assert find(facts_of(stepped(row(10, direction="DtoH (Device -> Pinned)"), computed(370), length=400))) == []


def test_tensors_that_the_host_makes_up_are_told_of_elsewhere():
    made = [
        event
        for i in range(10)
        for event in (
            op("aten::rand", 10 + 40 * i, 6),
            op("aten::uniform_", 11 + 40 * i, 4),
            *sent(17 + 40 * i, 40 * KB, PINNED, took=10, copied=2, correlation=i + 1),
        )
    ]
    assert find(facts_of(stepped(made, computed(420), length=450))) == []


def test_calls_that_the_device_hides_give_nothing_back():
    busy = [
        op("aten::mm", 0, 4),
        runtime("cudaLaunchKernel", 1, 2, correlation=900),
        kernel("gemm", 2, 398, correlation=900, stream=9),
    ]
    assert find(facts_of(stepped(busy, row(10), computed(370), length=400))) == []


def test_each_line_that_a_row_begins_at_is_told():
    located = [mark(2, 9, 346), *row(10), *computed(360), mark(4, 399, 346), *row(10, 400), *computed(750)]
    later = [*row(10), *computed(360), *row(10, 400), *computed(750, correlation=501)]
    located = [*located[:-3], *computed(750, correlation=501)]
    for event in (*later, *located):
        if event["ts"] >= 400 and "correlation" in event["args"] and event["args"]["correlation"] <= 10:
            event["args"]["correlation"] += 20
    facts = facts_of([*stepped(located, steps=1, length=800), *stepped(later, first=1, length=800)])
    assert [set(facts.lines.site[found.rows]) for found in find(facts)] == [{2}, {4}]


def test_what_is_told_here_is_not_told_again_as_waits():
    facts = facts_of(stepped(row(10), computed(370), length=400))
    assert list(host_sync_in_step.check(facts)) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(1, 0), (2, 1)])
def test_it_counts_from_half_of_the_steps_on(steps_with, reported):
    events = [
        *stepped(row(10), computed(370), steps=steps_with, length=400),
        *stepped(computed(370), steps=4 - steps_with, first=steps_with, length=400),
    ]
    assert len(find(facts_of(events))) == reported


def test_a_recording_of_one_step_does_not_tell_parameters_from_a_batch():
    with pytest.raises(CannotLook, match="one step was recorded"):
        find(facts_of(stepped(row(10), computed(370), steps=1, length=400)))


@pytest.mark.parametrize(("number", "reported"), [(2, 1), (1, 0), (0, 0)])
def test_one_step_amid_the_program_is_like_the_others(number, reported):
    """profkit let steps pass before it, in which a model would have been sent."""
    facts = facts_of(stepped(row(10), computed(370), steps=1, first=number, length=400), run=Run(step_signal="step()"))
    if not reported:
        with pytest.raises(CannotLook, match="one step was recorded"):
            find(facts)
    else:
        (found,) = find(facts)
        assert found.confidence == 0.7


@pytest.mark.parametrize(
    ("pause", "plain_us", "is_marked", "reported"),
    [
        (130, 2000, True, 1),  # the step took three times as long, and so did what lies between its copies
        (260, 2000, True, 0),
        (130, 2000, False, 0),
        (130, None, True, 0),
        (130, 12000, True, 0),
    ],
)
def test_marks_on_lines_lengthen_the_time_between_copies(pause, plain_us, is_marked, reported):
    marks = [mark(0, 0, 5)] if is_marked else []
    events = stepped(marks, row(8, pause=pause), computed(2400), steps=1, first=3, length=6000)
    plain = (plain_us * 1000,) * 5 if plain_us else ()
    facts = facts_of(events, run=Run(step_signal="step()", reference_step_ns=plain))
    assert len(find(facts)) == reported


def test_without_a_gpu_the_rule_does_not_look():
    assert Need.DEVICE in missing_needs(facts_of(stepped([op("aten::mm", 10, 20)])), many_small_transfers.needs)
