"""Is the device's side of the recording complete: a kernel for each launch, and a launch for each kernel?"""

from __future__ import annotations

import numpy as np

from profkit.derive.device.launches import find_fruitless_launches
from profkit.derive.facts import Facts, derived_once
from profkit.trace.events import Bools, Rows
from profkit.units import format_count, format_time

_NOTABLE_SHARE = 0.01
_MOST_LOST_SHARE = 0.5
_LONG_OVERLAP_NS = 1_000_000
"""Kernels of a stream run one after another; if one may begin early, they overlap by microseconds."""


def check_leading_kernels(facts: Facts) -> str | None:
    """Kernels that the profiler drops while its buffers are not ready yet."""
    calls, fruitless = _fruitless(facts)
    first = int((~fruitless).argmax()) if calls.size else 0
    if first < _NOTABLE_SHARE * len(calls) or not first:
        return None
    begin_ns, end_ns = facts.trace.events.start_ns[calls[[0, first]]].tolist()
    lost = format_time(end_ns - begin_ns)
    return (
        f"the kernels of the first {first:,} of {_count_launches(len(calls))} are missing: for {lost} the GPU seems "
        "idle, but may not have been"
    )


def check_missing_kernels(facts: Facts) -> str | None:
    calls, fruitless = _fruitless(facts)
    fruitful = np.flatnonzero(~fruitless)
    count = int(fruitless[fruitful[0] : fruitful[-1]].sum()) if fruitful.size else 0
    if count < _NOTABLE_SHARE * len(calls) or not count:
        return None
    return (
        f"no kernel is recorded for {count:,} of {_count_launches(len(calls))}: records of the GPU were lost, and its "
        "work is understated"
    )


def check_trailing_kernels(facts: Facts) -> str | None:
    calls, fruitless = _fruitless(facts)
    last = int((~fruitless[::-1]).argmax()) if calls.size else 0
    if last < _NOTABLE_SHARE * len(calls) or not last:
        return None
    return (
        f"the kernels of the last {last:,} of {_count_launches(len(calls))} are missing: the recording ended before "
        "they ran, and no figure includes them"
    )


def check_launch_records(facts: Facts) -> str | None:
    missing, total = facts.launches.unlaunched, len(facts.launches.work)
    if missing < _NOTABLE_SHARE * total or not missing:
        return None
    return f"no launch is recorded for {missing:,} of {total:,} GPU events: they cannot be traced back to a line"


def check_most_lost(facts: Facts) -> str | None:
    """Too much of the device's side is missing for the rest to speak for the whole."""
    calls, fruitless = _fruitless(facts)
    if fruitless.sum() > _MOST_LOST_SHARE * len(calls):
        return f"no kernel is recorded for {int(fruitless.sum()):,} of {_count_launches(len(calls))}"
    missing, total = facts.launches.unlaunched, len(facts.launches.work)
    if missing > _MOST_LOST_SHARE * total:
        return f"no launch is recorded for {missing:,} of {total:,} GPU events"
    return None


def check_durations(facts: Facts) -> str | None:
    """Work that seems to last far into the next work of its stream; branches of one graph may run side by side."""
    events, work = facts.trace.events, facts.launches.work
    later, earlier = work[1:], work[:-1]  # in the trace's order, by lane and start
    overlap_ns = events.ends_of(earlier) - events.start_ns[later]
    alone = (events.correlation[earlier] != events.correlation[later]) | (events.correlation[later] < 0)
    wrong = (
        (events.lane[earlier] == events.lane[later]) & alone
        & (overlap_ns >= _LONG_OVERLAP_NS) & (overlap_ns > 0.5 * events.duration_ns[earlier])
    )  # fmt: skip
    if not wrong.any():
        return None
    return (
        f"{format_count(int(wrong.sum()), 'GPU event')} cannot have lasted as long as recorded, by up to "
        f"{format_time(int(overlap_ns[wrong].max()))}: later work of the same stream begins before the end; the GPU's "
        "busy time is overstated"
    )


@derived_once
def _fruitless(facts: Facts) -> tuple[Rows, Bools]:
    return find_fruitless_launches(facts.trace, facts.launches)


def _count_launches(count: int) -> str:
    return format_count(count, "kernel launch", "kernel launches")
