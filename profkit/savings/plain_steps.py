"""The program's steps that no profiler watched: how long each took, and how regularly the long ones come."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.run.directory import unprofiled_steps
from profkit.savings.step_time import step_time
from profkit.trace.events import Float64s, Rows
from profkit.trace.statistics import median

BESIDE_RECORDING = 5
"""Steps without the profiler that do not count: two before the recording (the first is the program's first), one in the
middle of it and two after it, which find cold caches and give memory back."""
_REGULAR = 0.8
"""The least share of equal intervals: accidents among many cycles do not hide them."""


def plain_steps_ns(facts: Facts) -> Float64s:
    """The steps without the profiler that count. Those long after the recording are seldom like its own, but an epoch
    may be that long."""
    nearest_ns, later_ns = unprofiled_steps(facts.run, step_time(facts).bound_by)
    return np.asarray([*nearest_ns[BESIDE_RECORDING:], *later_ns], dtype=np.float64)


def regular_interval(places: Rows) -> int:
    """How many steps lie between these, if that is nearly always the same number above 1; else 0."""
    intervals = np.diff(places)
    usual = int(median(intervals)) if intervals.size else 0
    return usual if usual > 1 and (intervals == usual).mean() >= _REGULAR else 0
