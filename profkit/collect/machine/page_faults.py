"""What the kernel counts of the process: its page faults, and what one costs on this machine; how often and how long it
did not run.

Memory that the C library got from the system anew is filled with zeros page by page, as the program first touches it.
A recording changes which memory is new: its own events lie between the program's tensors.
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
    """Pages that the process has been given so far; 0 where the system does not say."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def count_switches() -> int | None:
    """How often threads of the process went to sleep so far, by themselves; None where the system does not say."""
    return None if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def count_crowded_ns() -> int | None:
    """How long this thread could have run so far but another one had its CPU; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    return None


def measure_fault_ns() -> int | None:
    """What it takes to be given one page, from a trial: first writes to new memory less second ones."""
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
