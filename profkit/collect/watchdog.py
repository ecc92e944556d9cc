"""Sees to it that no recording grows without bound, however long a step of the program is."""

from __future__ import annotations

import sys
from collections.abc import Callable

from profkit.collect.bounds import Bounds
from profkit.collect.engine import in_backward_pass
from profkit.collect.guard import Guard
from profkit.collect.interrupts import MainThreadCall
from profkit.collect.lines import LineTracer, is_at_work
from profkit.collect.opening import Opening


class Watchdog:
    """``cut_off`` is called on the main thread when a recording must be looked at: from the tracer's own callback where
    lines are traced, else between two bytecodes. Within a backward pass it is not, but asked for again a moment later.
    """

    def __init__(
        self, opening: Opening, bounds: Bounds, tracer: LineTracer, guard: Guard, cut_off: Callable[[], None]
    ) -> None:
        self._opening, self._bounds, self._tracer, self._cut_off = opening, bounds, tracer, cut_off
        self._interrupt = MainThreadCall(lambda: guard(self._intervene))
        tracer.on_end = lambda: guard(self._cut_off_outside_backward)

    def look(self) -> None:
        """Called again and again, on another thread."""
        if self._bounds.are_exceeded(self._tracer.has_ended) or self._opening.is_due():
            if self._tracer.active:
                self._tracer.expire()
            else:
                self._interrupt.request()

    def _intervene(self) -> None:
        """Between two bytecodes of the main thread, unless these are profkit's own."""
        if not is_at_work(sys._getframe()):
            self._cut_off_outside_backward()

    def _cut_off_outside_backward(self) -> None:
        if not in_backward_pass():
            self._cut_off()
