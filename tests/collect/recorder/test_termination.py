"""The handler of SIGTERM: when it writes the recording, when it waits, and when it leaves the signal to the program."""

from __future__ import annotations

import _signal
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from profkit.collect.program import default_actions
from profkit.collect.program.guard import Guard
from profkit.collect.recorder import termination
from profkit.collect.recorder.termination import Termination

Sent = list[tuple[int, int]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The signals that would have been sent, and to which process."""
    found: Sent = []
    monkeypatch.setattr(termination.os, "kill", lambda process, number: found.append((process, number)))
    return found


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    default_actions._stand_ins.clear()  # what a test has not removed
    signal.signal(signal.SIGTERM, before)


def make(finish: Callable[[], None]) -> Termination:
    made = Termination(Guard(lambda error: pytest.fail(repr(error))), finish)
    made.install()
    return made


def receive(frame: object = None) -> None:
    handler = _signal.getsignal(signal.SIGTERM)  # the one in truth, which the program does not see
    assert callable(handler)
    handler(signal.SIGTERM, frame)


def test_the_recording_is_written_and_the_default_handler_ends_the_process(sent):
    written: list[object] = []
    make(lambda: written.append(_signal.getsignal(signal.SIGTERM)))
    receive(sys._getframe())
    assert written == [signal.SIG_DFL], "a second signal ends the process at once"
    assert sent == [(os.getpid(), signal.SIGTERM)]


def test_during_work_of_profkit_the_signal_is_sent_again_later(sent, monkeypatch):
    """The recorder must not end while it begins a step."""
    timers: list[threading.Timer] = []
    monkeypatch.setattr(termination.threading.Timer, "start", lambda timer: timers.append(timer))
    written: list[None] = []
    make(lambda: written.append(None))
    Guard(lambda error: pytest.fail(repr(error)))(lambda: receive(sys._getframe()))
    assert (written, sent, len(timers)) == ([], [], 1)
    timers[0].function(*timers[0].args)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    receive(sys._getframe())
    assert written == [None]


def test_the_wait_for_work_of_profkit_is_limited(sent, monkeypatch):
    monkeypatch.setattr(termination.threading.Timer, "start", lambda _timer: None)
    written: list[None] = []
    make(lambda: written.append(None))
    guarded = Guard(lambda error: pytest.fail(repr(error)))
    for _ in range(termination._PATIENCE):
        guarded(lambda: receive(sys._getframe()))
    assert not written
    guarded(lambda: receive(sys._getframe()))
    assert (written, len(sent)) == ([None], 1)


@pytest.mark.parametrize("theirs", [signal.SIG_IGN, lambda number, frame: None])
def test_a_program_that_handles_the_signal_is_left_alone(sent, theirs):
    signal.signal(signal.SIGTERM, theirs)
    made = make(lambda: pytest.fail("nothing may be written"))
    assert signal.getsignal(signal.SIGTERM) is theirs
    made.remove()
    assert signal.getsignal(signal.SIGTERM) is theirs
    assert sent == []


def test_a_handler_of_the_program_that_calls_profkits_gets_the_default_action(sent):
    """It must have found it past `signal.signal`."""
    written: list[object] = []
    make(lambda: written.append(_signal.getsignal(signal.SIGTERM)))
    ours = _signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda number, frame: ours(number, frame))
    receive(sys._getframe())
    assert written == [signal.SIG_DFL]
    assert sent == [(os.getpid(), signal.SIGTERM)]


def test_on_another_thread_no_handler_is_set():
    thread = threading.Thread(target=make, args=(lambda: None,))
    thread.start()
    thread.join()
    assert _signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
