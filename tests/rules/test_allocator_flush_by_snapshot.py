"""Memory that is released to the driver and allocated again, found in a snapshot."""

from __future__ import annotations

import pytest

from profkit.findings.values import Severity
from profkit.rules.allocator_flush_in_step import allocator_flush_in_step
from profkit.rules.base import Suspicion
from tests.snapshots import MIB, TORCH, Frame, Recording, at, facts_of_snapshot, in_model

BASE = 1 << 40
EMPTYING: list[Frame] = [(f"{TORCH}/cuda/memory.py", 200, "empty_cache"), *at(20)]


def find(recording: Recording) -> list[Suspicion]:
    assert allocator_flush_in_step.by_snapshot is not None
    return list(allocator_flush_in_step.by_snapshot(facts_of_snapshot(recording)))


def flushed(times: int, stack: list[Frame], segments: int = 2, again: bool = True) -> Recording:
    """Each round fills segments of 32 MiB, frees them, and releases them to the driver from ``stack``."""
    recording = Recording()
    for i in range(times):
        for j in range(segments):
            place = BASE + 100 * (j + (0 if again else segments * i)) * MIB
            recording.put(place, 32 * MIB, in_model(31))
            recording.free(place, in_model(32))
        for j in range(segments):
            recording.release(BASE + 100 * (j + (0 if again else segments * i)) * MIB, stack)
    return recording


def test_emptying_the_cache_in_every_step_is_reported():
    (found,) = find(flushed(6, EMPTYING))
    assert found.location is not None
    assert found.location.line == 20
    assert found.count == 6
    assert found.severity is Severity.LOW
    assert "`empty_cache()` returns 403 MB of GPU memory to the driver, in 6 calls" in found.message
    assert found.evidence == {"times": 6, "freed_bytes": 384 * MIB, "bytes_asked_for_again": 320 * MIB}


def test_memory_released_by_an_allocation_is_reported_as_finding_no_room():
    (found,) = find(flushed(6, in_model(33)))
    assert found.location is not None
    assert found.location.line == 33
    assert "is short of memory" in found.message


@pytest.mark.parametrize("times", [3, 4])
def test_three_flushes_are_silent_and_four_are_reported(times):
    assert bool(find(flushed(times, EMPTYING))) is (times == 4)


def test_memory_that_is_not_requested_again_is_silent():
    """Ten segments are released one by one as the program ends, with small allocations in between."""
    recording = Recording()
    for i in range(10):
        recording.segment(BASE + 100 * i * MIB, 64 * MIB, at(3))
    for i in range(10):
        recording.release(BASE + 100 * i * MIB, EMPTYING)
        recording.put(BASE + (5000 + 100 * i) * MIB, 2 * MIB, at(4))
    assert find(recording) == []


def test_a_snapshot_without_a_history_is_silent():
    assert find(Recording()) == []
