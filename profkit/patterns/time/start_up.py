"""What the program does once: whether the measured steps are that, and how much longer the first step takes for it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.core.units import format_share, format_time
from profkit.derive.facts import Facts, derived_once
from profkit.derive.steps.boundaries import STARTING_SHARE, compiling
from profkit.derive.timeline.intervals import Intervals, intersection, union, unite
from profkit.patterns.time.idling import when
from profkit.trace.statistics import median

_FEWEST_LATER = 2
"""One later step does not show how much they differ."""


@derived_once
def describe_start_up(facts: Facts) -> str | None:
    """Why the measured steps say nothing about the program's later ones; None if they do.

    Capturing, tuning and warming up count in any number of steps. Compiling and loading code count if there is one
    step alone: in each of several they are faults.
    """
    if not facts.has_trace:
        return None
    steps, starting = facts.steps, facts.starting
    whole = union(steps.start_ns[steps.measured], np.maximum(steps.end_ns, steps.done_ns)[steps.measured])
    kinds = {
        "capturing CUDA graphs": starting.capturing,
        "trying out kernels": starting.tuning,
        "warming up": starting.warming,
    }
    if steps.measured_count == 1:
        kinds["compiling or loading code"] = preparing(facts)
    shares = {kind: _share_of(whole, spent) for kind, spent in kinds.items()}
    together = _share_of(whole, unite(*kinds.values()))
    if together < STARTING_SHARE:
        return None
    kind = next((one for one, share in shares.items() if share >= STARTING_SHARE), max(shares, key=shares.__getitem__))
    takes, share = ("takes", shares[kind]) if shares[kind] >= STARTING_SHARE else ("and the like take", together)
    return f"what was recorded is start-up: {kind} {takes} {format_share(share)} of {format_time(whole.total_ns)}"


class ColdStart(Struct, frozen=True):
    """The first step that was not traced by lines, and how much longer it takes than the later ones' median."""

    step: int
    longer_ns: int


@derived_once
def find_cold_start(facts: Facts) -> ColdStart | None:
    """None if the first step is measured, or longer by no more than the later ones differ."""
    if not facts.has_trace:
        return None
    steps = facts.steps
    first = np.flatnonzero(~steps.located)[:1]
    later_ns = steps.duration_ns[steps.measured & ~steps.located]
    if not first.size or steps.measured[first[0]] or len(later_ns) < _FEWEST_LATER:
        return None
    longer_ns = int(steps.duration_ns[first[0]] - median(later_ns))
    return ColdStart(int(first[0]), longer_ns) if longer_ns > int(np.ptp(later_ns)) else None


@derived_once
def preparing(facts: Facts) -> Intervals:
    """When a thread that holds up the program compiled, or called something for the first time that loads code."""
    trace = facts.trace
    serial = facts.serial_lanes[trace.events.lane]
    return when(facts, (compiling(trace) | trace.mask_of(facts.first_calls)) & serial)


def _share_of(whole: Intervals, spent: Intervals) -> float:
    return intersection(whole, spent).total_ns / max(whole.total_ns, 1)
