"""How long the recorded steps may take, and how large their recording may grow.

Nothing counts the events of a running recording, but the memory of the process shows them: each takes 150 to 460 bytes
while recording, and 5 to 20 µs and 2.7 kB at the stop (measured). Memory that grows faster than events can be recorded
belongs to the program's own tensors, such as those of an evaluation that keeps its graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.machine.heap import give_back
from profkit.collect.machine.patience import Patience
from profkit.collect.program.clocks import time
from profkit.collect.sessions.alarm import Alarm
from profkit.collect.sessions.allowance import FEW_EVENTS, Allowance
from profkit.collect.sessions.held_memory import HeldMemory

GROWTH_BYTES = 48 << 20
"""How much the process may grow while steps are recorded: at most 180,000 events, a second or two to stop."""
_MOST_BYTES = 256 << 20
"""Beyond the most that the process ever held. It is no tighter because a program may hold more in one step than before,
and steps that fitted into the prologue are safe."""
_BYTES_PER_S = 220e6
"""Events come at most this fast, tensors faster: loops of the smallest operators, recorded with memory and shapes,
gained 130 to 300 MB/s, tensors in new pages 500 to 1300."""
_AS_FAST = 2
"""Times the pace of a try that was cut off. An opening of 200,000 small operators a second says nothing of steps with
1,500 in half a second: by its pace the 46 MB of scores that one makes were 30,000 events, in each of four tries."""
_SHARE = 15
"""Stopping needs up to this many times the recording's bytes as free memory."""
_LEAST_BYTES = 8 << 20
"""A process may grow this much for other reasons; as events it is 18,000 to 30,000, half a second's work."""
_LEAST_OF_LARGE_BYTES = 4 << 20
"""The same limit for large steps: a smaller part of one is worth recording."""
_FEW_S = 2 * FEW_EVENTS / 54_000
"""How long a recording of `FEW_EVENTS` may last: twice as long as they take at the lowest pace that was measured with
line marks."""
_SHORT_S, _LATER_S, _AGAIN_S = 1.0, 0.001, 0.02
"""The regular looks are 0.2 s apart: too far for so short a recording, and for one of large steps, as small operators
make a million events a second. The first must come after its end, not at it, and others follow, as the process may have
waited for a CPU."""
_EVENTS_OF_CALL = 10
"""A call of PyTorch leaves about so many events while it is watched, memory included: 11 were measured for products
with numbers; a cell of an LSTM leaves more, a view fewer."""
_MODULE_BYTES = 100_000
"""Of one imported module: the 800 that PyTorch imports for a program's first optimizer take 80 MB."""


