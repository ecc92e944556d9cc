"""The replayed caching allocator for CUDA: blocks, segments, and free neighbours that are joined again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from profkit.memory_planner.allocator import CachingAllocator, round_request

MIB = 1 << 20


def test_requests_are_multiples_of_512_bytes():
    assert [round_request(size) for size in (1, 512, 513, 4000)] == [512, 512, 1024, 4096]


def test_small_requests_share_a_segment_of_two_mebibytes():
    allocator = CachingAllocator()
    assert [allocator.take(size).size for size in (1, 1000, MIB)] == [512, 1024, MIB]
    assert allocator.reserved_bytes == 2 * MIB
    allocator.take(MIB)
    assert allocator.reserved_bytes == 4 * MIB


def test_medium_requests_share_a_segment_of_twenty_mebibytes():
    allocator = CachingAllocator()
    assert allocator.take(MIB + 1).size == MIB + 512
    assert allocator.reserved_bytes == 20 * MIB
    allocator.take(9 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_a_large_request_gets_a_segment_of_its_own():
    allocator = CachingAllocator()
    assert allocator.take(11 * MIB).size == 12 * MIB  # the rest is 1 MiB, not more
    assert allocator.reserved_bytes == 12 * MIB
    assert allocator.take(10 * MIB).size == 10 * MIB
    assert allocator.reserved_bytes == 22 * MIB


def test_the_rest_of_a_large_block_is_split_off_only_above_a_mebibyte():
    allocator = CachingAllocator()
    allocator.give_back(allocator.take(20 * MIB))
    whole = allocator.take(19 * MIB)
    assert whole.size == 20 * MIB
    allocator.give_back(whole)
    assert allocator.take(19 * MIB - 512).size == 19 * MIB - 512


def test_the_smallest_block_that_holds_a_request_is_taken():
    allocator = CachingAllocator()
    for block in [allocator.take(40 * MIB), allocator.take(20 * MIB)]:
        allocator.give_back(block)
    assert allocator.take(20 * MIB).size == 20 * MIB
    assert allocator.take(40 * MIB).size == 40 * MIB
    assert allocator.reserved_bytes == 60 * MIB


def test_free_neighbours_become_one_block():
    allocator = CachingAllocator()
    for block in [allocator.take(MIB // 2) for _ in range(4)]:
        allocator.give_back(block)
    assert allocator.take(MIB).size == MIB
    assert allocator.take(MIB).size == MIB
    assert allocator.reserved_bytes == 2 * MIB


@given(st.lists(st.tuples(st.integers(1, 60 * MIB), st.booleans()), max_size=60))
def test_no_byte_is_lost_or_given_twice(requests):
    allocator = CachingAllocator()
    held = []
    for size, frees in requests:
        if frees and held:
            allocator.give_back(held.pop(size % len(held)))
        held.append(allocator.take(size))
        assert held[-1].size >= size
    spans = sorted((block.address, block.size) for block in held)
    assert all(start + size <= after for (start, size), (after, _) in pairwise(spans))
    assert sum(size for _, size in spans) <= allocator.reserved_bytes
