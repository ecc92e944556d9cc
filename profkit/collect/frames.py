"""Reading running frames: their callers, names and local variables, without keeping what these hold alive."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
"""Flags of code whose frames can yield and resume."""
_FUNCTION = inspect.CO_OPTIMIZED
_MOST_SOURCE = 200
_UNSHARED = 3
"""References to a frame's cached dict that nobody else holds: the frame's, a local name, the argument below."""


def walk_up(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def source_file(code: CodeType) -> str:
    """The absolute path of the file; a name in angle brackets, as a prompt's or a notebook's, stays as it is.

    The code of the program itself may have the name that stood on the command line, relative to a working directory
    that it has left since: ``__main__`` knows the whole one.
    """
    name = code.co_filename
    if name.startswith("<") or os.path.isabs(name):
        return name if name.startswith("<") else os.path.abspath(name)
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    is_the_programs = isinstance(program, str) and os.path.isabs(program) and program.endswith(f"{os.sep}{name}")
    return os.path.abspath(str(program) if is_the_programs else name)


def function_name(code: CodeType) -> str:
    """The qualified name where Python has it (3.11); a comprehension belongs to the function around it."""
    name: str = getattr(code, "co_qualname", code.co_name)
    around, _, last = name.rpartition(".<locals>.")
    if last in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):
        return around or "<module>"
    return name


def source_line(file: str, line: int) -> str:
    """The text of the line without what is around it, cut where it is very long; empty where there is none."""
    return linecache.getline(file, line).strip()[:_MOST_SOURCE]


def forget_locals(frame: FrameType) -> None:
    """Empty the dict that a function's frame keeps once its ``f_locals`` were read.

    Before Python 3.13 that dict is a copy which holds every value until it is read again: a tensor that the function
    drops meanwhile would live on. A dict that the program got from ``locals()`` is the same one, and is left alone.
    Never call this for the frame whose trace callback is running: the callback's end copies the dict back.
    """
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & _FUNCTION:
        return
    cached = frame.f_locals
    if sys.getrefcount(cached) <= _UNSHARED:
        cached.clear()
