"""Sees to it that no recording grows without bound, however long a step of the program is."""

from __future__ import annotations

import sys
from collections.abc import Callable

from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.collect.program.interrupts import MainThreadCall
from profkit.collect.recorder.prologue import Prologue
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.lines import LineTracer, is_at_work


class Watchdog:
    """``cut_off`` is called on the main thread when a recording must be looked at: where lines are traced as soon as
    the `lines_ended`, else between two bytecodes. Within a backward pass, or where the recording does not hear, it is
    not, but asked for again a moment later.
    ``move_on`` is called there, in its place, once the work turns out to be done on another thread than the recorded.
    """

    def __init__(
        self,
        prologue: Prologue,
        bounds: Bounds,
        tracer: LineTracer,
        guard: Guard,
        hears: Callable[[], bool],
        cut_off: Callable[[], None],
        is_idle: Callable[[], bool],
        move_on: Callable[[], None],
    ) -> None:
        self._prologue, self._bounds, self._tracer, self._cut_off = prologue, bounds, tracer, cut_off
        self._hears, self._is_idle, self._move_on = hears, is_idle, move_on
        self._moves_on = False
        self._interrupt = MainThreadCall(lambda: guard(self._intervene))

    def lines_ended(self) -> None:
        """Called from the tracer's own callback, for the last line that it marks."""
        self._act(self._cut_off)

    def look(self) -> None:
        """Called again and again, on another thread.

        To move on stops the tracer and sets none, so that it may be asked for while one is set (see `MainThreadCall`).
        There is one call for both: a second one that is waiting must not meet a tracer that the first one sets.
        """
        if self._is_idle():
            self._moves_on = True
            self._interrupt.request()
        elif self._bounds.are_exceeded(self._tracer.has_ended) or self._prologue.is_due():
            if self._tracer.active:
                self._tracer.expire()
            else:
                self._interrupt.request()

    def _intervene(self) -> None:
        """Between two bytecodes of the main thread, unless these are profkit's own."""
        moves_on, self._moves_on = self._moves_on, False
        if not is_at_work(sys._getframe()):
            self._act(self._move_on if moves_on else self._cut_off)

    def _act(self, action: Callable[[], None]) -> None:
        if not in_backward_pass() and self._hears():
            action()
