"""Do the recording's clocks agree with each other, and with the order in which things can happen?"""

from __future__ import annotations

import numpy as np

from profkit.core.units import format_count, format_share, format_time
from profkit.derive.facts import Facts
from profkit.diagnosis.health.window import is_notable
from profkit.trace.events import Category, Int64s

_TOLERATED_NS = 20_000
"""How late a wait may return after the work is done, and how far the clocks of host and device may be apart."""
_HOLE_NS = 10 * 10**9
_MOST_SHARE = 0.9
"""A program may wait for a compiler or for data, but hardly for nine tenths of a recording."""
_MEANING = "the clocks of host and GPU disagree, so waits and idle times are off by as much"


def check_launch_order(facts: Facts) -> str | None:
    """Work that starts before the call that launches it."""
    events, launches = facts.trace.events, facts.launches
    linked = launches.call >= 0
    called_ns = events.start_ns[launches.call[linked]]
    lead_ns = called_ns - events.start_ns[launches.work[linked]]
    early = lead_ns > 0
    if not is_notable(early.sum(), len(lead_ns)):
        return None
    return (
        f"GPU work starts before the call that launches it ({int(early.sum()):,} of "
        f"{format_count(len(lead_ns), 'GPU event')}, by up to {format_time(int(lead_ns.max()))}, "
        f"{_between(called_ns[early])}): {_MEANING}"
    )


def check_wait_order(facts: Facts) -> str | None:
    """Waits for the whole device that return before the work launched ahead of them is done."""
    events, launches, waits = facts.trace.events, facts.launches, facts.waits
    one_stream = len(set(events.lane[launches.work].tolist())) == 1
    rows = waits.rows[waits.whole_device | one_stream]
    rows = rows[events.category[rows] == Category.RUNTIME]
    rows = rows[~facts.trace.mask_of(launches.call[launches.call >= 0])[rows]]
    linked = np.flatnonzero(launches.call >= 0)
    if not rows.size or not linked.size:
        return None
    linked = linked[np.argsort(events.ends_of(launches.call[linked]), kind="stable")]
    done_ns = np.maximum.accumulate(events.ends_of(launches.work[linked]))
    before = np.searchsorted(events.ends_of(launches.call[linked]), events.start_ns[rows], side="right") - 1
    returned_ns = events.ends_of(rows)
    late_ns = np.where(before >= 0, done_ns[before.clip(min=0)] - returned_ns, 0)
    late = late_ns > _TOLERATED_NS
    if not is_notable(late.sum(), len(rows)):
        return None
    return (
        f"waits for the GPU return before its work is done ({int(late.sum()):,} of "
        f"{format_count(len(rows), 'wait')}, by up to {format_time(int(late_ns.max()))}, "
        f"{_between(events.start_ns[rows][late])}): {_MEANING}"
    )


def check_hole(facts: Facts) -> str | None:
    """A stretch without any event, far longer than all the rest: the clock was set, or the machine slept."""
    events = facts.trace.events
    rows = np.flatnonzero(events.category != Category.PYTHON)  # Python frames began before the recording
    if not rows.size:
        return None
    start_ns, end_ns = events.start_ns[rows], events.ends_of(rows)
    span_ns = int(end_ns.max() - start_ns.min())
    least_ns = max(_HOLE_NS, _MOST_SHARE * span_ns)
    if np.diff(np.sort(start_ns)).max(initial=0) < least_ns:
        return None  # without the memory of what follows, which is for few recordings
    order = np.argsort(start_ns, kind="stable")
    quiet_ns = start_ns[order][1:] - np.maximum.accumulate(end_ns[order])[:-1]
    longest_ns = int(quiet_ns.max(initial=0))
    if longest_ns < least_ns:
        return None
    at_ns = int(start_ns[order][int(quiet_ns.argmax()) + 1]) - longest_ns
    return (
        f"nothing was recorded for {format_time(longest_ns)}, {format_share(longest_ns / span_ns)} of the "
        f"recording, from {format_time(at_ns)} on: the machine slept or its clock was set"
    )


def _between(times_ns: Int64s) -> str:
    """From when to when, as it may affect the whole recording or begin when the clock was set."""
    return f"from {format_time(int(times_ns.min()))} to {format_time(int(times_ns.max()))} into the recording"
