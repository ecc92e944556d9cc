"""The launch of each piece of device work: its runtime call and its operator."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.device.starting import capturing
from profkit.trace.events import DEVICE_WORK, NONE, Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import among, distinct

_LAUNCH_CALLS = ("LaunchKernel", "GraphLaunch", "ExtModuleLaunch")
_ENQUEUING = (*_LAUNCH_CALLS, "Memcpy", "Memset")
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
    """Join device work with runtime calls by correlation id, else by external id and order, and with operators by
    nesting, else by external id.

    ``calling`` is the innermost operator around each event.
    """
    events = trace.events
    work = trace.rows(*DEVICE_WORK)
    calls = trace.rows(Category.RUNTIME)
    call = _join(trace, events.correlation, work, calls)
    uncorrelated = np.flatnonzero((call < 0) & (events.correlation[work] <= 0) & (events.external[work] > 0))
    if uncorrelated.size:
        call[uncorrelated] = _join_in_order(trace, work[uncorrelated])
    operators = events.category == Category.OPERATOR
    operator = np.where(call >= 0, calling[call], np.int64(NONE))
    owners = np.flatnonzero(operators & (events.external > 0))
    by_id = _join(trace, events.external, work, owners)
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
    start_ns = trace.events.start_ns[calls]
    captured: Bools = capturing(trace).covered_within(start_ns, start_ns + 1) > 0
    return captured


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


def _join_in_order(trace: Trace, work: Rows) -> Rows:
    """The call that put each piece of work on the device, `NONE` if it is not told, where both lack a correlation.

    An operator's calls and work share its external id; a stream keeps the order in which they were called. So they pair
    up if there are as many of both. One call for all is a graph's.
    """
    events = trace.events
    named = trace.where_name(lambda name: any(call in name for call in _ENQUEUING))
    calls = np.flatnonzero(named & (events.category == Category.RUNTIME) & (events.correlation <= 0))
    calls = calls[events.external[calls] > 0]
    calls = calls[np.lexsort((events.start_ns[calls], events.external[calls]))]
    order = np.lexsort((events.start_ns[work], events.external[work]))
    ids, first, count = np.unique(events.external[work[order]], return_index=True, return_counts=True)
    first_call = np.searchsorted(events.external[calls], ids)
    call_count = np.searchsorted(events.external[calls], ids, side="right") - first_call
    place = np.arange(len(work)) - np.repeat(first, count)
    place = np.where(np.repeat(call_count, count) == 1, 0, place)
    paired = np.repeat((call_count == count) | (call_count == 1), count)
    found = np.full(len(work), NONE, dtype=np.int64)
    found[order[paired]] = calls[(np.repeat(first_call, count) + place)[paired]]
    return found


def _join(trace: Trace, ids: Int64s, work: Rows, table: Rows) -> Rows:
    """For each row of ``work`` the row of ``table`` with the same id; `NONE` without one or for ids <= 0.

    In a file with several recordings each may count its ids from 1 (CUPTI does once it was detached). So of rows with
    one id the last before the work counts, as its own cannot be later; else the first, as clocks may disagree.
    """
    start_ns = trace.events.start_ns
    table = table[ids[table] > 0]
    if not len(table):
        return np.full(len(work), NONE, dtype=np.int64)
    order = table[np.lexsort((start_ns[table], ids[table]))]
    sorted_ids = ids[order]
    first = np.searchsorted(sorted_ids, ids[work]).clip(max=len(order) - 1)
    found = np.where(sorted_ids[first] == ids[work], order[first], NONE)
    doubtful = np.flatnonzero(np.searchsorted(sorted_ids, ids[work], side="right") > first + 1)
    if doubtful.size:
        found[doubtful] = _latest_before(ids, start_ns, work[doubtful], order, found[doubtful])
    return found


def _latest_before(ids: Int64s, start_ns: Int64s, work: Rows, table: Rows, otherwise: Rows) -> Rows:
    """For each row of ``work`` the last of ``table`` with its id that began no later, else what ``otherwise`` says."""
    rows = np.concatenate([table, work])
    is_work = np.arange(len(rows)) >= len(table)
    order = np.lexsort((is_work, start_ns[rows], ids[rows]))
    latest = np.maximum.accumulate(np.where(is_work[order], -1, np.arange(len(rows))))
    candidates = rows[order][latest.clip(0)]
    fits = (latest >= 0) & (ids[candidates] == ids[rows[order]])
    answers = np.full(len(rows), NONE, dtype=np.int64)
    answers[order] = np.where(fits, candidates, NONE)
    return np.where(answers[len(table) :] >= 0, answers[len(table) :], otherwise)
