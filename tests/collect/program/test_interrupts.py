"""Calls between two bytecodes of the main thread: one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from profkit.collect.program.interrupts import MainThreadCall


def ask_elsewhere(call: MainThreadCall) -> None:
    thread = threading.Thread(target=call.request)
    thread.start()
    thread.join()


def calls_after(action: Callable[[MainThreadCall], None], asks: Callable[[MainThreadCall], None]) -> int:
    """How often the main thread calls an action that does this the first time."""
    times: list[int] = []

    def act() -> None:
        times.append(1)
        if len(times) == 1:
            action(call)

    call = MainThreadCall(act)
    asks(call)
    for _ in range(1000):  # bytecodes between which it may be called
        pass
    return len(times)


def test_the_main_thread_does_what_another_one_asks_for() -> None:
    assert calls_after(lambda call: None, ask_elsewhere) == 1


def test_what_another_thread_asks_for_meanwhile_is_dropped() -> None:
    """A second call that waits would meet a tracer that the first one may set."""
    assert calls_after(ask_elsewhere, MainThreadCall.request) == 1


def test_the_action_may_ask_to_be_called_again() -> None:
    assert calls_after(MainThreadCall.request, MainThreadCall.request) == 2
