"""How much of the C library's heap is in use."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from profkit.collect.machine import heap

MB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_is_cached() -> Iterator[None]:
    heap._mallinfo2.cache_clear()
    yield
    heap._mallinfo2.cache_clear()


@pytest.mark.parametrize("size_mb", [1, 64])
@pytest.mark.skipif(heap.in_use_bytes() is None, reason="the C library does not tell what is in use")
def test_memory_counts_until_it_is_freed_inside_and_outside_the_heap(size_mb):
    """glibc maps the larger tensor separately."""
    before = heap.in_use_bytes() or 0
    tensor = torch.empty(size_mb * MB, dtype=torch.uint8)
    held = heap.in_use_bytes() or 0
    del tensor
    assert abs(held - before - size_mb * MB) < MB // 2
    assert abs((heap.in_use_bytes() or 0) - before) < MB // 2


def test_with_another_allocator_the_heap_in_use_is_unknown(monkeypatch):
    addresses = itertools.count()
    monkeypatch.setattr(heap, "_address", lambda _: next(addresses))
    assert heap.in_use_bytes() is None


def test_without_the_call_of_the_library_the_heap_in_use_is_unknown(monkeypatch):
    monkeypatch.setattr(heap, "_GLIBC", "libno-such-library.so.6")
    assert heap.in_use_bytes() is None
