"""What the recording itself cost."""

from __future__ import annotations

import numpy as np

from profkit.core.units import format_share
from profkit.derive.device.profiling import own_work
from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union
from profkit.diagnosis.health.window import window_ns
from profkit.savings.step_time import step_time
from profkit.trace.statistics import distinct

_NOTABLE_SLOWDOWN_SHARE = 0.25
_NOTABLE_SPEEDUP, _NOTABLE_WITH_DEVICE = 1.25, 2.0
"""Recording makes no step faster; a machine with other work makes some longer. From here on the times told of the
recorded steps differ visibly from a clock's. Beside a device the clock's count, and they vary more."""
_NOTABLE_WORK_SHARE = 0.05
"""Of the time. Steps of one program differ by as much."""
_NOTABLE_CROWDING = 0.1
"""Of the time, for which the steps would be shorter on a machine of their own."""


def check_crowding(facts: Facts) -> str | None:
    """The time that others had the CPUs, as far as it shows where."""
    share = facts.crowding.total_ns / max(window_ns(facts), 1)
    if share < _NOTABLE_CROWDING:
        return None
    return (
        f"other threads had the CPUs for at least {format_share(share)} of the recorded steps: prices leave it out, "
        "times do not"
    )


def check_slowdown(facts: Facts) -> str | None:
    time = step_time(facts)
    if time.source != "measured" or not time.unrecorded_ns:
        return None
    longer = (time.held_up_ns or time.unrecorded_ns) / max(time.recorded_ns, 1)
    if longer >= (_NOTABLE_SPEEDUP if time.held_up_ns else _NOTABLE_WITH_DEVICE):
        whose = ". All times are of the recorded ones" if time.held_up_ns else ""
        return (
            f"the steps without the profiler took {longer:.1f} times as long as the recorded ones: the machine "
            f"was busy, or they were unlike the others{whose}"
        )
    overhead = time.recorded_ns / time.unrecorded_ns - 1
    if overhead < _NOTABLE_SLOWDOWN_SHARE:
        return None
    excess_ns = (time.recorded_ns - time.unrecorded_ns) * facts.steps.measured_count
    if facts.overhead.total_ns < excess_ns / 2:
        return (
            f"the recorded steps took {format_share(overhead)} longer than others, beyond the profiler's own "
            "work: the machine was busy, or they were unlike the others"
        )
    return f"recording made the steps {format_share(overhead)} slower: times of many small operators are overstated"


def check_own_work(facts: Facts) -> str | None:
    """The time in which the profiler says that it was at work itself, on any thread."""
    events = facts.trace.events
    rows = np.flatnonzero(own_work(facts.trace) & facts.measured)
    share = union(events.start_ns[rows], events.ends_of(rows)).total_ns / window_ns(facts)
    if share < _NOTABLE_WORK_SHARE:
        return None
    names = ", ".join(sorted({facts.trace.names[code] for code in distinct(events.name_code[rows]).tolist()}))
    return f"the profiler itself was at work for {format_share(share)} of the time ({names}): step times are too long"
