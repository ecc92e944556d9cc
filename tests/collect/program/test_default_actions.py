"""What a program sees of a signal whose default action profkit stands in for."""

from __future__ import annotations

import _signal
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from profkit.collect.program.default_actions import stand_in, stands_in, withdraw

NUMBER = signal.SIGUSR2


def ours(number: int, frame: FrameType | None) -> None:
    raise AssertionError("nobody sends the signal")


def theirs(number: int, frame: FrameType | None) -> None:
    raise AssertionError("nobody sends the signal")


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    yield
    withdraw(NUMBER, ours)
    signal.signal(NUMBER, signal.SIG_DFL)


def test_the_program_sees_the_default():
    originals = signal.signal, signal.getsignal
    assert stand_in(NUMBER, ours)
    assert _signal.getsignal(NUMBER) is ours
    assert signal.getsignal(NUMBER) is signal.SIG_DFL
    assert signal.signal(NUMBER, theirs) is signal.SIG_DFL
    assert (signal.getsignal(NUMBER), stands_in(NUMBER, ours)) == (theirs, False)
    withdraw(NUMBER, ours)
    assert _signal.getsignal(NUMBER) is theirs
    assert (signal.signal, signal.getsignal) == originals


def test_setting_the_default_sets_what_stands_in_for_it():
    stand_in(NUMBER, ours)
    signal.signal(NUMBER, theirs)
    assert signal.signal(NUMBER, signal.SIG_DFL) is theirs
    assert _signal.getsignal(NUMBER) is ours
    withdraw(NUMBER, ours)
    assert _signal.getsignal(NUMBER) == signal.SIG_DFL
    assert signal.signal(NUMBER, signal.SIG_DFL) is signal.SIG_DFL


def test_other_signals_and_handlers_are_as_ever():
    stand_in(NUMBER, ours)
    assert signal.getsignal(signal.SIGINT) == _signal.getsignal(signal.SIGINT)
    assert signal.signal(NUMBER, signal.SIG_IGN) is signal.SIG_DFL
    assert signal.getsignal(NUMBER) is signal.SIG_IGN
    with pytest.raises(TypeError, match="signal handler must be"):
        signal.signal(NUMBER, "no handler")
    with pytest.raises(ValueError, match="out of range"):
        signal.getsignal(1000)


@pytest.mark.parametrize("handler", [theirs, signal.SIG_IGN])
def test_a_signal_that_is_handled_or_ignored_is_left_alone(handler):
    signal.signal(NUMBER, handler)
    assert not stand_in(NUMBER, ours)
    withdraw(NUMBER, ours)
    assert _signal.getsignal(NUMBER) == handler


def test_on_another_thread_nothing_is_set():
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(stand_in(NUMBER, ours)))
    thread.start()
    thread.join()
    assert answers == [False]
    assert _signal.getsignal(NUMBER) == signal.SIG_DFL


def test_two_signals_are_withdrawn_apart():
    originals = signal.signal, signal.getsignal
    stand_in(NUMBER, ours)
    stand_in(signal.SIGUSR1, ours)
    withdraw(signal.SIGUSR1, ours)
    assert signal.getsignal(NUMBER) is signal.SIG_DFL
    assert _signal.getsignal(NUMBER) is ours
    withdraw(NUMBER, ours)
    assert (signal.signal, signal.getsignal) == originals
