"""When a rank's own work stood still for a collective.

On a device: nothing computed when the collective ended, and what came next was launched and waited, or the host waited.
Where the host had not launched anything yet it is the host that was late. On a CPU: the calling thread ran no operator
from the call, or from its last operator, until the collective was over, and then went on.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import Intervals, union
from profkit.patterns.program import COPIES_BACK
from profkit.patterns.ranks.exchanges import Exchanges, find_exchanges
from profkit.trace.events import Bools, Category, Int64s
from profkit.trace.statistics import distinct

GOING_ON_NS = 1_000_000
"""A thread that is woken, or goes from one operator to the next, takes 5 to 300 µs; what takes longer does something
else."""
_OVERSLEPT = 0.1
"""By so much of a wait gloo's thread may note its end too late: on a machine with fewer processors than threads it is
put aside as soon as it has woken the other."""
_NEVER = np.iinfo(np.int64).max


@derived_once
def blocked_time(facts: Facts) -> tuple[Int64s, Int64s]:
    """From when to when the rank stood still for each of `find_exchanges`; an empty interval at its end if it did not.
    No two overlap."""
    exchanges = find_exchanges(facts)
    begin, end = exchanges.end_ns.copy(), exchanges.end_ns.copy()
    device, host = exchanges.on_device, ~exchanges.on_device
    if device.any():
        begin[device] = _on_device(facts, exchanges, device)
    if host.any():
        begin[host], end[host] = _on_host(facts, exchanges, host)
    order = np.lexsort((begin, end))
    waits = begin[order] < end[order]
    ends = np.where(waits, end[order], np.iinfo(np.int64).min)
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ends))[:-1]
    begin[order] = np.minimum(np.maximum(begin[order], before), end[order])
    return begin, end


def _on_device(facts: Facts, exchanges: Exchanges, wanted: Bools) -> Int64s:
    events, launches = facts.trace.events, facts.launches
    begin, end = exchanges.start_ns[wanted], exchanges.end_ns[wanted]
    own = np.flatnonzero(~facts.device.collective)
    if not own.size:  # of this rank collectives alone were recorded
        return begin
    own = own[np.argsort(events.start_ns[launches.work[own]], kind="stable")]
    work = launches.work[own]
    busy = union(events.start_ns[work], events.ends_of(work))
    idle_since, next_at = _around(busy, end)
    follows = np.searchsorted(events.start_ns[work], next_at)
    is_known = (launches.call[own] >= 0) | (launches.operator[own] >= 0)
    launched = np.append(np.where(is_known, launches.launched_ns[own], 0), _NEVER)[follows]
    ready = np.minimum(launched, _host_waits_since(facts, end))
    begin = np.maximum(np.maximum(begin, idle_since), np.asarray(ready, dtype=np.int64))
    return np.minimum(begin, end)


def _around(busy: Intervals, times_ns: Int64s) -> tuple[Int64s, Int64s]:
    """Since when it has been idle at each of the times, and until when; where it is busy, since `_NEVER`."""
    at = np.searchsorted(busy.start_ns, times_ns, side="left")
    until = np.append(busy.start_ns, _NEVER)[at]
    since = np.append(np.iinfo(np.int64).min, busy.end_ns)[at]
    return np.where(since > times_ns, _NEVER, since), until


def _host_waits_since(facts: Facts, times_ns: Int64s) -> Int64s:
    """Since when the host has been waiting for the device at each of the times; `_NEVER` where it does not."""
    waits = facts.waits
    rows = waits.rows[~waits.own & facts.serial_lanes[facts.trace.events.lane[waits.rows]]]
    start = facts.trace.events.start_ns[rows]
    merged = union(start, facts.tree.end_ns[rows])
    at = np.searchsorted(merged.start_ns, times_ns, side="right") - 1
    inside = (at >= 0) & (times_ns <= np.append(merged.end_ns, 0)[at])
    return np.where(inside, np.append(merged.start_ns, 0)[at], _NEVER)


def _on_host(facts: Facts, exchanges: Exchanges, wanted: Bools) -> tuple[Int64s, Int64s]:
    """The first operator of those that another runs inside of it tells when a thread works."""
    begin, end = exchanges.start_ns[wanted], exchanges.end_ns[wanted]
    issued, awaited = exchanges.issued_ns[wanted], exchanges.awaited[wanted]
    busy = working(facts)
    idle_since, until = _around(busy, end)
    is_idle = idle_since < _NEVER
    goes_on = is_idle & (until < _NEVER) & ((until - end <= GOING_ON_NS) | _copies_at(facts, until))
    at_once = is_idle & (exchanges.call[wanted] >= 0) & (awaited < 0) & (idle_since <= issued)
    stands = is_idle & ((awaited == 1) | goes_on | at_once | _is_light(facts))
    since = np.maximum(np.maximum(begin, issued), idle_since)
    last: dict[int, int] = {}
    for gap, over in zip(until[stands].tolist(), end[stands].tolist(), strict=True):
        last[gap] = max(over, last.get(gap, over))
    for gap in distinct(until[is_idle]).tolist():  # who waits for a later one waits for those before
        stands |= is_idle & (until == gap) & (end <= last.get(gap, -1))
    begin = np.where(stands, np.minimum(since, end), end)
    first = np.maximum(exchanges.start_ns[wanted], issued)
    early_begin, early_end = _reported_late(busy, first, end)
    early = early_end - early_begin > end - begin
    return np.where(early, early_begin, begin), np.where(early, early_end, end)


def _is_light(facts: Facts) -> bool:
    """Whether of the rank's operators those of torch.distributed alone were recorded: then the last call is the last
    that is known of its own work."""
    others = facts.trace.where_name(lambda name: not name.startswith(("c10d::", "record_param_comms")))
    return not (others & (facts.trace.events.category == Category.OPERATOR)).any()


def _reported_late(busy: Intervals, first_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s]:
    """When a thread that has been idle for long went on just before the end: gloo's thread wakes it, and notes the end
    of its own work afterwards. Empty where it did not."""
    awake = close_together(busy)
    at = np.searchsorted(awake.start_ns, end_ns, side="right") - 1
    resumed = np.append(awake.start_ns, _NEVER)[at]
    since = np.maximum(np.append(awake.end_ns, _NEVER)[np.maximum(at - 1, -1)], first_ns)
    tolerated_ns = np.maximum(GOING_ON_NS, _OVERSLEPT * (resumed.astype(np.float64) - since))
    known = (at > 0) & (resumed <= end_ns) & (end_ns - resumed <= tolerated_ns)
    return np.where(known, since, end_ns), np.where(known, resumed, end_ns)


def close_together(busy: Intervals) -> Intervals:
    """With the gaps that are no longer than the way from one operator to the next."""
    start, end = busy.start_ns, busy.end_ns
    close = start[1:] - end[:-1] <= GOING_ON_NS
    return union(np.concatenate([start, end[:-1][close]]), np.concatenate([end, start[1:][close]]))


def _copies_at(facts: Facts, times_ns: Int64s) -> Bools:
    """Whether DistributedDataParallel copies averages back soon after: it has waited for them, however long a busy
    machine then took to wake it."""
    copies = np.sort(facts.trace.events.start_ns[facts.trace.named(COPIES_BACK)])
    at = np.searchsorted(copies, times_ns)
    following = np.append(copies, _NEVER)[at]
    found: Bools = (following < _NEVER) & (following - np.minimum(times_ns, following) <= GOING_ON_NS)
    return found


@derived_once
def working(facts: Facts) -> Intervals:
    """When the threads of the program ran operators, of those inside one another the innermost: a node of the backward
    pass may wait inside of itself."""
    events, calling = facts.trace.events, facts.calling
    operators = events.category == Category.OPERATOR
    around = distinct(calling[operators & (calling >= 0)])
    innermost = operators & facts.serial_lanes[events.lane]
    innermost[around] = False
    rows = np.flatnonzero(innermost)
    return union(events.start_ns[rows], facts.tree.end_ns[rows])
