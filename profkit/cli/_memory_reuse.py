"""What a process that only reads a trace can do without. Each of these saves about a tenth of the time."""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import suppress

_WHILE_IMPORTING = {
    "OPENBLAS_NUM_THREADS": "1",  # starting a thread per core takes as long as the rest of the import
    "NUMPY_MADVISE_HUGEPAGE": "0",  # memory that the process gave back and takes again comes in small pages
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of the C library's ``mallopt`` (``malloc.h``)."""
_WHILE_READING = (16 << 20, 3 << 19)
"""Bytes of freed memory that are kept, and the size from which an array has memory of its own, which is given back at
once. Parts of columns do, so that they make room for whole columns; the text that is decoded does not."""
_WHILE_JUDGING = (128 << 20, 32 << 20)
"""The same, such that what a rule computes of some million events reuses the memory of the rule before."""


def stop_collecting_garbage() -> None:
    """Do not look for reference cycles: a diagnosis makes hardly any, and then the process ends."""
    gc.disable()
    atexit.register(gc.freeze)  # or they would be searched once more at the end


def reuse_memory_for_columns() -> None:
    """Import NumPy without the threads of its linear algebra, and let freed memory make room for columns.

    The variables are restored at once, so that programs started later find them as they were.
    """
    own = {name: value for name, value in _WHILE_IMPORTING.items() if name not in os.environ}
    os.environ.update(own)
    try:
        import numpy  # noqa: F401  # for its effect
    finally:
        for name in own:
            del os.environ[name]
    _keep_freed_memory(*_WHILE_READING)


def reuse_memory_for_rules() -> None:
    """Once the trace is read, reuse the memory of one array for the next: the system clears each new page."""
    _keep_freed_memory(*_WHILE_JUDGING)


def _keep_freed_memory(kept_bytes: int, large_bytes: int) -> None:
    """Whether the C library is glibc; ``mallopt`` of others may do anything."""
    from ctypes import CDLL

    with suppress(AttributeError, OSError, TypeError):
        set_parameter = CDLL(None).mallopt
        set_parameter(_M_TRIM_THRESHOLD, kept_bytes)
        set_parameter(_M_MMAP_THRESHOLD, large_bytes)
