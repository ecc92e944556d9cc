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
"""Work on an idle device starts 5 to 20 µs after its launch; after a millisecond, something ran before it."""


class Device(Struct, frozen=True):
    """The work of all devices, and when any of them worked.

    All other times are those of the busiest device, as two that take turns would look like one that never rests.
    ``busy`` is the union over its streams, ``computing`` that of its kernels without collectives, ``communicating``
    that of collectives, which spin while they wait for other ranks. ``inherited`` is the time before the first recorded
    work in which launched work was already waiting: the device was busy with work from before the recording."""

    work: Rows
    any_busy: Intervals
    busy: Intervals
    computing: Intervals
    communicating: Intervals
    inherited: Intervals
    collective: Bools

    @property
    def present(self) -> bool:
        return len(self.work) > 0

    @property
    def occupied(self) -> Intervals:
        """Recorded and inherited work together."""
        return _together(self.busy, self.inherited)

    @property
    def any_occupied(self) -> Intervals:
        """The same for all devices."""
        return _together(self.any_busy, self.inherited)


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
    busy, inherited = union(start[main], end[main]), _inherited(trace, launches)
    return Device(work, union(start, end), busy, computing, communicating, inherited, collective)


def _on_busiest(trace: Trace, work: Rows) -> Bools:
    """Which pieces of work ran on the busiest device."""
    events, names = trace.events, [lane.process for lane in trace.lanes]
    known = sorted(set(names))
    if not work.size or len({names[lane] for lane in distinct(events.lane[work]).tolist()}) == 1:
        return np.ones(len(work), dtype=bool)
    device = np.array([known.index(name) for name in names], dtype=np.int64)[events.lane[work]]
    busiest: Bools = device == np.bincount(device, events.duration_ns[work]).argmax()
    return busiest


def _inherited(trace: Trace, launches: Launches) -> Intervals:
    """From the end of the first work's launch call to its start, if that is far longer than any launch takes."""
    start = trace.events.start_ns[launches.work]
    called = launches.call[start.argmin()] if len(start) else NONE
    if called < 0:
        return NOTHING
    launched = trace.events.ends_of(np.array([called]))
    first = np.array([start.min()])
    return union(launched, first) if first[0] - launched[0] > _LONG_LAUNCH_NS else NOTHING
