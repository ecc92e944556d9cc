"""Looks at a recording on a thread of its own, from a certain time on."""

from __future__ import annotations

import threading

from profkit.collect.sessions.alarm import Alarm
from tests.forks import LONGEST_S

SOON_S, NEVER_S = 0.001, 1000.0


def test_it_looks_again_and_again_until_it_is_cancelled():
    looked = threading.Semaphore(0)
    alarm = Alarm(lambda: looked.release())
    alarm.set(SOON_S, SOON_S)
    assert all(looked.acquire(timeout=LONGEST_S) for _ in range(3))
    alarm.cancel()
    while looked.acquire(blocking=False):
        pass
    assert not looked.acquire(timeout=0.02)


def test_no_thread_is_left_after_it_is_cancelled():
    before = threading.active_count()
    alarm = Alarm(lambda: None)
    alarm.set(NEVER_S, NEVER_S)
    assert threading.active_count() == before + 1
    alarm.set(NEVER_S, NEVER_S)
    assert threading.active_count() == before + 1
    alarm.cancel()
    alarm.cancel()
    assert threading.active_count() == before


def test_the_look_itself_may_cancel_it():
    done = threading.Event()

    def look() -> None:
        alarm.cancel()
        done.set()

    alarm = Alarm(look)
    alarm.set(SOON_S, SOON_S)
    assert done.wait(LONGEST_S)
