"""How long the recorded steps may take, and how large their recording may grow.

Nothing counts the events of a recording that runs. What can be seen is the process's memory: an event takes 150 to 460
bytes while it is recorded, by measurement, and stopping 5 to 20 us and 2.7 kB for each. What is gained faster than
events can be recorded are the program's own tensors, as those of an evaluation that keeps its graph.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.sessions.allowance import MOST_EVENT_BYTES

GROWTH_BYTES = 48 << 20
"""By which the process may grow while steps or the prologue are recorded: 180,000 events at most, which take a second
or two to stop."""
MAX_EVENTS = 300_000
"""In all recorded steps, as far as the prologue lets them be foreseen: some five seconds to stop, and 800 MB."""
_MOST_BYTES = 256 << 20
"""Beyond the most that the process ever held before. A program may well hold more in one step than in those before, and
steps that fitted into the prologue are no danger, so this is no tighter."""
_BYTES_PER_S = 220e6
"""Loops of the smallest operators, recorded with memory and with shapes, gained 130 to 300 MB a second, so that most of
it counts; tensors in new pages came at 500 to 1300."""
_SHARE = 15
"""Stopping takes up to so many times the bytes of the recording, of the memory that is free."""
_LEAST_BYTES = 8 << 20
"""What a process gains now and then for other reasons; 18,000 to 30,000 events are half a second's work."""
_LEAST_OF_LARGE_BYTES = 4 << 20
"""Of steps that are only recorded in part: it may be a smaller one."""
_MANY_MODULES = 20
"""The first optimizer that a program makes has PyTorch import 800, which take 80 MB: so many take 2."""
_NEVER = float("inf")


class Bounds:
    """From `begin` to `end`. `are_exceeded` may be asked on any thread."""

    def __init__(self, limit_s: float, measure_rss_bytes: Callable[[], int]) -> None:
        self._limit_s, self._measure = limit_s, measure_rss_bytes
        self._full_bytes = self._most_bytes = _NEVER
        self.end()

    def begin(
        self,
        events: int,
        are_large: bool = False,
        events_per_s: float = 0.0,
        is_first: bool = True,
        event_bytes: int = MOST_EVENT_BYTES,
    ) -> None:
        """A recording begins that may hold so many ``events``; the steps ``are_large`` where the first did not even fit
        into the prologue: a million small operators took 299 MB, and then 26 s and 3.6 GB to stop. Where an earlier
        recording held ``events_per_s``, it has twice as long as these would take, of the processors' time where others
        crowd the machine. ``event_bytes`` is what one takes. Lines run out in the first alone."""
        now = time.monotonic()
        foreseen_s = 2 * events / events_per_s if events_per_s else _NEVER
        self._deadline = now + 2 * self._limit_s
        self._filled_at = now + foreseen_s, time.process_time() + foreseen_s
        if is_first:
            give_memory_back()
        held = self._begun_bytes = self._measure()
        self._last_look, self._last_held, self._tensors, self._are_large = now, held, 0, are_large
        self._imports = Imports()
        for_events = bytes_of(events, event_bytes, _LEAST_OF_LARGE_BYTES if are_large else _LEAST_BYTES)
        self._full_bytes = held + min(GROWTH_BYTES, for_events) if is_first else _NEVER
        most = GROWTH_BYTES if are_large else _MOST_BYTES
        most = min(most, for_events, psutil.virtual_memory().available // _SHARE)
        self._most_bytes = max(held, 0 if are_large else peak_rss_bytes()) + most

    def end(self) -> None:
        """Nothing is recorded any more."""
        self._begun_bytes, self._imports = 0, Imports()
        self._deadline = self._full_bytes = self._most_bytes = _NEVER
        self._filled_at = _NEVER, _NEVER
        self._last_look, self._last_held, self._tensors, self._are_large = 0.0, 0, 0, False

    def are_exceeded(self, has_ended: bool) -> bool:
        """``has_ended`` says that the line marks of the step reached their own limit: so many lines leave so many
        events that what the process gains is taken for these."""
        now = time.monotonic()
        if now > self._deadline or min(now - self._filled_at[0], time.process_time() - self._filled_at[1]) > 0:
            return True
        held = self._held_by_events(now) if self._most_bytes < _NEVER else 0
        is_large = held > self._most_bytes or (has_ended and held > self._full_bytes)
        if is_large and self._imports.are_many:
            self._imports, self._begun_bytes, more = Imports(), held, held - self._begun_bytes
            self._full_bytes, self._most_bytes = self._full_bytes + more, self._most_bytes + more
            return False
        return is_large

    def _held_by_events(self, now: float) -> int:
        """What the process holds, without what it gained since the beginning in too short a time; all of it where the
        steps are known to be of so many operators that each look counts."""
        held = self._measure()
        if self._are_large:
            return held
        gained = held - self._last_held
        at_once = gained - int((now - self._last_look) * _BYTES_PER_S)
        self._tensors += max(0, at_once) + max(-self._tensors, min(0, gained))
        self._last_look, self._last_held = now, held
        return held - self._tensors


class Imports:
    """The modules that are imported from here on. What they take is no recording's; there are only so many."""

    def __init__(self) -> None:
        self._before = len(sys.modules)

    @property
    def are_many(self) -> bool:
        return len(sys.modules) > self._before + _MANY_MODULES


def bytes_of(events: int, event_bytes: int = MOST_EVENT_BYTES, least: int = _LEAST_BYTES) -> int:
    """By which a process grows at most that records so many."""
    return max(least, events * event_bytes)


def give_memory_back() -> None:
    """Return what the C library keeps for later to the system: a stop leaves it hundreds of megabytes, in which a
    recording could grow unseen. Elsewhere than with glibc nothing happens."""
    with suppress(OSError, AttributeError, TypeError):  # Windows has no library of that name
        ctypes.CDLL(None).malloc_trim(0)


def peak_rss_bytes() -> int:
    """The most memory that the process ever held; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
