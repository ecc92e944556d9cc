"""When each step was over, on the host and on the device."""

from __future__ import annotations

import numpy as np

from profkit.derive.device.launches import Launches, find_fruitless_launches
from profkit.trace.events import Bools, Int64s, Trace

_BACKLOG_NS = 1_000_000
"""Work on an idle device starts 5 to 20 µs after its launch; after a millisecond, something ran before it."""
_MOST_LOST_SHARE = 0.05
"""A step that lacks the work of a larger share of its launches does not measure the device's time, if others do."""


def when_done(
    trace: Trace, launches: Launches, start_ns: Int64s, end_ns: Int64s, waited_ns: Int64s
) -> tuple[Int64s, Int64s]:
    """When the step before each one was over, and when it was over itself, on host and device.

    If the step before was not recorded, the device may still be working on it. The step then takes at least as long as
    the host works in it: its time without ``waited_ns``, its waits for the device.
    """
    events = trace.events
    order = np.argsort(launches.launched_ns, kind="stable")
    launched_ns = launches.launched_ns[order]
    reached_ns = np.maximum.accumulate(events.ends_of(launches.work[order]))
    reached_ns = np.append(np.iinfo(np.int64).min, reached_ns)
    done_ns = np.maximum(end_ns, reached_ns[np.searchsorted(launched_ns, end_ns)])
    begun_ns = np.maximum(start_ns, reached_ns[np.searchsorted(launched_ns, start_ns)])
    begun_ns = np.maximum(begun_ns, _unrecorded_work_until(trace, launches, start_ns, end_ns))
    at_work_ns = end_ns - start_ns - waited_ns
    alone_ns = np.maximum(start_ns, np.minimum(begun_ns, done_ns - at_work_ns))
    return np.where(_follow(start_ns, end_ns), begun_ns, alone_ns), done_ns


def _follow(start_ns: Int64s, end_ns: Int64s) -> Bools:
    """Which of the steps directly follow a recorded one."""
    return np.append(False, start_ns[1:] - end_ns[:-1] <= _BACKLOG_NS)


def _unrecorded_work_until(trace: Trace, launches: Launches, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """Until when unrecorded work kept the device busy, 0 if none did, for steps that follow no recorded one.

    That is until the step's first work began, if it had waited for long and nothing recorded ran in the meantime."""
    events, until_ns = trace.events, np.zeros(len(start_ns), dtype=np.int64)
    linked = np.flatnonzero(launches.call >= 0)
    linked = linked[np.argsort(launches.launched_ns[linked], kind="stable")]
    ends_ns = np.sort(events.ends_of(launches.work))
    first = np.searchsorted(launches.launched_ns[linked], start_ns)
    for step in np.flatnonzero(~_follow(start_ns, end_ns) & (first < len(linked))).tolist():
        piece = linked[first[step]]
        begun_ns = int(events.start_ns[launches.work[piece]])
        launched_ns = int(events.ends_of(launches.call[[piece]])[0])
        idle_since = int(np.searchsorted(ends_ns, launched_ns)) == int(np.searchsorted(ends_ns, begun_ns, side="right"))
        if idle_since and begun_ns - launched_ns > _BACKLOG_NS and launched_ns < end_ns[step]:
            until_ns[step] = begun_ns
    return until_ns


def lost_work(trace: Trace, launches: Launches, start_ns: Int64s, end_ns: Int64s) -> Bools:
    """The steps that lack too much of the device's work."""
    calls, fruitless = find_fruitless_launches(trace, launches)
    called_ns = trace.events.start_ns[calls]
    lost = sums_inside(start_ns, end_ns, called_ns, fruitless.astype(np.int64))
    return lost > _MOST_LOST_SHARE * counts_inside(start_ns, end_ns, called_ns)


def counts_inside(start_ns: Int64s, end_ns: Int64s, times_ns: Int64s) -> Int64s:
    return sums_inside(start_ns, end_ns, times_ns, np.ones(len(times_ns), dtype=np.int64))


def sums_inside(start_ns: Int64s, end_ns: Int64s, times_ns: Int64s, values: Int64s) -> Int64s:
    order = np.argsort(times_ns, kind="stable")
    sums = np.concatenate([[0], np.cumsum(values[order])]).astype(np.int64)
    times = times_ns[order]
    return sums[np.searchsorted(times, end_ns)] - sums[np.searchsorted(times, start_ns)]
