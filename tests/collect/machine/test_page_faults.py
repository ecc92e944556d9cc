"""Page faults, their price, switches, and the time in which a thread waited for a CPU."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from profkit.collect.machine import page_faults as faults
from profkit.collect.machine.page_faults import (
    count_crowded_ns,
    count_crowded_ns_of_all,
    count_faults,
    count_switches,
    measure_fault_ns,
)

_PAGES = 64


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not count page faults this way")
def test_each_new_page_is_a_fault():
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        before = count_faults()
        for page in range(_PAGES):
            memory[page * mmap.PAGESIZE] = 1
        assert count_faults() - before >= _PAGES


@pytest.mark.skipif(sys.platform == "win32", reason="as above")
def test_a_fault_has_a_price():
    price_ns = measure_fault_ns()
    assert price_ns is not None
    assert price_ns >= 0


def test_without_counts_from_the_system_there_is_no_price(monkeypatch):
    monkeypatch.setattr(faults, "resource", None)
    assert count_faults() == 0
    assert count_switches() is None
    assert measure_fault_ns() is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not count this way")
def test_each_sleep_is_a_switch():
    before = count_switches()
    for _ in range(5):
        time.sleep(0.001)
    after = count_switches()
    assert before is not None
    assert after is not None
    assert after - before >= 5


@pytest.mark.skipif(count_crowded_ns() is None, reason="only Linux counts this, where it was built to")
def test_time_in_which_another_program_has_the_cpu_is_counted():
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    other = subprocess.Popen(
        [sys.executable, "-c", "print('runs', flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    try:
        with other:
            assert other.stdout is not None
            other.stdout.readline()
            before = count_crowded_ns() or 0
            until = time.monotonic() + 30
            while (count_crowded_ns() or 0) < before + 10**6 and time.monotonic() < until:
                pass
            other.kill()
    finally:
        os.sched_setaffinity(0, mine)
    assert (count_crowded_ns() or 0) >= before + 10**6


@pytest.mark.skipif(count_crowded_ns() is None, reason="only Linux counts this, where it was built to")
def test_another_thread_may_ask_and_all_threads_together_waited_at_least_as_long():
    mine = threading.get_native_id()
    before = count_crowded_ns() or 0
    with ThreadPoolExecutor(1) as other:
        asked, of_all = other.submit(count_crowded_ns, mine).result(), other.submit(count_crowded_ns_of_all).result()
    assert before <= (asked or 0) <= min(of_all, count_crowded_ns() or 0)
    assert count_crowded_ns(2**30) is None


def test_without_scheduler_statistics_no_wait_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "_SCHEDSTAT", str(tmp_path / "missing"))
    assert count_crowded_ns() is None
    (tmp_path / "missing").write_text("0\n")
    assert count_crowded_ns() is None
