"""What the kernel counts of the process: page faults, with the cost of one, and how often and how long it did not run.

New memory from the system is filled with zeros page by page, as the program first touches it. A recording changes which
memory is new, as its events lie between the program's tensors.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]  # the module, elsewhere

_TRIAL_BYTES = 4 << 20
"""A thousand pages: a few milliseconds at most."""


def count_faults() -> int:
    """Pages that the process has been given so far; 0 if the system does not say."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def count_switches() -> int | None:
    """How often threads of the process have gone to sleep by themselves; None if the system does not say."""
    return None if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def count_crowded_ns() -> int | None:
    """How long this thread has waited for a CPU that another one had; None if the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    return None


def measure_fault_ns() -> int | None:
    """What a page fault takes, measured: the time of first writes to new memory, less that of second ones."""
    with suppress(OSError, ValueError, AttributeError), mmap.mmap(-1, _TRIAL_BYTES) as memory:
        block = (ctypes.c_char * _TRIAL_BYTES).from_buffer(memory)
        try:
            before = count_faults()
            first_ns, faults = _write_ns(block), count_faults() - before
            again_ns = _write_ns(block)
        finally:
            del block  # or the memory could not be given back
        return round(max(0, first_ns - again_ns) / faults) if faults else None
    return None


def _write_ns(block: ctypes.Array[ctypes.c_char]) -> int:
    begun = time.perf_counter_ns()
    ctypes.memset(block, 1, _TRIAL_BYTES)
    return time.perf_counter_ns() - begun
