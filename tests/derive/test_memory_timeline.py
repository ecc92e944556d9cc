"""Memory over the history, in a few columns."""

from __future__ import annotations

import pytest

from profkit.derive.memory.allocator import describe_allocator
from profkit.derive.memory.purposes import Purpose
from profkit.derive.memory.timeline import memory_timeline
from tests.snapshots import BACKWARD, MIB, Recording, at, in_model, moving, snapshot_of

BASE = 1 << 40


def training(steps: int = 3) -> Recording:
    """Parameters, then in each step an activation of 8 MiB that the backward pass frees."""
    recording = Recording()
    recording.put(BASE, 4 * MIB, moving())
    recording.segment(BASE + 100 * MIB, 16 * MIB, in_model(31))
    for _ in range(steps):
        recording.alloc(BASE + 100 * MIB, 8 * MIB, in_model(31))
        recording.free(BASE + 100 * MIB, BACKWARD)
    return recording


def test_the_timeline_has_the_bytes_of_each_purpose():
    """Two entries for the parameters, one for a segment, and of each step an allocation and two of its end."""
    allocator = describe_allocator(snapshot_of(training(1)))
    found = memory_timeline(allocator, allocator.fullest)
    assert found is not None
    assert found.entries.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert {purpose: (size // MIB).tolist() for purpose, size in found.held_bytes.items()} == {
        Purpose.PARAMETERS: [0, 0, 4, 4, 4, 4, 4],
        Purpose.ACTIVATIONS: [0, 0, 0, 0, 8, 0, 0],
    }
    assert (found.reserved_bytes // MIB).tolist() == [0, 4, 4, 20, 20, 20, 20]


@pytest.mark.parametrize("columns", [1, 2, 7, 50])
def test_fewer_columns_keep_the_peak(columns):
    allocator = describe_allocator(snapshot_of(training(40)))
    found = memory_timeline(allocator, allocator.fullest, columns)
    assert found is not None
    assert len(found.entries) == columns
    assert sum(found.held_bytes.values()).max() == allocator.fullest.peak_bytes == 12 * MIB


def test_without_a_history_there_is_no_timeline():
    allocator = describe_allocator(snapshot_of(training(), with_history=False))
    assert memory_timeline(allocator, allocator.fullest) is None


def test_lasting_memory_is_drawn_below_changing_memory():
    recording = training()
    recording.put(BASE + 200 * MIB, 2 * MIB, at(4))
    allocator = describe_allocator(snapshot_of(recording))
    found = memory_timeline(allocator, allocator.fullest)
    assert found is not None
    assert list(found.held_bytes) == [Purpose.PARAMETERS, Purpose.OWN, Purpose.ACTIVATIONS]
