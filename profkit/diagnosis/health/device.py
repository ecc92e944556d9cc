"""Was the device recorded at all, and completely: a kernel for each launch, and a launch for each kernel?"""

from __future__ import annotations

import numpy as np

from profkit.core.units import format_count, format_time
from profkit.derive.device.launches import find_fruitless_launches
from profkit.derive.facts import Facts, derived_once
from profkit.diagnosis.health.window import is_notable
from profkit.trace.events import Bools, Rows

_MOST_LOST_SHARE = 0.5
_LONG_OVERLAP_NS = 1_000_000
"""Kernels of a stream run one after another. One that is allowed to begin early overlaps by microseconds."""


def describe_unrecorded(facts: Facts) -> str | None:
    """Why nothing can be said about the device that the program computed on; None if all of its work was recorded."""
    accelerator = facts.accelerator
    if accelerator is None or accelerator.is_recorded:
        return None
    advice = f"; ProfilerActivity.{accelerator.activity} records it" if accelerator.activity else ""
    return (
        f"the program used {accelerator.label} whose work was not recorded ({accelerator.evidence}{advice}): only "
        "the host's side is judged, and the device's times are unknown"
    )


def check_leading_kernels(facts: Facts) -> str | None:
    """Kernels that the profiler drops while its buffers are not ready."""
    calls, fruitless = _fruitless(facts)
    first = int((~fruitless).argmax()) if calls.size else 0
    if not is_notable(first, len(calls)):
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
    if not is_notable(count, len(calls)):
        return None
    return (
        f"no kernel is recorded for {count:,} of {_count_launches(len(calls))}: records of the GPU were lost, and its "
        "work is understated"
    )


def check_trailing_kernels(facts: Facts) -> str | None:
    calls, fruitless = _fruitless(facts)
    last = int((~fruitless[::-1]).argmax()) if calls.size else 0
    if not is_notable(last, len(calls)):
        return None
    return (
        f"the kernels of the last {last:,} of {_count_launches(len(calls))} are missing: the recording ended before "
        "they ran, and no figure includes them"
    )


def check_launch_records(facts: Facts) -> str | None:
    missing, total = facts.launches.unlaunched, len(facts.launches.work)
    if not is_notable(missing, total):
        return None
    return f"no launch is recorded for {missing:,} of {total:,} GPU events: they cannot be traced back to a line"


def check_most_lost(facts: Facts) -> str | None:
    """So much of the device's side is missing that the rest does not speak for the whole."""
    calls, fruitless = _fruitless(facts)
    if fruitless.sum() > _MOST_LOST_SHARE * len(calls):
        return f"no kernel is recorded for {int(fruitless.sum()):,} of {_count_launches(len(calls))}"
    missing, total = facts.launches.unlaunched, len(facts.launches.work)
    if missing > _MOST_LOST_SHARE * total:
        return f"no launch is recorded for {missing:,} of {total:,} GPU events"
    return None


def check_durations(facts: Facts) -> str | None:
    """Work that seems to last far into the next work of its stream. Branches of one graph may run side by side."""
    events, work = facts.trace.events, facts.launches.work
    later, earlier = work[1:], work[:-1]  # in the trace's order, by lane and start
    overlap_ns = events.ends_of(earlier) - events.start_ns[later]
    alone = (events.correlation[earlier] != events.correlation[later]) | (events.correlation[later] < 0)
    wrong = (
        (events.lane[earlier] == events.lane[later])
        & alone
        & (overlap_ns >= _LONG_OVERLAP_NS)
        & (overlap_ns > 0.5 * events.duration_ns[earlier])
    )
    if not wrong.any():
        return None
    return (
        f"{format_count(int(wrong.sum()), 'GPU event')} cannot have lasted as long as recorded, by up to "
        f"{format_time(int(overlap_ns[wrong].max()))}: the GPU's busy time is overstated"
    )


@derived_once
def _fruitless(facts: Facts) -> tuple[Rows, Bools]:
    return find_fruitless_launches(facts.trace, facts.launches)


def _count_launches(count: int) -> str:
    return format_count(count, "kernel launch", "kernel launches")
