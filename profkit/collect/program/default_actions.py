"""Handlers of profkit's in place of a signal's default action, where the program still sees the default.

A program that sets a handler often keeps the one before, and calls it if there is one. If it were profkit's, such a
program would go another way than by itself. So while profkit has a handler, ``signal.signal`` and ``signal.getsignal``
give `signal.SIG_DFL` in its place, and setting the default sets it again. Only ``/proc`` and code that took these two
functions before, or their C originals, see the difference.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], None]

_stand_ins: dict[int, Handler] = {}
_set, _get = signal.signal, signal.getsignal
"""The functions as they were when profkit was imported."""


def stand_in(number: int, handler: Handler) -> bool:
    """Let ``handler`` stand in for the default action; False, and nothing done, if this is not the main thread or the
    signal is handled or ignored."""
    if threading.current_thread() is not threading.main_thread() or _get(number) is not signal.SIG_DFL:
        return False
    _set(number, handler)
    if not _stand_ins:
        signal.signal, signal.getsignal = _set_unseen, _get_unseen
    _stand_ins[number] = handler
    return True


def stands_in(number: int, handler: Handler) -> bool:
    """Whether ``handler`` would be called now."""
    return _get(number) == handler


def withdraw(number: int, handler: Handler) -> None:
    """Restore the default action, unless the program has set a handler meanwhile."""
    if _stand_ins.get(number) == handler:
        del _stand_ins[number]
        if not _stand_ins and signal.signal is _set_unseen:
            signal.signal, signal.getsignal = _set, _get
    if _get(number) == handler:
        with suppress(ValueError):  # on another thread; the handler then does what the default action does
            _set(number, signal.SIG_DFL)


@functools.wraps(_set)
def _set_unseen(signalnum: int, handler: Any) -> Any:
    is_default = not callable(handler) and handler == signal.SIG_DFL
    before = _set(signalnum, _stand_ins.get(signalnum, handler) if is_default else handler)
    return _as_seen(signalnum, before)


@functools.wraps(_get)
def _get_unseen(signalnum: int) -> Any:
    return _as_seen(signalnum, _get(signalnum))


def _as_seen(number: int, handler: Any) -> Any:
    return signal.SIG_DFL if number in _stand_ins and handler == _stand_ins[number] else handler
