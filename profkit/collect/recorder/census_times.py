"""After which steps profkit takes a census of the program's names and reads its settings.

A census takes about a millisecond and leaves the CPU's caches cold. After a long step that is nothing; after a short
one it makes the next step slower. So a census that takes a notable part of a step comes only after the last measured
step and the steps behind it: growth shows in consecutive steps, and a few slow steps do not change the median of the
many that are timed there. If too few steps are timed there, some measured steps get a census as well.
"""

from __future__ import annotations

from statistics import median
from types import FrameType

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.census.names import Census
from profkit.collect.machine import environment
from profkit.collect.program.clocks import time
from profkit.collect.recorder.archive import RunFile
from profkit.run.plan import Plan

ENOUGH = 4
"""How many samples show growth (`profkit.patterns.retention.holding`): the last measured step and three behind it."""
_MOST_BEHIND = ENOUGH - 1
_DEAR = 0.01
"""Share of a step that a census after each step may take: within the noise of most machines."""


class CensusTimes:
    """Call `after` for each step that ended, before the schedule advances."""

    def __init__(self, census: Census, schedule: Schedule, file: RunFile, plan: Plan) -> None:
        self._census, self._schedule, self._file = census, schedule, file
        self._planned, self._behind, self._is_light = plan.active, min(plan.after, _MOST_BEHIND), plan.is_light
        self._took_ns = self._before = 0
        self._were_skipped = False

    def are_due(self, ended: Phase) -> bool:
        """Whether the step that ended is followed by a census."""
        if self._is_light:
            return False
        is_behind = ended is Phase.AFTER and self._were_skipped and self._schedule.timed < self._behind
        if ended is Phase.ACTIVE:
            return self._is_wanted()
        return ended in (Phase.LOCATED, Phase.PROLOGUE) or self._schedule.is_settling or is_behind

    def after(self, ended: Phase, is_due: bool, frame: FrameType | None) -> None:
        """Take the census if `are_due` said so."""
        self._were_skipped |= not is_due and ended is Phase.ACTIVE
        if is_due:
            if ended is not Phase.PROLOGUE:
                begun = time.thread_time_ns()  # a promise of cost: this thread takes the census alone
                self._census.take(self._schedule.step, frame)
                self._took_ns = time.thread_time_ns() - begun
            if ended.recorded or ended is Phase.PROLOGUE:
                self._file.set(flags=environment.read_flags())
        if ended is not Phase.ACTIVE:
            self._before = self._census.taken

    def _is_wanted(self) -> bool:
        """Whether a measured step is followed by a census: always if that is cheap, else the last one and, spread
        evenly, as many others as samples are missing."""
        usual = self._schedule.reference_step_ns or self._schedule.measured_step_ns
        if not usual or self._took_ns <= _DEAR * median(usual):
            return True
        number, missing = self._schedule.measured + 1, max(1, ENOUGH - self._before - self._behind)
        return number * missing // self._planned > (number - 1) * missing // self._planned
