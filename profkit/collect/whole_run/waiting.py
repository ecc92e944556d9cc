"""Where the program goes on while its main thread waits: in another thread, or in a coroutine.

A thread that joins another, or waits for a result of a pool, shows no more than its own line. A coroutine that waits is
on no stack: that of its thread shows the loop's wait for any event. What they wait for has frames of its own, which
are put on top of theirs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, NamedTuple

from profkit.collect.program.frames import forget_locals, walk_up

_DEPTH = 6
"""A wait is among the innermost frames: `threading` has three of them, a loop of events four."""
_MOST = 64
"""Threads that are searched, and tasks and coroutines that wait for each other."""
_JOIN, _SHUTDOWN = ("join", "threading.py"), ("_shutdown", "threading.py")
_RESULT, _WORK = ("result", "concurrent/futures/_base.py"), ("run", "concurrent/futures/thread.py")
_TURN, _UNTIL = ("_run_once", "asyncio/base_events.py"), ("run_until_complete", "asyncio/base_events.py")
_RUNNER = ("run", "asyncio/runners.py")
"""Functions by their names and the ends of their files, as they are since Python 3.10, the last since 3.11. A loop that
is written in C, such as uvloop's, has no frame: the runner's is the innermost then."""
_WAITS = frozenset(function[0] for function in (_JOIN, _SHUTDOWN, _RESULT, _TURN, _RUNNER))
_POLLS = frozenset(("select", "_poll"))
"""Functions above a loop's turn while nothing happens, on all systems."""
_AWAITED = {
    CoroutineType: ("cr_frame", "cr_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
    AsyncGeneratorType: ("ag_frame", "ag_await"),
}
"""The attributes with the frame, and with what it waits for. Others may be the program's own, and run its code."""


class Running(NamedTuple):
    """The ``frames``, innermost first, of what runs on that ``thread``, and of those that wait for it."""

    frames: Iterator[FrameType]
    thread: int


def running_for(thread: int, innermost: Mapping[int, FrameType]) -> Running:
    """What this thread does or waits for, given each thread's innermost frame."""
    outer: Iterator[FrameType] = iter(())
    frame = innermost.get(thread)
    if not _may_wait(frame):
        return Running(walk_up(frame), thread)
    waiting = {thread}
    while (wait := _joined(innermost.get(thread), innermost)) is not None and wait[1] not in waiting:
        outer, thread = chain(walk_up(wait[0]), outer), wait[1]
        waiting.add(thread)
    return Running(chain(_with_awaited(innermost.get(thread)), outer), thread)


def _may_wait(frame: FrameType | None) -> bool:
    """A quick look: most threads do not wait, and each look costs the program time."""
    left = _DEPTH
    while frame is not None and left:
        if frame.f_code.co_name in _WAITS:
            return True
        frame, left = frame.f_back, left - 1
    return False


def _joined(frame: FrameType | None, innermost: Mapping[int, FrameType]) -> tuple[FrameType, int] | None:
    """The frame that waits for another thread, and that thread, if it still runs."""
    for caller in islice(walk_up(frame), _DEPTH):
        thread: int | None = None
        if _is(caller, _JOIN):
            thread = getattr(_local(caller, "self"), "ident", None)
        elif _is(caller, _SHUTDOWN):
            own = threading.main_thread().ident
            left = (number for number, other in list(threading._active.items()) if not other.daemon and number != own)  # type: ignore[attr-defined]  # `enumerate` takes a lock that a thread of the program may hold
            thread = next(left, None)
        elif _is(caller, _RESULT):
            thread = _works_on(_local(caller, "self"), innermost)
        if thread is not None:
            return (caller, thread) if thread in innermost else None
    return None


def _works_on(future: object, innermost: Mapping[int, FrameType]) -> int | None:
    """The thread of a pool that computes this result."""
    for thread, frame in islice(innermost.items(), _MOST):
        for caller in walk_up(frame):
            if _is(caller, _WORK) and getattr(_local(caller, "self"), "future", None) is future:
                return thread
    return None


def _with_awaited(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a thread, and in place of a loop's wait those of the coroutine that it runs for."""
    calling, task = frame, None
    if frame is not None and _is(frame, _RUNNER):
        task = _local(frame, "task")
    elif (turn := _idle_turn(frame)) is not None:
        calling = next((caller for caller in islice(walk_up(turn), _DEPTH) if _is(caller, _UNTIL)), None)
        task = None if calling is None else _local(calling, "future")
    awaited = [] if task is None else list(_awaited(task))
    return chain(reversed(awaited), walk_up(calling if awaited else frame))


def _idle_turn(frame: FrameType | None) -> FrameType | None:
    for caller in islice(walk_up(frame), _DEPTH):
        if _is(caller, _TURN):
            return caller
        if caller.f_code.co_name not in _POLLS:
            return None
    return None


def _awaited(task: object) -> Iterator[FrameType]:
    """The frames of a task and of what it waits for, the outermost first."""
    known = getattr(sys.modules.get("asyncio.tasks"), "Task", None)
    for _ in range(_MOST):
        if known is None or not issubclass(type(task), known):
            return
        awaited: Any = task.get_coro()  # type: ignore[attr-defined]  # a task
        for _ in range(_MOST):
            if (names := _AWAITED.get(type(awaited))) is None or (frame := getattr(awaited, names[0])) is None:
                break
            yield frame
            awaited = getattr(awaited, names[1])
        future = getattr(task, "_fut_waiter", None)
        children = getattr(future, "_children", ())  # of `asyncio.gather`
        task = next((child for child in list(children) if not child.done()), future)


def _is(frame: FrameType, function: tuple[str, str]) -> bool:
    code = frame.f_code
    return code.co_name == function[0] and code.co_filename.replace("\\", "/").endswith(function[1])


def _local(frame: FrameType, name: str) -> Any:
    value = frame.f_locals.get(name)
    forget_locals(frame)
    return value
