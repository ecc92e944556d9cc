"""Keeps a recording from growing without bound, however long a step lasts."""

from __future__ import annotations

import sys
from collections.abc import Callable

from profkit.collect.boundaries.recorded_thread import RecordedThread
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.frames import is_at_work
from profkit.collect.program.guard import Guard
from profkit.collect.program.interrupts import MainThreadCall
from profkit.collect.recorder.prologue import Prologue
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.lines import LineTracer


class Watchdog:
    """Calls ``cut_off`` when the recording may have grown too large: when the tracer's lines run out (`lines_ended`),
    or between two bytecodes of the main thread. It does nothing during a backward pass or while the recorder does not
    hear. If another thread than the recorded one turns out to do the work, it calls ``move_on`` instead."""

    def __init__(
        self,
        prologue: Prologue,
        bounds: Bounds,
        tracer: LineTracer,
        thread: RecordedThread,
        guard: Guard,
        hears: Callable[[], bool],
        cut_off: Callable[[], None],
        move_on: Callable[[], None],
    ) -> None:
        self._prologue, self._bounds, self._tracer, self._thread = prologue, bounds, tracer, thread
        self._hears, self._cut_off, self._move_on = hears, cut_off, move_on
        self._moves_on = False
        self._interrupt = MainThreadCall(lambda: guard(self._intervene))

    def lines_ended(self) -> None:
        """The tracer's callback calls this for the last line that it marks."""
        self._act(self._cut_off)

    def look(self) -> None:
        """Check once; called again and again on another thread.

        Moving on sets no tracer, so it may be requested while one is set (see `MainThreadCall`). Both actions share one
        call, because no second call may wait while the first sets a tracer.
        """
        if self._thread.is_idle():
            self._moves_on = True
            self._interrupt.request()
        elif self._bounds.are_exceeded(self._tracer.has_spent_most) or self._prologue.is_due():
            if self._tracer.active:
                self._tracer.expire()
            else:
                self._interrupt.request()

    def _intervene(self) -> None:
        """Act, between two bytecodes of the main thread, unless these are profkit's own."""
        moves_on, self._moves_on = self._moves_on, False
        if not is_at_work(sys._getframe()):
            self._act(self._move_on if moves_on else self._cut_off)

    def _act(self, action: Callable[[], None]) -> None:
        if not in_backward_pass() and self._hears():
            action()
