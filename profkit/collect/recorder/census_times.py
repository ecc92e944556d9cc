"""When profkit looks, between two steps, at what the program's names hold and which settings are on.

A look takes about a millisecond, and leaves the processor's caches to other data than the program's. After a long step
that is nothing; after a short one the next is recorded slower than it is. So where a look takes a notable part of a
step it comes after the last of the measured steps and after those behind them: what begins to grow late needs steps in
a row, and a few among the many that are timed there do not change their median. Where too few are timed there to tell
growth from, some of the measured steps are looked at as well.
"""

from __future__ import annotations

import time
from statistics import median
from types import FrameType

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.census.names import Census
from profkit.collect.machine import environment
from profkit.collect.recorder.side_files import SideFiles
from profkit.plan import Plan

ENOUGH = 4
"""Samples, from which growth is told (`profkit.evidence.retention.holding`): with the last measured step three behind
it."""
_MOST_BEHIND = ENOUGH - 1
_DEAR = 0.01
"""Of a step: what comes after each is to stay within the noise of most machines."""


class CensusTimes:
    """``after`` is told of each step that ended, before the schedule is."""

    def __init__(self, census: Census, schedule: Schedule, files: SideFiles, plan: Plan) -> None:
        self._census, self._schedule, self._files = census, schedule, files
        self._planned, self._behind = plan.active, min(plan.after, _MOST_BEHIND)
        self._took_ns = self._before = 0
        self._were_skipped = False

    def are_due(self, ended: Phase) -> bool:
        """Whether anything is looked at after the step that ended."""
        is_behind = ended is Phase.AFTER and self._were_skipped and self._schedule.timed < self._behind
        if ended is Phase.ACTIVE:
            return self._is_wanted()
        return ended in (Phase.LOCATED, Phase.PROLOGUE) or self._schedule.is_settling or is_behind

    def after(self, ended: Phase, is_due: bool, frame: FrameType | None) -> None:
        """Look, if it is time to, as `are_due` said."""
        self._were_skipped |= not is_due and ended is Phase.ACTIVE
        if is_due:
            if ended is not Phase.PROLOGUE:
                begun = time.perf_counter_ns()
                self._census.take(self._schedule.step, frame)
                self._took_ns = time.perf_counter_ns() - begun
            if ended.recorded or ended is Phase.PROLOGUE:
                self._files.set(flags=environment.read_flags())
        if ended is not Phase.ACTIVE:
            self._before = self._census.taken

    def _is_wanted(self) -> bool:
        """After a measured step: always where that is cheap, else after the last one and as many as are missing, evenly
        among the others."""
        usual = self._schedule.reference_step_ns or self._schedule.measured_step_ns
        if not usual or self._took_ns <= _DEAR * median(usual):
            return True
        number, missing = self._schedule.measured + 1, max(1, ENOUGH - self._before - self._behind)
        return number * missing // self._planned > (number - 1) * missing // self._planned
