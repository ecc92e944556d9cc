"""Calling profkit between two bytecodes of the main thread, from a thread that watches the clock."""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections import deque
from collections.abc import Callable

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class MainThreadCall:
    """`request` makes the main thread call ``action`` soon; it must not raise.

    A signal would disturb the program's handlers and system calls; the interpreter's pending calls do not. No tracer
    may be set meanwhile: CPython 3.11 spins for ever if a pending call sets one while a second call is queued. So what
    another thread requests while the action runs is dropped; it can ask again.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._requested = self._is_running = False

    def request(self) -> None:
        is_own = threading.current_thread() is threading.main_thread()
        if not self._requested and (is_own or not self._is_running):
            self._requested = True
            _waiting.append(self)
            ctypes.pythonapi.Py_AddPendingCall(_callback, None)

    def run(self) -> None:
        self._is_running = True
        self._requested = False
        try:
            if threading.current_thread() is threading.main_thread():
                self._action()
        except KeyboardInterrupt:  # an exception is not raised from here: interrupt again, outside
            _thread.interrupt_main()
        finally:
            self._is_running = False


_waiting: deque[MainThreadCall] = deque()


def _run_waiting(_unused: object) -> int:
    for _ in range(len(_waiting)):  # what an action requests is for another time
        _waiting.popleft().run()
    return 0


_callback = _Callback(_run_waiting)
# The interpreter keeps a bare pointer, also while it shuts down: the function must outlive this module.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))
