"""What the program does between two steps and is part of none, such as an evaluation amid a training."""

from __future__ import annotations

from collections.abc import Callable

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.device_moments import read_clocks
from profkit.collect.sessions.host_marks import free_cycles
from profkit.collect.sessions.recordings import Recordings

_CUT_SHORT = "fewer steps were recorded than planned, because something that is no step came between them"


class Pause:
    """Between `begin` and `end` nothing is recorded or timed, and no step ends; ``is_on`` says so.

    A recording is not interrupted: it would hold the pause too. The first that a pause meets is begun anew
    afterwards; a second that holds measured steps is kept as it is, as evaluations then follow each other closely.
    """

    def __init__(
        self,
        schedule: Schedule,
        recordings: Recordings,
        bounds: Bounds,
        stop_tracing: Callable[[], None],
        keep: Callable[[int], None],
        enter: Callable[[Phase], None],
    ) -> None:
        self.is_on = self._was_cut = False
        self.notes: list[str] = []
        self._schedule, self._recordings, self._bounds = schedule, recordings, bounds
        self._stop_tracing, self._keep, self._enter = stop_tracing, keep, enter

    def begin(self) -> None:
        """The step that the last one's end began is none. Before the first step's end nothing happens."""
        if self._schedule.phase is Phase.PROLOGUE:
            return
        self.is_on = True
        self._stop_tracing()
        if self._recordings.running is None:
            return
        if self._schedule.measured and self._was_cut:
            self.notes.append(_CUT_SHORT)
            self._schedule.limit_recorded(self._schedule.recorded)
            free_cycles()
            self._keep(self._schedule.step)
            self._schedule.let_settle(0)
        else:
            self._bounds.end()
            self._recordings.drop()
            self._was_cut |= self._schedule.measured > 0
            self._schedule.measure_anew()

    def end(self) -> None:
        """The next step begins here."""
        if self.is_on:
            self._enter(self._schedule.phase)
            self.is_on = False
            self._schedule.begin(*read_clocks(self._recordings.running is not None))
