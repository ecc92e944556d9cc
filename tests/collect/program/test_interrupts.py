"""Calls between two bytecodes of the main thread: one at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest

from profkit.collect.program import interrupts
from profkit.collect.program.interrupts import MainThreadCall


def ask_elsewhere(call: MainThreadCall) -> None:
    thread = threading.Thread(target=call.request)
    thread.start()
    thread.join()


def calls_after(action: Callable[[MainThreadCall], None], asks: Callable[[MainThreadCall], None]) -> int:
    """How often the main thread makes a call that does ``action`` the first time."""
    times: list[int] = []

    def act() -> None:
        times.append(1)
        if len(times) == 1:
            action(call)

    call = MainThreadCall(act)
    asks(call)
    for _ in range(1000):  # bytecodes between which it may happen
        pass
    return len(times)


def test_the_main_thread_makes_a_call_that_another_thread_requests():
    assert calls_after(lambda call: None, ask_elsewhere) == 1


def test_a_request_from_another_thread_during_a_call_is_dropped():
    """A waiting second call would meet the tracer that the first may have set."""
    assert calls_after(ask_elsewhere, MainThreadCall.request) == 1


def test_a_call_may_request_another():
    assert calls_after(MainThreadCall.request, MainThreadCall.request) == 2


class Crossed(MainThreadCall):
    """Another thread asks between this one's look and its request."""

    is_crossed = False

    @property
    def _requested(self) -> bool:
        if not self.is_crossed:
            self.is_crossed = True
            ask_elsewhere(self)
        return False

    @_requested.setter
    def _requested(self, value: bool) -> None:
        pass


def test_of_two_threads_that_ask_at_once_only_one_does(monkeypatch):
    """CPython 3.11 hangs if a second call is queued behind one that sets a tracer."""
    queued = []
    monkeypatch.setattr(interrupts.ctypes.pythonapi, "Py_AddPendingCall", lambda *_: queued.append(1))
    monkeypatch.setattr(interrupts, "_waiting", deque())
    ask_elsewhere(Crossed(lambda: None))
    assert queued == [1]


class Ends(BaseException):
    """Ends the program."""

    def __init__(self) -> None:
        super().__init__()
        interrupts.has_been_raised()


def raise_soon() -> bool:
    return interrupts.raise_in_main_thread(Ends, lambda _: True)


def test_nothing_is_raised_while_a_call_waits_or_runs(monkeypatch):
    """The exception would be raised within the call, from where it does not reach the program."""
    raised: list[bool] = []
    assert calls_after(lambda _: raised.append(raise_soon()), MainThreadCall.request) == 1
    monkeypatch.setattr(interrupts, "_waiting", deque([MainThreadCall(lambda: None)]))
    assert (raised, raise_soon()) == ([False], False)
    monkeypatch.undo()
    assert not interrupts.raise_in_main_thread(Ends, lambda _: False)


def test_until_an_exception_is_raised_no_call_is_requested():
    made: list[int] = []
    call = MainThreadCall(lambda: made.append(1))
    with pytest.raises(Ends):
        thread = threading.Thread(target=lambda: raise_soon() and call.request())
        thread.start()
        thread.join()
    assert made == []
    call.request()
    for _ in range(1000):
        pass
    assert made == [1]


def test_a_request_from_another_thread_behind_another_call_is_dropped(monkeypatch):
    """The call that waits may set a tracer."""
    queued = []
    monkeypatch.setattr(interrupts.ctypes.pythonapi, "Py_AddPendingCall", lambda *_: queued.append(1))
    monkeypatch.setattr(interrupts, "_waiting", deque())
    ask_elsewhere(MainThreadCall(lambda: None))
    ask_elsewhere(MainThreadCall(lambda: None))
    assert queued == [1]
