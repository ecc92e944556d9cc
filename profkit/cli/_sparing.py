"""What a process that only reads a trace can do without, each for a tenth of the time that a trace takes."""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import suppress

_WHILE_IMPORTING = {
    "OPENBLAS_NUM_THREADS": "1",  # to start a thread per core takes as long as all the rest of the import
    "NUMPY_MADVISE_HUGEPAGE": "0",  # memory that the process has given up and takes again comes in small pages
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of the C library's ``mallopt`` (``malloc.h``)."""
_WHILE_READING = (16 << 20, 3 << 19)
"""How many bytes of freed memory are kept, and from how many on an array has memory of its own, which is given back at
once: the stretches of columns have, so that they make room for whole columns, and the text that is decoded has not."""
_WHILE_JUDGING = (128 << 20, 32 << 20)
"""The same, such that what a rule computes of some million events has the memory of what the one before computed."""


def collect_nothing() -> None:
    """Look for no cycles among the objects of one diagnosis, which has hardly any and then ends."""
    gc.disable()
    atexit.register(gc.freeze)  # or they would be looked through once more at the end


def read_sparingly() -> None:
    """Import NumPy without the threads of its linear algebra, and let the memory that is freed make room for columns.

    The variables are put back at once, so that programs that are started later find them as they were.
    """
    own = {name: value for name, value in _WHILE_IMPORTING.items() if name not in os.environ}
    os.environ.update(own)
    try:
        import numpy  # noqa: F401  # for its effect
    finally:
        for name in own:
            del os.environ[name]
    _keep_freed_memory(*_WHILE_READING)


def judge_sparingly() -> None:
    """Keep the memory of one array for the next, once the trace is read: the system clears each page that it gives
    out."""
    _keep_freed_memory(*_WHILE_JUDGING)


def _keep_freed_memory(kept_bytes: int, large_bytes: int) -> None:
    """Where the C library is glibc; of others nobody knows what they would do."""
    from ctypes import CDLL

    with suppress(AttributeError, OSError, TypeError):
        set_parameter = CDLL(None).mallopt
        set_parameter(_M_TRIM_THRESHOLD, kept_bytes)
        set_parameter(_M_MMAP_THRESHOLD, large_bytes)
