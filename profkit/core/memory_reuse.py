"""Savings for a process that only reads a trace. Each is worth about a tenth of the time."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_WHILE_IMPORTING = {
    "OPENBLAS_NUM_THREADS": "1",  # starting a thread per core takes as long as the rest of the import
    "NUMPY_MADVISE_HUGEPAGE": "0",  # memory that was given back and is taken again comes in small pages anyway
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of the C library's ``mallopt`` (``malloc.h``)."""
_WHILE_READING = (16 << 20, 3 << 19)
"""How much freed memory is kept, and the size from which an array gets its own memory, which is given back at once.
Parts of columns are larger, so they make room for whole columns; decoded text is smaller."""
_WHILE_JUDGING = (128 << 20, 32 << 20)
"""The same, chosen so that a rule's results over some million events reuse the memory of the rule before."""


def stop_collecting_garbage() -> None:
    """Do not look for reference cycles: a diagnosis makes hardly any, and the process ends soon."""
    gc.disable()
    atexit.register(gc.freeze)  # or Python would look once more at the end


@contextmanager
def collecting_later() -> Iterator[None]:
    """Look for no reference cycles meanwhile: hardly any are made by imports or by judging, which make many objects.

    What was made counts as old then. Else Python would at once look through all of it, which took 45 ms after imports.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            _count_all_as_old()
            gc.enable()


def _count_all_as_old() -> None:
    """Move all objects to the oldest generation, which is looked at least often."""
    if not gc.get_freeze_count():  # what somebody froze stays so
        gc.freeze()
        gc.unfreeze()


def reuse_memory_for_columns() -> None:
    """Import NumPy without threads for linear algebra, and let freed memory make room for columns.

    The variables are restored at once, for programs that are started later.
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
    """Once the trace is read, reuse the memory of one array for the next, because new pages must be cleared."""
    _keep_freed_memory(*_WHILE_JUDGING)


def _keep_freed_memory(kept_bytes: int, large_bytes: int) -> None:
    from ctypes import CDLL

    with suppress(AttributeError, OSError, TypeError):
        set_parameter = CDLL(None).mallopt
        set_parameter(_M_TRIM_THRESHOLD, kept_bytes)
        set_parameter(_M_MMAP_THRESHOLD, large_bytes)
