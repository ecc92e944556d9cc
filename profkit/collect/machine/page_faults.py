"""The kernel's counts for the process: page faults and their cost, and how often and how long it did not run.

The system fills new memory with zeros page by page, when the program first touches it. A recording changes which memory
is new, because its events lie between the program's tensors.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from contextlib import suppress

from profkit.collect.program.clocks import time

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]  # a module on other systems

_TRIAL_BYTES = 4 << 20
"""A thousand pages, which take a few milliseconds at most."""
_SCHEDSTAT, _OF_THREAD, _THREADS = "/proc/thread-self/schedstat", "/proc/self/task/{}/schedstat", "/proc/self/task"


def count_faults() -> int:
    """The pages given to the process so far; 0 if the system does not say."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def count_switches() -> int | None:
    """How often threads of the process have gone to sleep voluntarily; None if the system does not say."""
    return None if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def count_peak_bytes() -> int:
    """The most memory that the process had so far; 0 if the system does not say."""
    unit = 1 if sys.platform == "darwin" else 1024
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def count_crowded_ns(thread: int | None = None) -> int | None:
    """How long this thread, or the one with that native number, has waited for a busy CPU; None if the system does not
    say.

    It takes 4 µs; `Path.read_text` takes 12, and this is called around each recorded step.
    """
    return _read_schedstat(_SCHEDSTAT if thread is None else _OF_THREAD.format(thread), 1)


def count_run_ns(thread: int) -> int | None:
    """The CPU time of the thread with this native number; None if the system does not say."""
    return _read_schedstat(_OF_THREAD.format(thread), 0)


def _read_schedstat(path: str, field: int) -> int | None:
    with suppress(OSError, ValueError, IndexError), open(path, "rb", buffering=0) as file:
        return int(file.read().split()[field])
    return None


def count_crowded_ns_of_all() -> int:
    """The same for all threads of the process together; 0 if the system does not say."""
    threads: list[str] = []
    with suppress(OSError):
        threads = os.listdir(_THREADS)
    return sum(count_crowded_ns(int(thread)) or 0 for thread in threads)


def measure_fault_ns() -> int | None:
    """The measured cost of a page fault: the time of first writes to new memory minus that of second writes."""
    with suppress(OSError, ValueError, AttributeError, BufferError), mmap.mmap(-1, _TRIAL_BYTES) as memory:
        block = (ctypes.c_char * _TRIAL_BYTES).from_buffer(memory)
        faults, took_ns = [count_faults()], list[int]()
        try:
            for _ in range(2):  # here, as a thread that looks at frames would keep another function's values
                begun = time.perf_counter_ns()
                ctypes.memset(block, 1, _TRIAL_BYTES)
                took_ns.append(time.perf_counter_ns() - begun)
                faults.append(count_faults())
        finally:
            del block  # else the memory could not be unmapped
        first = faults[1] - faults[0]
        return round(max(0, took_ns[0] - took_ns[1]) / first) if first else None
    return None
