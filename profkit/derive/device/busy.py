"""When the device worked: its lanes, their union, and the gaps between."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.device.communication import is_communication
from profkit.derive.device.launches import Launches
from profkit.derive.timeline.intervals import NOTHING, Intervals, union
from profkit.trace.events import NONE, Bools, Category, Rows, Trace
from profkit.trace.statistics import distinct

_LONG_LAUNCH_NS = 1_000_000
"""Work on an idle device starts 5 to 20 µs after its launch. After a millisecond something else held it up: work from
before the recording, or the loading of code, or the recorder itself."""
_AS_FAR_AHEAD = 0.5
"""If the host later runs ahead by this share of the first lag, it may have been as far ahead when the recording began.
Steps of one program differ by less."""
_BUSY_SHARE = 0.9
"""The share of a later lag in which recorded work runs: then this work is what held the later one up."""


class Device(Struct, frozen=True):
    """The work of all devices, and when any of them worked.

    All other times are those of the busiest device, as two that take turns would look like one that never rests.
    ``busy`` is the union over its streams, ``computing`` that of its kernels without collectives, ``communicating``
    that of collectives, which spin while they wait for other ranks. ``first_lag`` is the time from the first launch to
    its work, if that is far longer than any launch takes. ``is_behind`` says whether it is proven that the device then
    worked on something from before the recording: later work starts as long after its launch, behind recorded work."""

    work: Rows
    any_busy: Intervals
    busy: Intervals
    computing: Intervals
    communicating: Intervals
    first_lag: Intervals
    is_behind: bool
    collective: Bools

    @property
    def present(self) -> bool:
        return len(self.work) > 0

    @property
    def inherited(self) -> Intervals:
        """When the device worked on what was launched before the recording."""
        return self.first_lag if self.is_behind else NOTHING

    @property
    def occupied(self) -> Intervals:
        """When the device worked or may have worked: recorded work, and the lag of the first."""
        return _together(self.busy, self.first_lag)

    @property
    def any_occupied(self) -> Intervals:
        """The same for all devices."""
        return _together(self.any_busy, self.first_lag)


def _together(one: Intervals, other: Intervals) -> Intervals:
    return union(np.concatenate([one.start_ns, other.start_ns]), np.concatenate([one.end_ns, other.end_ns]))


def describe_device(trace: Trace, launches: Launches) -> Device:
    events = trace.events
    work = launches.work
    collective = ((events.category == Category.KERNEL) & trace.where_name(is_communication))[work]
    main = _on_busiest(trace, work)
    start, end = events.start_ns[work], events.ends_of(work)
    kernels, talks = main & (events.category[work] == Category.KERNEL) & ~collective, main & collective
    computing, communicating = union(start[kernels], end[kernels]), union(start[talks], end[talks])
    busy, first_lag = union(start[main], end[main]), _first_lag(trace, launches)
    is_behind = _runs_ahead(trace, launches, busy, first_lag)
    return Device(work, union(start, end), busy, computing, communicating, first_lag, is_behind, collective)


def _on_busiest(trace: Trace, work: Rows) -> Bools:
    """Which pieces of work ran on the busiest device."""
    events, names = trace.events, [lane.process for lane in trace.lanes]
    known = sorted(set(names))
    if not work.size or len({names[lane] for lane in distinct(events.lane[work]).tolist()}) == 1:
        return np.ones(len(work), dtype=bool)
    device = np.array([known.index(name) for name in names], dtype=np.int64)[events.lane[work]]
    busiest: Bools = device == np.bincount(device, events.duration_ns[work]).argmax()
    return busiest


def _first_lag(trace: Trace, launches: Launches) -> Intervals:
    """From the end of the first work's launch call to its start, if that is far longer than any launch takes."""
    start = trace.events.start_ns[launches.work]
    called = launches.call[start.argmin()] if len(start) else NONE
    if called < 0:
        return NOTHING
    launched = trace.events.ends_of(np.array([called]))
    first = np.array([start.min()])
    return union(launched, first) if first[0] - launched[0] > _LONG_LAUNCH_NS else NOTHING


def _runs_ahead(trace: Trace, launches: Launches, busy: Intervals, first_lag: Intervals) -> bool:
    """Whether work that is launched after the first has begun lags about as far behind its launch, behind recorded
    work. What the host launches during the first lag proves nothing: it waits behind the first in any case."""
    known = np.flatnonzero(launches.call >= 0)
    if not len(known) or not first_lag.total_ns:
        return False
    called_ns = trace.events.ends_of(launches.call[known])
    lag_ns = trace.events.start_ns[launches.work[known]] - called_ns
    later = (called_ns >= first_lag.end_ns[-1]) & (lag_ns >= _AS_FAR_AHEAD * first_lag.total_ns)
    worked_ns = busy.covered_within(called_ns[later], called_ns[later] + lag_ns[later])
    return bool((worked_ns >= _BUSY_SHARE * lag_ns[later]).any())
