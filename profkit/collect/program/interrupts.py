"""Running profkit's code on the main thread, between two bytecodes, at the request of another thread."""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections import deque
from collections.abc import Callable

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class MainThreadCall:
    """`request` makes the main thread call ``action`` soon; the action must not raise.

    It uses the interpreter's pending calls, as a signal would disturb the program's handlers and system calls. CPython
    3.11 spins for ever if a pending call sets a tracer while a second call is queued. So a request by another thread
    while the action runs is dropped, and of two threads that ask at once only one does; they can ask again.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._requested = self._is_running = False
        self._asking = _thread.allocate_lock()

    def request(self) -> None:
        is_own = threading.current_thread() is threading.main_thread()
        if not self._asking.acquire(blocking=False):
            return
        try:
            is_due = not self._requested and (is_own or not self._is_running)
            self._requested |= is_due
        finally:
            self._asking.release()  # before the call, which may come at once and ask for another
        if is_due:
            _waiting.append(self)
            ctypes.pythonapi.Py_AddPendingCall(_callback, None)

    def run(self) -> None:
        self._is_running = True
        self._requested = False
        try:
            if threading.current_thread() is threading.main_thread():
                self._action()
        except KeyboardInterrupt:  # a pending call cannot raise: interrupt again, outside
            _thread.interrupt_main()
        finally:
            self._is_running = False


_waiting: deque[MainThreadCall] = deque()


def _run_waiting(_unused: object) -> int:
    for _ in range(len(_waiting)):  # an action that requests another call must wait for the next round
        _waiting.popleft().run()
    return 0


_callback = _Callback(_run_waiting)
# The interpreter keeps a bare pointer to it, even during shutdown: the function must outlive this module.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))
