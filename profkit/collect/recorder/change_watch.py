"""Listens to the ends of steps while nothing is recorded: of a watched program until its steps change, when a window
is recorded, and of any program once its recording is over.

The end of a step takes some microseconds, of which the most are for telling whether it is one
(`profkit.collect.boundaries`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from psutil import Process  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.boundaries.changes import Change, Changes
from profkit.collect.boundaries.choice import FORWARD, SignalChoice, StepBoundary, Verdict
from profkit.collect.boundaries.schedule import Phase
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.machine.page_faults import count_crowded_ns
from profkit.collect.machine.sampler import rss_bytes_of
from profkit.collect.program.clocks import time
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard, describe, say
from profkit.collect.sessions.session import is_capturing
from profkit.collect.whole_run.live import Pace
from profkit.collect.whole_run.step_times import StepTimes
from profkit.run.plan import Plan

_ONLY_ONCE = 2
"""`Plan.anew` of a recording that no other replaces: the program pays for one window and no more."""
_NEAREST = 8
"""Steps after the window that count as its own without a profiler. All behind them show what has changed, and a run may
end soon."""

_WAIT_NS = 50_000_000
"""So long the ends of steps may wait to be noted together: the code that notes them is out of the caches at the end of
a step, where it takes several times as long."""

_RECORDED = frozenset((Phase.LOCATED.value, Phase.ACTIVE.value))
"""Steps that the profiler makes longer."""


class ChangeWatch:
    """From `install` to `remove`, calls ``on_change`` with a `Change` and the signal that ends the steps, once, at the
    end of a step on the main thread. Each end of a step is noted in ``times``, some of them together a little later and
    all by `remove`."""

    def __init__(self, on_change: Callable[[Change, str], None], times: StepTimes | None = None) -> None:
        self._on_change, self._times = on_change, StepTimes() if times is None else times
        self._guard = Guard(self._give_up)
        self._choice = SignalChoice()
        self._changes = Changes(count_crowded_ns, partial(rss_bytes_of, Process()))
        self._signals: StepSignals | None = None
        self._earlier: StepSignals | None = None
        self._only_counts = False
        self._found: Change | None = None
        self._passed = 1
        self._ends: list[int] = []
        self._noted_ns = 0

    def install(self, signal: str | None = None, earlier: StepSignals | None = None) -> None:
        """Listen from here on, to this ``signal`` alone if it is given, where ``earlier`` ones left off."""
        self._signals = StepSignals(self.take, self._guard, signal, pass_by=self._pass_by)
        self._passed = 1
        if earlier is not None:
            self._signals.follow(earlier)
        self._signals.install()

    def count_on(self) -> None:
        """After the window: count the steps again, those of the same optimizer or data, and look for no further
        change."""
        if self._signals is None:
            self._only_counts = True
            self._changes.begin_again()
            self.install(earlier=self._earlier)

    def count_by(self, signal: str | None, earlier: StepSignals | None = None) -> None:
        """After a recording whose steps ended by this ``signal``: count those that follow. A hook on each call of a
        module costs too much to stay. The ``earlier`` signals say which optimizer's steps those were."""
        if self._signals is None and signal not in (None, FORWARD):
            self._choice = SignalChoice(signal, has_begun=True)
            self._only_counts = True
            self._changes.begin_again()
            self.install(signal, earlier)

    def note_timed(self, took_ns: Sequence[int], until_ns: int, together: int = 1) -> None:
        """Steps in a row that somebody else timed, so many together; the last of them ended then."""
        ends_ns = accumulate(took_ns, initial=until_ns - sum(took_ns))
        next(ends_ns)
        for ended_ns, took in zip(ends_ns, took_ns, strict=True):
            self._times.note(ended_ns, took // together, together)

    @property
    def ended_ns(self) -> int:
        """When the last step ended, of the performance counter; 0 if none did. Any thread may ask."""
        return self._changes.ended_ns

    @property
    def pace(self) -> Pace:
        """The steps so far; any thread may ask."""
        return Pace(self._changes.steps, self._changes.last_ns)

    def counting(self, announce: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
        """``announce``, which the recorder of a window calls at the end of each step, with the step counted."""

        def progress(phase: str, done: int, total: int) -> None:
            now_ns = time.perf_counter_ns()
            if self._signals is None and self._changes.count(now_ns) and phase not in _RECORDED:
                self._times.note(now_ns, self._changes.last_ns)
            announce(phase, done, total)

        return progress

    def take(self, boundary: StepBoundary) -> None:
        """A signal came, or the program announced the end of a step."""
        if self._signals is None or boundary.thread != threading.main_thread().ident or is_capturing():
            return
        if not self._choice.counts(boundary, is_committed=False):
            return
        verdict = self._choice.judge(boundary, is_committed=False)
        if verdict is Verdict.NOTHING:
            return
        if verdict is not Verdict.ENDS:
            self._changes.begin_again()
            self._times.clear()
            self._ends.clear()
            self._passed = 1
        change, self._found = self._found, None
        if change is None:
            self._ends.append(boundary.time_ns)
            change = self._note_ends()
        self._passed = 1
        if change is not None and not self._only_counts:
            self._earlier = self._signals
            self.remove()
            self._on_change(change, boundary.signal)

    def remove(self) -> None:
        """Take everything out of the program."""
        signals, self._signals = self._signals, None
        if signals is not None:
            signals.remove()
        self._note_ends()

    def _note_ends(self) -> Change | None:
        """Those that wait, each of which ended as many steps as passed together. Return what has changed, if that
        shows now and is looked for."""
        found: Change | None = None
        for ended_ns in self._ends:
            has_begun = self._changes.has_begun
            if self._only_counts:
                self._changes.count(ended_ns, self._passed)
            else:
                found = self._changes.note(ended_ns, self._passed) or found
            if has_begun:
                self._times.note(ended_ns, self._changes.last_ns, self._passed)
        self._ends.clear()
        return found

    def _pass_by(self) -> int:
        """A shortcut: keep the end of this step until some can be noted together and, if steps are short, let some of
        the next pass without one. The step after which something has changed goes the long way: a change begins a
        recording, which a shortcut cannot."""
        if not self._choice.is_each_update or self._signals is None:
            return 0
        if threading.get_ident() != threading.main_thread().ident or in_backward_pass() or is_capturing():
            return 0
        now_ns = time.perf_counter_ns()
        self._ends.append(now_ns)
        if now_ns - self._noted_ns >= _WAIT_NS:
            self._found = self._note_ends() or self._found
            self._noted_ns, self._passed = now_ns, self._changes.together
            if self._found is not None:
                return 0
        return self._passed

    def _give_up(self, error: BaseException) -> None:
        self.remove()
        left = "counting the run's steps" if self._only_counts else "looking for changes"
        say(f"no longer {left}: {describe(error)}")


def plan_of_window(plan: Plan, change: Change, signal: str) -> Plan:
    """What to record once this has changed, at the end of a step by ``signal``. It is like a recording that replaces
    one from before the steps got longer: as many steps behind it are timed as in any, and their lines are set beside
    those of the usual steps."""
    until_ns = time.time_ns() - (time.perf_counter_ns() - change.until_ns)
    after = min(plan.after, _NEAREST)
    window = replace(plan.for_better(signal), anew=_ONLY_ONCE, after=after)
    return replace(window, earlier_step_ns=change.first_ns, earlier_until_ns=until_ns)
