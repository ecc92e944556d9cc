"""Page faults are counted, and one has a price."""

from __future__ import annotations

import mmap
import sys
import time

import pytest

from profkit.collect import faults
from profkit.collect.faults import count_faults, count_switches, measure_fault_ns

_PAGES = 64


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not count page faults this way")
def test_each_new_page_is_a_fault() -> None:
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        before = count_faults()
        for page in range(_PAGES):
            memory[page * mmap.PAGESIZE] = 1
        assert count_faults() - before >= _PAGES


@pytest.mark.skipif(sys.platform == "win32", reason="as above")
def test_a_fault_takes_some_time() -> None:
    price_ns = measure_fault_ns()
    assert price_ns is not None
    assert price_ns >= 0


def test_where_the_system_does_not_count_there_is_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "resource", None)
    assert count_faults() == 0
    assert count_switches() is None
    assert measure_fault_ns() is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not count this way")
def test_each_sleep_is_a_switch() -> None:
    before = count_switches()
    for _ in range(5):
        time.sleep(0.001)
    after = count_switches()
    assert before is not None
    assert after is not None
    assert after - before >= 5
