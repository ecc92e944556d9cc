"""Reading running frames, their callers and local variables, without keeping the values alive."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
"""Flags of code whose frames can yield and resume."""
_CALLBACKS = frozenset(
    str(Path(__file__).parents[1].joinpath(*parts))
    for parts in (("sessions", "lines.py"), ("boundaries", "loop_rounds.py"))
)
"""The files of the functions that Python calls while it traces."""
_FUNCTION = inspect.CO_OPTIMIZED
_UNSHARED = 3
"""References to a cached dict that only the frame holds: its own, a local name, the argument of `sys.getrefcount`."""


def walk_up(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def line_of(frame: FrameType) -> int:
    """The line that the frame is at.

    Some instructions have none, such as the jump back of a loop whose body ends in an ``except``: then it is that of
    the last instruction before it that has one. Another thread often sees a frame just there, as Python changes threads
    at jumps back.
    """
    line: int | None = frame.f_lineno
    if line is not None:
        return line
    code = frame.f_code
    before = [number for start, _, number in code.co_lines() if number is not None and start <= frame.f_lasti]
    return before[-1] if before else code.co_firstlineno


def traced_frame(frame: FrameType | None) -> FrameType | None:
    """The caller of ``frame`` whose line or call a callback is handling, None if no callback is running."""
    for caller in walk_up(frame):
        around = caller.f_back
        if caller.f_code.co_filename in _CALLBACKS and around and around.f_code.co_filename not in _CALLBACKS:
            return around
    return None


def is_at_work(frame: FrameType | None) -> bool:
    """Whether ``frame`` is called from a tracer's callback."""
    return traced_frame(frame) is not None


def forget_locals(frame: FrameType) -> None:
    """Empty the dict that a function's frame keeps once its ``f_locals`` was read.

    Before Python 3.13 that dict is a copy that holds every value until the next read, so a tensor lives on after the
    function drops it. If the program got the same dict from ``locals()``, leave it alone. So is that of the frame whose
    trace callback is running: when the callback ends, Python copies the dict back into the frame.
    """
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & _FUNCTION:
        return
    if frame is traced_frame(sys._getframe()):
        return
    cached = frame.f_locals
    if sys.getrefcount(cached) <= _UNSHARED:
        cached.clear()
