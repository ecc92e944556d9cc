"""What a process that only reads a trace can do without, each for a tenth of the time that a trace takes."""

from __future__ import annotations

import gc
import os
from contextlib import suppress

_WHILE_IMPORTING = {
    "OPENBLAS_NUM_THREADS": "1",  # to start a thread per core takes as long as all the rest of the import
    "NUMPY_MADVISE_HUGEPAGE": "0",  # memory that the process has given up and takes again comes in small pages
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of the C library's ``mallopt`` (``malloc.h``)."""
_KEPT_BYTES = 128 << 20
_LARGE_BYTES = 32 << 20


def read_sparingly() -> None:
    """Import NumPy without the threads of its linear algebra, look for no cycles among millions of objects that have
    none, and keep the memory of one array for the next: the system clears each page that it gives out.

    The variables are put back at once, so that programs that are started later find them as they were.
    """
    gc.disable()
    own = {name: value for name, value in _WHILE_IMPORTING.items() if name not in os.environ}
    os.environ.update(own)
    try:
        import numpy  # noqa: F401  # for its effect
    finally:
        for name in own:
            del os.environ[name]
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Where the C library is glibc; of others nobody knows what they would do."""
    from ctypes import CDLL

    with suppress(AttributeError, OSError, TypeError):
        set_parameter = CDLL(None).mallopt
        set_parameter(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        set_parameter(_M_MMAP_THRESHOLD, _LARGE_BYTES)
