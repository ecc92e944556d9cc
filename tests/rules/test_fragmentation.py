"""Memory that is free only in small pieces, and free memory that is not fragmented."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.findings.values import Severity
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.fragmentation import fragmentation
from tests.snapshots import MIB, Recording, at, facts_of_snapshot
from tests.traces import facts_of, op

BASE = 1 << 40


def find(*recordings: Recording) -> list[Suspicion]:
    return list(fragmentation.check(facts_of_snapshot(*recordings)))


def pieces(count: int = 16, size: int = 64, expandable: bool = False) -> Recording:
    """``count`` segments of ``size`` MiB that are filled and then freed, except for one MiB in each."""
    recording = Recording(expandable=expandable)
    for i in range(count):
        recording.segment(BASE + 1000 * i * MIB, size * MIB, at(5))
        recording.alloc(BASE + 1000 * i * MIB, MIB, at(6), size=MIB)
        recording.alloc(BASE + (1000 * i + 1) * MIB, (size - 1) * MIB, at(7))
    for i in range(count):
        recording.free(BASE + (1000 * i + 1) * MIB, at(8))
    return recording


def ask(recording: Recording, size: int, line: int = 9) -> None:
    recording.segment(BASE - 2000 * MIB, size * MIB, at(line))
    recording.alloc(BASE - 2000 * MIB, size * MIB, at(line))


def test_a_request_for_new_memory_while_more_is_free_in_pieces_is_reported():
    """Of 1.75 GiB reserved at most 1 GiB is in use: a request for 768 MiB cannot use the 1008 MiB that are free."""
    recording = pieces()
    ask(recording, 768)
    (found,) = find(recording)
    assert found.location is not None
    assert found.location.line == 9
    assert [place.line for place in found.also] == [6], "what holds the pieces apart"
    assert found.size_bytes == 768 * MIB
    assert found.peak_fraction == pytest.approx(768 / (1024 + 768))
    assert found.evidence["free_bytes"] == 16 * 63 * MIB
    assert found.evidence["segment_bytes"] == 768 * MIB
    assert "expandable_segments:True" in found.fix


@pytest.mark.parametrize(
    ("count", "size", "asked", "fires"),
    [
        (16, 64, 256, True),
        (16, 64, 254, False),
        (60, 64, 384, False),
        (60, 64, 428, True),
    ],
    ids=["256 MiB", "less than 256 MiB", "less than a tenth", "a tenth"],
)
def test_requests_below_256_mib_or_a_tenth_of_the_memory_are_silent(count, size, asked, fires):
    recording = pieces(count, size)
    ask(recording, asked)
    assert bool(find(recording)) is fires


def test_free_memory_that_was_just_in_use_is_silent():
    """All the free memory was in use at the same time a moment before."""
    recording = Recording()
    for i in range(10):
        recording.segment(BASE + 1000 * i * MIB, 400 * MIB, at(5))
        recording.alloc(BASE + 1000 * i * MIB, 400 * MIB, at(5))
    for i in range(10):
        recording.free(BASE + 1000 * i * MIB, at(6))
    recording.segment(BASE + 20_000 * MIB, 2 * MIB, at(7))
    recording.alloc(BASE + 20_000 * MIB, 4096, at(7))
    assert find(recording) == []


def test_segments_reserved_before_the_history_are_silent():
    recording = Recording()
    for i in range(8):
        recording.segment(BASE + 1000 * i * MIB, 400 * MIB, is_older=True)
    recording.alloc(BASE, 4 * MIB, at(5))
    assert find(recording) == []


def test_a_new_segment_for_small_requests_is_silent():
    """Small requests have segments of their own, of 2 MiB, and may not use free memory of large segments."""
    recording = Recording()
    recording.segment(BASE, 1000 * MIB, at(5))
    recording.alloc(BASE, 400 * MIB, at(5))
    recording.segment(BASE + 2000 * MIB, 2 * MIB, at(7))
    recording.alloc(BASE + 2000 * MIB, 4096, at(7))
    assert find(recording) == []


@pytest.mark.parametrize("elsewhere", [{"stream": 7}, {"pool": (0, 3)}], ids=["another stream", "a CUDA graph's pool"])
def test_memory_that_is_free_in_another_stream_or_pool_is_silent(elsewhere):
    recording = Recording()
    recording.segment(BASE, 1000 * MIB, at(5), **elsewhere)
    recording.alloc(BASE, 1000 * MIB, at(5))
    recording.free(BASE, at(6))
    ask(recording, 768)
    assert find(recording) == []


def test_expandable_segments_are_silent():
    recording = pieces(expandable=True)
    ask(recording, 768)
    assert find(recording) == []


def test_a_request_that_fails_while_more_is_free_in_gaps_is_reported():
    recording = pieces()
    recording.fail(512 * MIB, 5 * MIB, at(9))
    (found,) = find(recording)
    assert found.severity is Severity.HIGH
    assert found.size_bytes == 16 * 63 * MIB
    assert "A request for 537 MB failed although 1.06 GB lay free inside used segments" in found.message
    assert "in 16 gaps of at most 66.1 MB" in found.message


def test_a_failed_request_larger_than_all_free_memory_is_silent():
    recording = pieces()
    recording.fail(1009 * MIB, 5 * MIB, at(9))
    assert find(recording) == []


def test_every_device_is_checked():
    healthy, broken = Recording(), pieces()
    healthy.segment(BASE, 64 * MIB, at(1))
    healthy.alloc(BASE, 64 * MIB, at(1))
    ask(broken, 768)
    broken.device = 1
    (found,) = find(healthy, broken)
    assert found.location is not None
    assert found.location.line == 9


def test_an_empty_snapshot_is_silent():
    assert find(Recording()) == []


def test_without_a_snapshot_the_rule_does_not_look():
    facts: Facts = facts_of([op("aten::mm", 1, 9)])
    assert missing_needs(facts, fragmentation.needs) == [Need.SNAPSHOT]
