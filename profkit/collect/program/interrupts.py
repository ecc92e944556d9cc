"""Running profkit's code on the main thread, between two bytecodes, at the request of another thread."""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType

from profkit.core.other_threads import FramesOfThreads

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class MainThreadCall:
    """`request` makes the main thread call ``action`` soon; the action must not raise.

    It uses the interpreter's pending calls, as a signal would disturb the program's handlers and system calls. CPython
    3.11 spins for ever if a pending call sets a tracer while a second call is queued: the call of a traced function is
    tried again as long as one is, and none runs within another. So a request by another thread while any action waits
    or runs is dropped, and of two threads that ask at once only one does; they can ask again.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._requested = False

    def request(self) -> None:
        is_own = threading.current_thread() is threading.main_thread()
        if not _asking.acquire(blocking=False):
            return
        try:
            is_due = not (self._requested or _raising) and (is_own or not _waiting)
            self._requested |= is_due
            _waiting.extend([self] * is_due)
        finally:
            _asking.release()  # before the call, which may come at once and ask for another
        if is_due:
            ctypes.pythonapi.Py_AddPendingCall(_callback, None)

    def run(self) -> None:
        self._requested = False
        try:
            if threading.current_thread() is threading.main_thread():
                self._action()
        except KeyboardInterrupt:  # a pending call cannot raise: interrupt again, outside
            _thread.interrupt_main()


_waiting: deque[MainThreadCall] = deque()
_raising: list[type[BaseException]] = []
_asking = _thread.allocate_lock()


def raise_in_main_thread(raised: type[BaseException], may_interrupt: Callable[[FrameType | None], bool]) -> bool:
    """Raise it soon between two bytecodes of the main thread, if that ``may_interrupt`` its frame. From then on,
    requests are dropped until `has_been_raised`.

    Returns False if it may not, or if a call waits to run there or does run. A waiting one would come first, and be
    what the exception is raised in: from there it does not reach the program, which gets a SystemError instead.
    """
    if not _asking.acquire(blocking=False):
        return False
    try:
        main = threading.main_thread().ident or 0
        with FramesOfThreads() as innermost:
            if _waiting or not may_interrupt(innermost.get(main)):
                return False
        _raising.append(raised)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(raised))
        return True
    finally:
        _asking.release()


def has_been_raised() -> None:
    """The exception has reached the program: calls may be requested again."""
    _raising.clear()


def _run_waiting(_unused: object) -> int:
    for _ in range(len(_waiting)):  # an action that requests another call must wait for the next round
        try:
            _waiting[0].run()
        finally:
            _waiting.popleft()
    return 0


_callback = _Callback(_run_waiting)
# The interpreter keeps a bare pointer to it, even during shutdown: the function must outlive this module.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))
