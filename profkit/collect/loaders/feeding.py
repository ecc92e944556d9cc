"""How many CPUs the process keeps busy while it waits for a batch, and how many while it works on one.

Workers can only have what the program leaves free. The CPU time of a process says so of all its threads, those that
spin between two operators included: they have the CPU as well. Nothing counts in which a recording began, ran or ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from profkit.run import Feeding

_MOST = 64
"""Batches that are looked at: two readings of the process's clock, a microsecond each, for a batch."""
_LEAST = 3


class _Moment(NamedTuple):
    """A request for a batch, or its end (``is_given``); the clocks then, of the world and of the process's CPU time."""

    is_given: bool
    iterator: int
    thread: int
    wall_ns: int
    cpu_ns: int


class FeedingWatch:
    """Told of all requests for batches and of their ends, while ``is_undisturbed`` or not."""

    def __init__(self, is_undisturbed: Callable[[], bool]) -> None:
        self._is_undisturbed = is_undisturbed
        self._last: _Moment | None = None
        self._loading: list[float] = []
        self._computing: list[float] = []

    @property
    def feeding(self) -> Feeding | None:
        """None where too few batches were seen."""
        if min(len(self._loading), len(self._computing)) < _LEAST:
            return None
        return Feeding(loading_cpus=median(self._loading), computing_cpus=median(self._computing))

    def ask(self, iterator: object) -> None:
        """That iterator is asked for a batch. What lies behind is work on the one before, of whichever loader."""
        now = self._read(False, iterator)
        if now is not None and (last := self._last) is not None and last.is_given and last.thread == now.thread:
            self._count(self._computing, last, now)
        self._last = now

    def give(self, iterator: object) -> None:
        """It has the batch."""
        now = self._read(True, iterator)
        if now is not None and (last := self._last) is not None and last[:3] == (False, now.iterator, now.thread):
            self._count(self._loading, last, now)
        self._last = now

    def _read(self, is_given: bool, iterator: object) -> _Moment | None:
        if len(self._computing) >= _MOST or not self._is_undisturbed():
            return None
        where = id(iterator), threading.get_ident()
        return _Moment(is_given, *where, time.perf_counter_ns(), time.process_time_ns())

    def _count(self, busy: list[float], since: _Moment, now: _Moment) -> None:
        if now.wall_ns > since.wall_ns:
            busy.append((now.cpu_ns - since.cpu_ns) / (now.wall_ns - since.wall_ns))