class Bounds:
    """In force from `begin` to `end`. Any thread may call `are_exceeded`. If a recording may last only for a short
    time, ``look`` is called on a thread of its own from the end of that on. ``watched_s`` is the CPU time that the
    watches of profkit took so far. ``calls`` says how many calls of PyTorch were seen and whether more are; it is only
    asked about large steps."""

    def __init__(
        self,
        limit_s: float,
        memory: HeldMemory,
        allowance: Allowance,
        look: Callable[[], None] = lambda: None,
        watched_s: Callable[[], float] = lambda: 0.0,
        calls: Callable[[], tuple[int, bool]] = lambda: (0, False),
    ) -> None:
        self._limit_s, self._memory, self._allowance, self._watched_s = limit_s, memory, allowance, watched_s
        self._calls = calls
        self._alarm = Alarm(look)
        self._begun = 0.0, 0.0
        self._full_bytes = self._most_bytes = inf
        self.end()

    def begin(
        self,
        is_first: bool,
        are_large: bool,
        is_second: bool,
        most_s: float = inf,
        pace: float = 0.0,
        *,
        trusts_pace: bool = False,
    ) -> None:
        """The first or a later recording of steps begins; line marks can only run out in the first. One
        step may last ``most_s``, on the wall and in CPU time of the process without that of profkit's watches.

        The steps ``are_large`` if the first one did not fit into the prologue: a million small operators took 299 MB,
        and then 26 s and 3.6 GB to stop. Such a recording, and one that ``is_second`` to an earlier one, may last twice
        as long as its events took there, or at the ``pace`` of a try that was cut off. That limits their number, so on
        a crowded machine CPU time counts: the process's, as a thread of the program that makes events need not be this
        one. If the steps are not large, it may always last as long as `FEW_EVENTS` would. It may also last twice
        ``limit_s`` of `Patience`, so that a step that waits for something does not stay recorded for ever. Who
        ``trusts_pace`` takes what grows more than `_AS_FAST` times as fast for the program's tensors.
        """
        now, computed_s = self._begun = self._read_clocks()
        events = self._allowance.events_left // (2 if are_large else 1)  # half is left for what arrives before the cut
        events_per_s = self._allowance.events_per_busy_s if are_large or is_second else 0.0
        likely = pace or events_per_s
        foreseen_s = max(2 * events / likely, 0 if are_large else _FEW_S) if events_per_s else inf
        self._most_calls = 2 * events / _EVENTS_OF_CALL if are_large else inf
        self._patience: Patience | None = Patience(2 * self._limit_s)
        self._filled_at = now + foreseen_s, computed_s + foreseen_s
        if is_first:
            give_back()  # a stop leaves hundreds of megabytes free
        held = self._begun_bytes = self._memory.begin()
        self._last_look, self._last_held, self._tensors = self._begun, held, 0
        most_per_s = _AS_FAST * pace if trusts_pace else events_per_s
        self._bytes_per_s = most_per_s * self._allowance.event_bytes if are_large else _BYTES_PER_S
        self._imports = Imports()
        least = _LEAST_OF_LARGE_BYTES if are_large else _LEAST_BYTES
        for_events = max(least, events * self._allowance.event_bytes)
        self._full_bytes = held + min(GROWTH_BYTES, for_events) if is_first else inf
        most = GROWTH_BYTES if are_large else _MOST_BYTES
        most = min(most, for_events, psutil.virtual_memory().available // _SHARE)
        self._most_bytes = max(held, 0 if are_large else peak_rss_bytes()) + most
        self._most_s = most_s
        self._look_often(most_s, are_large)

    def _look_often(self, most_s: float, are_large: bool) -> None:
        if most_s < _SHORT_S:
            self._alarm.set(most_s + _LATER_S, _AGAIN_S)
        elif are_large:
            self._alarm.set(_AGAIN_S, _AGAIN_S)

    def begin_step(self) -> None:
        """A step of the recording begins."""
        if self._most_s < inf:
            now, computed_s = self._read_clocks()
            self._step_over_at = now + self._most_s, computed_s + self._most_s

    @property
    def ran_s(self) -> float:
        """How long the recording has lasted, without waits and profkit's watches."""
        return _busy_s(self._begun, self._read_clocks())

    def before_fork(self) -> None:
        """Leave no thread behind: Python warns of others when the process is forked."""
        self._alarm.cancel()

    def end(self) -> None:
        """The recording is over."""
        self._alarm.cancel()
        self._begun_bytes, self._imports = 0, Imports()
        self._patience = None
        self._full_bytes = self._most_bytes = inf
        self._filled_at = self._step_over_at = inf, inf
        self._most_s = self._most_calls = inf
        self._seen = 0, 0.0
        self._last_look, self._last_held, self._tensors, self._bytes_per_s = (0.0, 0.0), 0, 0, _BYTES_PER_S

    def are_exceeded(self, has_ended: bool) -> bool:
        """``has_ended``: the line marks of the step reached their limit, or nearly so. So many lines leave so many
        events that all growth is attributed to them."""
        now, patience = self._read_clocks(), self._patience
        if patience is not None and patience.is_over():
            return True
        if any(_busy_s(over_at, now) > 0 for over_at in (self._filled_at, self._step_over_at)):
            return True
        if self._most_calls < inf and self._calls_until(now) > self._most_calls:
            return True
        held = self._held_by_events(now) if self._most_bytes < inf else 0
        most = min(self._most_bytes, self._full_bytes) if has_ended else self._most_bytes
        if held <= most:
            return False
        if held > most + self._imports.held_bytes:
            return True
        self._imports, self._begun_bytes, more = Imports(), held, held - self._begun_bytes
        self._full_bytes, self._most_bytes = self._full_bytes + more, self._most_bytes + more
        return False

    def _calls_until(self, now: tuple[float, float]) -> float:
        """How many calls of PyTorch the step has made. Once its watch has used what it may cost, they are taken to go
        on at their pace."""
        (seen, are_seen), busy_s = self._calls(), _busy_s(self._begun, now)
        if are_seen:
            self._seen = seen, busy_s
        calls, until_s = self._seen
        return calls * max(1.0, busy_s / until_s) if until_s > 0 else calls

    def _read_clocks(self) -> tuple[float, float]:
        """The time on the wall, and the CPU time of the process without that of profkit's watches, in which no events
        come: they take up to a second of a step that takes some milliseconds."""
        return time.monotonic(), time.process_time() - self._watched_s()

    def _held_by_events(self, now: tuple[float, float]) -> int:
        """The memory of the process without what grew too fast to be events. In large steps that is what grew faster
        than the events of the prologue, and nothing if their pace is not known: a training step of many operators also
        keeps hundreds of megabytes for its backward pass."""
        held = self._memory.measure()
        if not self._bytes_per_s:
            return held
        gained = held - self._last_held
        at_once = gained - int(_busy_s(self._last_look, now) * self._bytes_per_s)
        self._tensors += max(0, at_once) + max(-self._tensors, min(0, gained))
        self._last_look, self._last_held = now, held
        return held - self._tensors


def _busy_s(begun: tuple[float, float], now: tuple[float, float]) -> float:
    """Several threads compute for longer than the time on the wall; a crowded machine lets them compute for less."""
    return min(now[0] - begun[0], now[1] - begun[1])


class Imports:
    """The modules imported from here on. Their memory does not belong to the recording."""

    def __init__(self) -> None:
        self._before = len(sys.modules)

    @property
    def held_bytes(self) -> int:
        return max(0, len(sys.modules) - self._before) * _MODULE_BYTES


def peak_rss_bytes() -> int:
    """The most memory that the process ever held; 0 if the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
