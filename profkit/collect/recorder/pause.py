"""What the program does between two steps and is part of none, such as an evaluation amid a training."""

from __future__ import annotations

import sys

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings

_CUT_SHORT = "fewer steps were recorded than planned, because something that is no step came between them"


class Pause:
    """Between `begin` and `end` nothing is recorded or timed, and no step ends; ``is_on`` says so.

    A recording is not interrupted: it would hold the pause too. The first that a pause meets is begun anew
    afterwards; a second that holds measured steps is kept as it is, as evaluations then follow each other closely.
    """

    def __init__(self, schedule: Schedule, recordings: Recordings, bounds: Bounds, tracer: LineTracer) -> None:
        self.is_on = self._was_cut = False
        self.notes: list[str] = []
        self._schedule, self._recordings, self._bounds, self._tracer = schedule, recordings, bounds, tracer

    def begin(self) -> bool:
        """The step that the last one's end began is none. Before the first step's end nothing happens. Whether what
        was recorded is to be kept as it is."""
        if self._schedule.phase is Phase.PROLOGUE:
            return False
        self.is_on = True
        self._tracer.stop(sys._getframe())
        if self._recordings.running is None:
            return False
        if self._schedule.measured and self._was_cut:
            self.notes.append(_CUT_SHORT)
            self._schedule.limit_recorded(self._schedule.recorded)
            return True
        self._bounds.end()
        self._recordings.drop()
        self._was_cut |= self._schedule.measured > 0
        self._schedule.measure_anew()
        return False

    def end(self) -> None:
        """The next step begins here."""
        self.is_on = False
