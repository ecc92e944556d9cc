"""How many CPUs the process keeps busy while it waits for a batch, and while it works on one.

Workers can only use the CPUs that the program leaves free. All threads of the program count, even those that spin
between two operators, as they occupy a CPU too. Intervals that overlap a recording do not count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from profkit.collect.program.clocks import time
from profkit.run.directory import Feeding

_MOST = 64
"""Batches to time; each takes two readings of the process clock, a microsecond each."""
_LEAST = 3
"""With fewer, the median would not leave out a first batch that started workers or filled caches."""


class _Moment(NamedTuple):
    """A request for a batch, or its end (``is_given``), with the wall time and the process's CPU time."""

    is_given: bool
    iterator: int
    thread: int
    wall_ns: int
    cpu_ns: int


class FeedingWatch:
    """Times the requests for batches and their ends; only those while it ``is_undisturbed`` count."""

    def __init__(self, is_undisturbed: Callable[[], bool]) -> None:
        self._is_undisturbed = is_undisturbed
        self._last: _Moment | None = None
        self._loading: list[float] = []
        self._computing: list[float] = []

    @property
    def feeding(self) -> Feeding | None:
        """None if too few batches were seen."""
        if min(len(self._loading), len(self._computing)) < _LEAST:
            return None
        return Feeding(loading_cpus=median(self._loading), computing_cpus=median(self._computing))

    def ask(self, iterator: object) -> None:
        """The program asks ``iterator`` for a batch; until now it worked on the last one, from any loader."""
        self._note(False, iterator, self._computing)

    def give(self, iterator: object) -> None:
        """The program has the batch."""
        self._note(True, iterator, self._loading)

    def _note(self, is_given: bool, iterator: object, busy: list[float]) -> None:
        """Add the CPUs kept busy since the last moment, if that was the other kind on this thread."""
        last, self._last = self._last, None
        if len(self._computing) >= _MOST or not self._is_undisturbed():
            return
        where = id(iterator), threading.get_ident()
        self._last = now = _Moment(is_given, *where, time.perf_counter_ns(), time.process_time_ns())
        if last is None or last.is_given is is_given or last.thread != now.thread or now.wall_ns <= last.wall_ns:
            return
        if not is_given or last.iterator == now.iterator:
            busy.append((now.cpu_ns - last.cpu_ns) / (now.wall_ns - last.wall_ns))
