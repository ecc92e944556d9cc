"""What a snapshot's history held when: pairs, rounding and splitting, and what the history does not reach."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.memory.allocations import follow_allocations
from profkit.derive.memory.allocator import describe_allocator, held_after
from profkit.trace.events import NONE
from tests.snapshots import MIB, Recording, at, snapshot_of

BASE = 1 << 40


def lone(size: int = 64 * MIB) -> Recording:
    recording = Recording()
    recording.segment(BASE, size, at(1))
    return recording


def sizes(recording: Recording, **how: int) -> list[int]:
    return sorted(follow_allocations(snapshot_of(recording, **how)).size_bytes.tolist())


def test_a_held_allocation_has_the_size_in_the_snapshot():
    recording = lone()
    recording.alloc(BASE, 3_000_000, at(2), size=3_000_320)
    found = follow_allocations(snapshot_of(recording))
    assert found.size_bytes.tolist() == [3_000_320]
    assert found.requested_bytes.tolist() == [3_000_000]
    assert found.freed_by.tolist() == [NONE]


@pytest.mark.parametrize(
    ("requested", "taken"),
    [(1, 512), (512, 512), (513, 1024), (3_000_000, 3_000_320)],
)
def test_a_freed_allocation_took_a_multiple_of_512_bytes(requested, taken):
    recording = lone()
    recording.alloc(BASE, requested, at(2))
    recording.free(BASE, at(3))
    assert sizes(recording) == [taken]


@pytest.mark.parametrize(
    ("left", "taken"),
    [(MIB, 10 * MIB + MIB), (MIB + 512, 10 * MIB), (512, 10 * MIB + 512)],
    ids=["the most that is given away", "split", "a little"],
)
def test_a_large_allocation_gets_the_rest_of_its_segment_up_to_one_mib(left, taken):
    recording = lone(10 * MIB + left)
    recording.alloc(BASE, 10 * MIB, at(2), size=taken)
    recording.free(BASE, at(3))
    assert sizes(recording) == [taken]


def test_a_neighbour_limits_the_rest_as_long_as_it_exists():
    """Of two allocations at one place the first has a neighbour, half a MiB behind its end, and the second has none."""
    recording = lone()
    recording.alloc(BASE, 10 * MIB, at(2))
    recording.alloc(BASE + 10 * MIB, 2 * MIB, at(3))
    recording.free(BASE, at(4))
    recording.alloc(BASE, 9 * MIB + MIB // 2, at(5), size=10 * MIB)
    recording.free(BASE, at(6))
    recording.free(BASE + 10 * MIB, at(7))
    recording.alloc(BASE, 9 * MIB + MIB // 2, at(8))
    recording.free(BASE, at(9))
    found = follow_allocations(snapshot_of(recording))
    in_order = found.size_bytes[np.argsort(found.made_by)].tolist()
    assert in_order == [10 * MIB, 2 * MIB, 10 * MIB, 9 * MIB + MIB // 2]


def test_in_an_expandable_segment_no_rest_is_added():
    recording = Recording(expandable=True)
    recording.segment(BASE, 11 * MIB, at(1))
    recording.alloc(BASE, 10 * MIB + 512, at(2))
    recording.free(BASE, at(3))
    assert sizes(recording) == [10 * MIB + 512]


def test_a_freed_segment_limits_the_rest():
    recording = lone(10 * MIB + 4096)
    recording.alloc(BASE, 10 * MIB, at(2), size=10 * MIB + 4096)
    recording.free(BASE, at(3))
    recording.release(BASE, at(4))
    assert sizes(recording) == [10 * MIB + 4096]


def test_the_peak_and_the_totals_match_the_allocator():
    """10 and 20 MiB are held together; the 20 are gone in the end and lie free beside them."""
    recording = lone()
    recording.alloc(BASE, 10 * MIB, at(2))
    recording.alloc(BASE + 10 * MIB, 20 * MIB, at(3))
    recording.free(BASE + 10 * MIB, at(4))
    recording.segment(BASE + 128 * MIB, 32 * MIB, at(5))
    use = describe_allocator(snapshot_of(recording)).fullest
    assert (use.allocated_bytes, use.reserved_bytes, use.peak_bytes) == (10 * MIB, 96 * MIB, 30 * MIB)
    assert (use.cached_bytes, use.split_bytes, use.inactive_split_bytes) == (32 * MIB, 54 * MIB, 54 * MIB)
    assert use.reserved_peak_bytes == 96 * MIB
    assert use.peak_row == 2


def test_allocations_older_than_the_history_are_held_from_its_start():
    """One piece is freed within the history, one is still held; both were there before."""
    recording = Recording()
    recording.segment(BASE, 64 * MIB, is_older=True)
    recording.alloc(BASE, 10 * MIB, is_older=True)
    recording.alloc(BASE + 10 * MIB, 4 * MIB, at(9), is_older=True)
    recording.free(BASE, at(3))
    allocator = describe_allocator(snapshot_of(recording))
    assert allocator.fullest.peak_bytes == 14 * MIB
    assert allocator.fullest.older_bytes == 14 * MIB
    assert allocator.fullest.peak_row == NONE
    assert allocator.allocations.made_by.tolist() == [NONE, NONE]
    assert held_after(allocator.allocations, 0, allocator.fullest.rows).tolist() == [14 * MIB, 4 * MIB, 4 * MIB]


def test_a_history_that_lost_its_beginning_still_adds_up():
    """The entries of the segment and of the first allocation are gone."""
    recording = lone()
    recording.alloc(BASE, 10 * MIB, at(2))
    recording.alloc(BASE + 10 * MIB, 20 * MIB, at(3))
    recording.free(BASE + 10 * MIB, at(4))
    use = describe_allocator(snapshot_of(recording, lost=2)).fullest
    assert (use.allocated_bytes, use.peak_bytes, use.older_bytes) == (10 * MIB, 30 * MIB, 10 * MIB)


def test_without_a_history_only_the_blocks_count():
    recording = lone()
    recording.alloc(BASE, 10 * MIB, at(2))
    use = describe_allocator(snapshot_of(recording, with_history=False)).fullest
    assert (use.allocated_bytes, use.peak_bytes, use.has_history) == (10 * MIB, 10 * MIB, False)


def test_each_device_is_counted_separately():
    """The same addresses, as devices may have."""
    first, second = lone(), Recording(device=1)
    first.alloc(BASE, 10 * MIB, at(2))
    second.segment(BASE, 32 * MIB, at(1))
    second.alloc(BASE, 20 * MIB, at(2))
    second.free(BASE, at(3))
    uses = describe_allocator(snapshot_of(first, second)).devices
    assert [(use.device, use.allocated_bytes, use.peak_bytes) for use in uses] == [
        (0, 10 * MIB, 10 * MIB),
        (1, 0, 20 * MIB),
    ]


def test_an_address_allocated_twice_was_freed_in_between():
    recording = lone()
    recording.alloc(BASE, 10 * MIB, at(2))
    recording.alloc(BASE, 12 * MIB, at(3))
    use = describe_allocator(snapshot_of(recording)).fullest
    assert (use.allocated_bytes, use.peak_bytes) == (12 * MIB, 12 * MIB)


def test_an_empty_snapshot_has_no_device():
    assert describe_allocator(snapshot_of(Recording())).devices == ()
