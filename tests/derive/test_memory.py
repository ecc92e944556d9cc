"""Memory from the allocator's events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.trace.events import NONE
from tests.traces import Json, facts_of, mark, memory, op, rows_named, step


def test_an_allocation_is_paired_with_the_free_at_its_address():
    facts = facts_of(
        [op("aten::empty", 0, 5), memory(1, 100, 64), memory(2, 50, 128), memory(3, -50, 128), memory(4, -100, 64)]
    )
    rows = rows_named(facts.trace, "[memory]")
    assert facts.memory.rows.tolist() == rows[:2]
    assert facts.memory.freed_by.tolist() == [rows[3], rows[2]]
    assert facts.memory.size_bytes.tolist() == [100, 50]
    assert facts.memory.peak_bytes == 150


def test_an_address_used_again_belongs_to_another_allocation():
    facts = facts_of([memory(0, 8, 64), memory(1, -8, 64), memory(2, 16, 64), memory(3, -16, 64), memory(4, 4, 64)])
    assert facts.memory.freed_by.tolist() == [1, 3, NONE]
    assert facts.memory.peak_bytes == 16


def test_an_allocation_without_a_recorded_free_is_still_live():
    facts = facts_of([memory(0, 8, 64), memory(1, 16, 64), memory(2, -16, 64), memory(3, -4, 1024)])
    assert facts.memory.freed_by.tolist() == [NONE, 2]


def test_a_free_is_not_paired_across_the_gap_after_the_located_step():
    """A free at an earlier address belongs to an allocation that was not recorded."""
    facts = facts_of(
        [
            step(0, 0, 50),
            mark(0, 1, 40),
            memory(5, 8, 64),
            memory(10, 8, 128),
            memory(11, -8, 128),
            step(2, 100, 50),
            memory(105, -8, 64),
            memory(110, 8, 64),
            memory(112, -8, 64),
        ]
    )
    rows = rows_named(facts.trace, "[memory]")
    assert facts.memory.rows.tolist() == [rows[0], rows[1], rows[4]]
    assert facts.memory.freed_by.tolist() == [NONE, rows[2], rows[5]]


def test_events_without_an_address_are_not_paired():
    events = [memory(0, 8, 64), memory(1, -8, 64)]
    for event in events:
        del event["args"]["Addr"]
    assert facts_of(events).memory.freed_by.tolist() == [NONE]


def test_live_bytes_are_followed_from_step_to_step():
    facts = facts_of(
        [
            step(0, 0, 10),
            memory(1, 100, 64),
            memory(5, 30, 128),
            memory(6, -30, 128),
            step(1, 10, 10),
            memory(12, 100, 256),
            memory(15, -1_000, 512),
            step(2, 20, 10),
            memory(20, 7, 1024),
        ]
    )
    assert facts.memory.live_at_step_end_bytes.tolist() == [100, -800, -793]
    assert facts.memory.peak_bytes == 200


def test_with_a_device_its_memory_counts():
    facts = facts_of([memory(0, 5_000, 64), memory(1, 8, 128, device_type=1), memory(2, 9, 256, device_type=6)])
    assert facts.memory.size_bytes.tolist() == [8, 9]
    assert facts.memory.peak_bytes == 17


def on_device(*events: tuple[int, int], device: int = 0, device_type: int = 1) -> list[Json]:
    """Allocations 1 µs apart, each with the total that the device holds after it."""
    return [
        memory(at, size, 64 * (at + 1), device_type=device_type, device=device, held=held)
        for at, (size, held) in enumerate(events)
    ]


@pytest.mark.parametrize("device_type", [1, 6])
def test_memory_held_before_the_recording_counts_if_totals_are_known(device_type):
    found = facts_of(on_device((10, 1_010), (30, 1_040), (-600, 440), (5, 445), device_type=device_type)).memory
    assert found.is_absolute
    assert found.held_bytes.tolist() == [1_010, 1_040, 440, 445]
    assert (found.base_bytes, found.peak_bytes, found.peaks) == (1_000, 1_040, ((0, 1_040),))
    assert found.live_at_step_end_bytes.tolist() == [440]  # the last event is at the end
    assert found.most_held_within(2_000, 9_000) == (3_000, 445)
    assert found.most_held_within(8_000, 9_000) == (8_000, 0)


def test_each_device_has_a_peak_of_its_own():
    first, second = on_device((10, 110), (-100, 10), (1, 11)), on_device((7, 57), (50, 107), (-7, 100), device=3)
    found = facts_of([event for pair in zip(first, second, strict=True) for event in pair]).memory
    assert found.peaks == ((0, 110), (3, 107))
    assert found.held_bytes.tolist() == [160, 167, 67, 117, 118, 111]  # of both
    assert found.peak_bytes == 167


def test_unrecorded_changes_of_memory_count_at_the_next_event():
    assert facts_of(on_device((10, 110), (10, 620))).memory.held_bytes.tolist() == [110, 620]


@pytest.mark.parametrize("held", [None, 0, 9])
def test_missing_or_impossible_totals_are_not_used(held):
    found = facts_of([*on_device((10, 110)), memory(1, 10, 640, device_type=1, held=held)]).memory
    assert not found.is_absolute
    assert (found.base_bytes, found.peak_bytes, found.peaks) == (0, 20, ())


def test_totals_of_the_host_do_not_show_memory_from_before_the_recording():
    assert not facts_of([memory(0, 10, 64, held=10)]).memory.is_absolute


def test_a_trace_without_memory_events_has_no_memory():
    facts = facts_of([op("aten::mul", 0, 5)])
    assert not facts.memory.present
    assert facts.memory.peak_bytes == 0
    assert facts.memory.live_at_step_end_bytes.tolist() == [0]


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(1, 99)), min_size=1, max_size=30))
def test_pairs_are_those_of_an_allocator_that_keeps_a_table(actions):
    events = [memory(i, size if allocates else -size, 64 * place) for i, (place, allocates, size) in enumerate(actions)]
    table: dict[int, int] = {}
    freed_by = {}
    for row, (place, allocates, _) in enumerate(actions):
        if allocates:
            table[place] = row
            freed_by[row] = NONE
        elif place in table:
            freed_by[table.pop(place)] = row
    facts = facts_of(events)
    assert dict(zip(facts.memory.rows.tolist(), facts.memory.freed_by.tolist(), strict=True)) == freed_by
