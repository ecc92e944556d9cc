"""Frames of other threads, which may go on while somebody reads them.

Python 3.11 makes the object of a frame when it is asked for, and may collect garbage while it does. A callback of the
collector, or a `__del__`, then lets the other thread run: the frame is over, and the object made of it ends the process
with a segmentation fault in `PyFrame_GetBack`. Earlier versions have the objects; later ones collect between bytecodes
only (https://docs.python.org/3.12/whatsnew/3.12.html). So garbage waits for the microseconds in which frames are read.
If the program itself calls `gc.disable` just then, that is lost.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import FrameType

_COLLECTS_MEANWHILE = sys.version_info[:2] == (3, 11)
_reading: set[int] = set()
"""Threads that read frames."""
_waits: list[bool] = []
"""Not empty while garbage waits."""


class FramesOfThreads:
    """Gives the innermost frame of each thread, by its number. What calls them may be read in the ``with`` block, and
    not later."""

    def __enter__(self) -> dict[int, FrameType]:
        if _COLLECTS_MEANWHILE:
            if not _reading and gc.isenabled():
                gc.disable()
                _waits.append(True)
            _reading.add(threading.get_ident())
        innermost = sys._current_frames()
        innermost[threading.get_ident()] = sys._getframe(1)
        return innermost

    def __exit__(self, *_error: object) -> None:
        _reading.discard(threading.get_ident())
        if not _reading:
            _go_on()


def _go_on() -> None:
    if _waits:
        _waits.clear()
        gc.enable()


def _begin_child() -> None:
    """Of the threads that read, a forked child has none."""
    _reading.clear()
    _go_on()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_child)
