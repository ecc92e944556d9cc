"""The import of NumPy in a process that only reads a trace."""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"


def import_numpy() -> None:
    """Import NumPy without the threads of its linear algebra, which reading needs none of.

    To start one per core takes as long as all the rest of the import. The variable is put back at once, so that
    programs that are started later find it as it was.
    """
    if _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401  # for its effect
    finally:
        del os.environ[_THREADS]
