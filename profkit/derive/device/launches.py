"""The launch of each piece of device work: its runtime call and its operator."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.intervals import union
from profkit.trace.events import DEVICE_WORK, NONE, Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import among, distinct

_LAUNCH_CALLS = ("LaunchKernel", "GraphLaunch", "ExtModuleLaunch")
_MOSTLY_RECORDED_SHARE = 0.5
"""If this share of the work has a launch record, work without one was launched before the recording."""


class Launches(Struct, frozen=True):
    """Columns over the device's work, in the order of `work`.

    ``call`` is the row of the runtime call that launched it, ``operator`` that of the innermost operator around the
    call, `NONE` if unknown. Kernels of one graph launch share their call. ``launched_ns`` is when it was launched, or
    the latest possible time of that; it never falls within a stream.
    """

    work: Rows
    call: Rows
    operator: Rows
    launched_ns: Int64s

    @property
    def owner(self) -> Rows:
        """The call, else the operator."""
        return np.where(self.call >= 0, self.call, self.operator)

    @property
    def unlaunched(self) -> int:
        """How many pieces of device work have no launch record."""
        return int((self.call < 0).sum())


def link_launches(trace: Trace, calling: Int32s) -> Launches:
    """Join device work with runtime calls by correlation id, and with operators by nesting, else by external id.

    ``calling`` is the innermost operator around each event.
    """
    events = trace.events
    work = trace.rows(*DEVICE_WORK)
    calls = trace.rows(Category.RUNTIME)
    call = _join(events.correlation[work], events.correlation[calls], calls)
    operators = events.category == Category.OPERATOR
    operator = np.where(call >= 0, calling[call], np.int64(NONE))
    owners = np.flatnonzero(operators & (events.external > 0))
    by_id = _join(events.external[work], events.external[owners], owners)
    operator = np.where(operator >= 0, operator, by_id)
    return Launches(work, call, operator, _when_launched(trace, work, call, operator))


def find_fruitless_launches(trace: Trace, launches: Launches) -> tuple[Rows, Bools]:
    """The calls that launch something, in time order, and which of them have no work in the recording.

    Calls without an id, and those while a graph is captured, which launch nothing, are left out.
    """
    events = trace.events
    calls = launch_calls(trace)
    calls = calls[events.correlation[calls] > 0]
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    calls = calls[~_while_capturing(trace, calls)]
    linked = events.correlation[launches.work]
    if not (linked > 0).any():
        return calls[:0], np.zeros(0, dtype=bool)
    return calls, ~among(events.correlation[calls], linked)


def launch_calls(trace: Trace) -> Rows:
    """The runtime calls that launch kernels or graphs."""
    named = trace.where_name(lambda name: any(call in name for call in _LAUNCH_CALLS))
    return np.flatnonzero(named & (trace.events.category == Category.RUNTIME))


def _while_capturing(trace: Trace, calls: Rows) -> Bools:
    events = trace.events
    begin = trace.where_name(lambda name: "StreamBeginCapture" in name)
    end = trace.where_name(lambda name: "StreamEndCapture" in name)
    begins, ends = np.sort(events.start_ns[begin]), np.sort(events.start_ns[end])
    after = np.append(ends, events.end_ns.max(initial=0))[np.searchsorted(ends, begins)]
    capturing: Bools = union(begins, after).covered_within(events.start_ns[calls], events.start_ns[calls] + 1) > 0
    return capturing


def _when_launched(trace: Trace, work: Rows, call: Rows, operator: Rows) -> Int64s:
    """The start of the call, else of the operator.

    A stream runs in order, so work that started before other work was launched no later, whatever ids and clocks say.
    If most work has a record, work that a stream runs before its first with a record was launched before the
    recording."""
    events = trace.events
    launched_ns = events.start_ns[work]
    launched_ns = np.where(operator >= 0, np.minimum(launched_ns, events.start_ns[operator]), launched_ns)
    launched_ns = np.where(call >= 0, events.start_ns[call], launched_ns)
    known = (call >= 0) | (operator >= 0)
    before_all = int(events.start_ns.min(initial=0)) - 1
    for lane in distinct(events.lane[work]):
        rows = np.flatnonzero(events.lane[work] == lane)
        rows = rows[np.argsort(events.start_ns[work[rows]], kind="stable")]
        launched_ns[rows] = np.minimum.accumulate(launched_ns[rows][::-1])[::-1]
        first = int(known[rows].argmax())
        if first and known[rows].any() and known.mean() >= _MOSTLY_RECORDED_SHARE:
            launched_ns[rows[:first]] = before_all
    return launched_ns


def _join(keys: Int64s, table_keys: Int64s, table_rows: Rows) -> Rows:
    """For each key the table's first row with the same key; `NONE` without one or for keys <= 0."""
    if not len(table_keys):
        return np.full(len(keys), NONE, dtype=np.int64)
    order = np.argsort(table_keys, kind="stable")
    sorted_keys = table_keys[order]
    at = np.searchsorted(sorted_keys, keys).clip(max=len(sorted_keys) - 1)
    return np.where((sorted_keys[at] == keys) & (keys > 0), table_rows[order[at]], NONE)
