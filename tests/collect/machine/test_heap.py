"""What the C library says of its heap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from profkit.collect.machine import heap

MB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    heap._mallinfo2.cache_clear()
    yield
    heap._mallinfo2.cache_clear()


@pytest.mark.parametrize("size_mb", [1, 64])
@pytest.mark.skipif(heap.in_use_bytes() is None, reason="the C library does not tell what is in use")
def test_what_is_in_use_counts_within_the_heap_and_beside_it_and_no_longer_once_it_is_freed(size_mb: int) -> None:
    """glibc has the system map the larger ones by themselves."""
    before = heap.in_use_bytes() or 0
    tensor = torch.empty(size_mb * MB, dtype=torch.uint8)
    held = heap.in_use_bytes() or 0
    del tensor
    assert abs(held - before - size_mb * MB) < MB // 2
    assert abs((heap.in_use_bytes() or 0) - before) < MB // 2


def test_behind_another_allocator_the_heap_says_nothing_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = itertools.count()
    monkeypatch.setattr(heap, "_address", lambda _: next(addresses))
    assert heap.in_use_bytes() is None


def test_of_a_library_without_the_call_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_GLIBC", "libno-such-library.so.6")
    assert heap.in_use_bytes() is None
