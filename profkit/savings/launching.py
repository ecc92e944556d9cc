"""The host's time from launch to launch, and what is left of it if one graph launches everything.

`launch-bound` and `eager-decode` ask for this: the one for whole steps, the other for those of a server.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import Intervals, intersection, union
from profkit.patterns.time.idling import busy_otherwise
from profkit.patterns.time.wait_causes import WaitCause, wait_causes
from profkit.savings.edits import Edit, combine, shrink_spans
from profkit.savings.pricing import closer_in_a_graph
from profkit.savings.replay import replay
from profkit.savings.step_time import step_time
from profkit.trace.events import Bools, Category, Rows
from profkit.trace.statistics import among, distinct

_OTHER_WORK_NS = 1_000_000
"""An operator takes the host 5 to 50 µs; with autograd, hooks and a profiler some 200. A millisecond without a launch
is not spent on launching."""
_MODEL_UNCERTAINTY = 0.3
"""A graph keeps inputs in fixed buffers, and copying them there is not counted; nor is what a compiler gains."""


class LaunchedKernels(Struct, frozen=True):
    """Kernels launched in the measured steps, the call that launched each, and the distinct calls by time."""

    work: Rows
    call_of: Rows
    calls: Rows


@derived_once
def launched_kernels(facts: Facts) -> LaunchedKernels:
    """All kernels of the measured steps whose launch is known."""
    events, launches = facts.trace.events, facts.launches
    chosen = (launches.call >= 0) & (events.category[launches.work] == Category.KERNEL) & facts.measured[launches.call]
    calls = distinct(launches.call[chosen])
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    return LaunchedKernels(launches.work[chosen], launches.call[chosen], calls)


def launching_time(facts: Facts, kernels: LaunchedKernels) -> Intervals:
    """When the host is between two launches that follow each other closely, or at the edge of a step."""
    events, steps = facts.trace.events, facts.steps
    launched_ns = events.start_ns[kernels.calls]
    edges = distinct(np.concatenate([launched_ns, steps.start_ns[steps.measured], steps.end_ns[steps.measured]]))
    close = np.diff(edges) < _OTHER_WORK_NS
    between = union(edges[:-1][close], edges[1:][close])
    pauses = events.category == Category.PAUSE
    away = np.flatnonzero((facts.loading | pauses) & (events.lane == steps.main_lane))
    away = np.concatenate([away, np.flatnonzero(busy_otherwise(facts)), facts.waits.rows[~facts.waits.own]])
    between = between.minus(union(events.start_ns[away], facts.tree.end_ns[away]))
    return intersection(between.minus(_between_sizes(facts)), _measured_time(facts))


def _between_sizes(facts: Facts) -> Intervals:
    """From one wait for the size of a result to the next in the same step, as in a loop over experts."""
    rows = np.sort(facts.waits.rows[wait_causes(facts) == WaitCause.SIZE_OF_RESULT])
    rows = rows[np.argsort(facts.trace.events.start_ns[rows], kind="stable")]
    step = facts.step_of(rows)
    same = (step[1:] == step[:-1]) & (step[1:] >= 0)
    return union(facts.trace.events.start_ns[rows[:-1][same]], facts.trace.events.start_ns[rows[1:][same]])


@derived_once
def holding_up_launches(facts: Facts) -> Bools:
    """The waits, other than the recording's own, in which the host waits for the device and launches nothing."""
    return ~facts.waits.own & ~among(facts.waits.rows, facts.launches.call)


def idle_while_launching(facts: Facts, launching: Intervals) -> float:
    """The share of the step for which the device idles while the host launches, without gaps that begin while the host
    waits for the device."""
    waits = facts.waits.rows[holding_up_launches(facts)]
    gaps = facts.device.occupied.gaps(*facts.steps.window_ns)
    waiting = union(facts.trace.events.start_ns[waits], facts.tree.end_ns[waits])
    drained = waiting.covered_within(gaps.start_ns, gaps.start_ns + 1) > 0
    launched = intersection(Intervals(gaps.start_ns[~drained], gaps.end_ns[~drained]), launching)
    return least_idle_share(facts, launched)


def least_idle_share(facts: Facts, part: Intervals) -> float:
    """The share of the shortest possible step that this part of the device's idle time makes up. It is taken to be the
    same part of all idle time as in the recorded steps, which a recording makes longer."""
    time = step_time(facts)
    idle = intersection(facts.device.occupied.gaps(*facts.steps.window_ns), _measured_time(facts))
    if time.least_ns is None or time.device_ns is None or not idle.total_ns:
        return 0.0
    return max(0.0, 1 - time.device_ns / max(time.least_ns, 1)) * min(1.0, part.total_ns / idle.total_ns)


def as_one_graph(facts: Facts, launching: Intervals, work: Rows) -> Edit:
    """The host's time between launches goes, and the kernels follow each other as in a graph. A larger batch or a graph
    leaves part of the launching, and the real step may be the shortest possible: hence the uncertainty."""
    together = shrink_spans(launching.start_ns, launching.end_ns, 0, _MODEL_UNCERTAINTY)
    edit = combine([together, closer_in_a_graph(facts, work, _MODEL_UNCERTAINTY)])
    return replace(edit, uncertainty=_uncertainty(facts, replay(facts, edit).fraction))


def _uncertainty(facts: Facts, saved: float) -> float:
    time = step_time(facts)
    shortest = (time.least_ns or time.ns) / max(time.ns, 1)
    at_least = max(0.0, 1 - (1 - saved) / max(shortest, 1e-9))
    return max(_MODEL_UNCERTAINTY, 1 - at_least / max(saved, 1e-9))


def _measured_time(facts: Facts) -> Intervals:
    steps = facts.steps
    return union(steps.start_ns[steps.measured], steps.end_ns[steps.measured])
