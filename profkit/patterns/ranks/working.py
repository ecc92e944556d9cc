"""What a rank did between its waits, by cause and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from profkit.core.marks import GC_MARK
from profkit.derive.device.driver_memory import allocating
from profkit.derive.launch.table import Cause
from profkit.derive.timeline.intervals import Intervals, intersection, union
from profkit.patterns.ranks.blocked import close_together, working
from profkit.patterns.ranks.sites import site_of, site_of_loader, sites_between
from profkit.patterns.time.idling import when, when_on_main
from profkit.trace.events import DEVICE_WORK, NONE, Bools, Category, Float64s, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows

if TYPE_CHECKING:
    from profkit.derive.facts import Facts

_MOST_SITES = 8
"""Of one cause in one piece: the lines that make a rank late are among its longest."""


class Pieces(Struct, frozen=True):
    """Stretches of the recorded steps in which the rank did not wait, in order; ``step`` is the index of each's."""

    step: Int64s
    start_ns: Int64s
    end_ns: Int64s


class Spent(Struct, frozen=True):
    """How much of each piece went to one cause at one site (`profkit.patterns.ranks.sites`)."""

    piece: Int64s
    cause: Int64s
    site: Int64s
    time_ns: Int64s


def cut_pieces(begin_ns: Int64s, end_ns: Int64s, chosen: Rows, waits: Intervals) -> Pieces:
    """The ``chosen`` steps, without the waits."""
    begin_ns, end_ns = begin_ns[chosen], end_ns[chosen]
    edges = distinct(np.concatenate([begin_ns, end_ns, waits.start_ns, waits.end_ns]))
    start, end = edges[:-1], edges[1:]
    index = np.searchsorted(begin_ns, start, side="right") - 1
    inside = (index >= 0) & (end <= np.append(end_ns, 0)[index]) & (waits.covered_within(start, end) == 0)
    return Pieces(chosen[index[inside]], start[inside], end[inside])


def spend(facts: Facts, pieces: Pieces) -> Spent:
    left = union(pieces.start_ns, pieces.end_ns)
    parts = []
    for cause, when_spent in _causes(facts):
        rest = left.minus(when_spent)
        parts.append(_by_site(facts, pieces, cause, left.minus(rest)))
        left = rest
    parts.append(_by_site(facts, pieces, Cause.UNRECORDED if facts.run.is_light else Cause.UNKNOWN, left))
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Spent.__struct_fields__}
    order = np.argsort(columns["piece"], kind="stable")
    return Spent(**{name: column[order] for name, column in columns.items()})


def _causes(facts: Facts) -> list[tuple[Cause, Intervals]]:
    """When each cause was at work; the first of several counts."""
    trace, device = facts.trace, facts.device
    serial = facts.serial_lanes[trace.events.lane]
    collecting = when(facts, trace.where_name(lambda name: name.startswith(GC_MARK)))
    loading = (Cause.INPUT, when_on_main(facts, facts.loading))
    if facts.run.is_light:
        return [(Cause.GARBAGE, collecting), loading]
    memory = (Cause.MEMORY, when(facts, allocating(trace) & serial))
    host = (Cause.HOST, close_together(when(facts, _running(facts) & serial)))
    operating = when(facts, (trace.events.category == Category.OPERATOR) & serial)
    if not device.present:
        return [(Cause.GARBAGE, collecting), loading, (Cause.COMPUTE, operating), host]
    own = device.work[~device.collective]
    copying = union(trace.events.start_ns[own], trace.events.ends_of(own))
    return [
        (Cause.COMPUTE, device.computing),
        (Cause.COPY, copying),
        (Cause.COMPUTE, device.inherited),
        (Cause.GARBAGE, collecting),
        loading,
        memory,
        host,
    ]


def _running(facts: Facts) -> Bools:
    """What the host does by itself; a call in which it waits for its device is none of it, as the device works
    meanwhile."""
    wanted = facts.trace.in_categories(Category.OPERATOR, Category.RUNTIME, Category.COMPILED_CODE)
    wanted |= facts.trace.mask_of(facts.updates.rows)
    return wanted


def _by_site(facts: Facts, pieces: Pieces, cause: Cause, spent: Intervals) -> Spent:
    """Split each piece's part of the time by the sites of the events that took it."""
    total = spent.covered_within(pieces.start_ns, pieces.end_ns)
    start, end, site = _placed(facts, pieces, cause, spent)
    piece = np.searchsorted(pieces.start_ns, start, side="right") - 1
    inside = (piece >= 0) & (start < np.append(pieces.end_ns, 0)[piece])
    weight = spent.covered_within(start, end)
    keep = inside & (weight > 0)
    piece, site, weight = piece[keep], site[keep], weight[keep]
    unplaced = np.flatnonzero((total > 0) & (np.bincount(piece, minlength=len(total)) == 0))
    piece = np.concatenate([piece, unplaced])
    site = np.concatenate([site, np.full(len(unplaced), NONE)])
    weight = np.concatenate([weight, total[unplaced]])
    if not len(piece):
        return Spent(piece, piece, piece, piece)
    pairs, number = distinct_rows(piece, site)
    return _share(cause, total, piece[pairs], site[pairs], np.bincount(number, weight, len(pairs)).astype(np.float64))


def _share(cause: Cause, total: Int64s, piece: Int64s, site: Int64s, weight: Float64s) -> Spent:
    """Each piece's total in proportion to the weights, of the `_MOST_SITES` heaviest sites by name, to the
    nanosecond."""
    order = np.lexsort((-weight, piece))
    piece, site, weight = piece[order], site[order], weight[order]
    first = np.searchsorted(piece, piece)
    site = np.where(np.arange(len(piece)) - first < _MOST_SITES, site, NONE)
    whole = np.bincount(piece, weight, len(total))[piece]
    passed = np.rint(np.cumsum(weight / whole * total[piece])).astype(np.int64)
    time_ns = np.diff(passed, prepend=0)
    pairs, number = distinct_rows(piece, site)
    summed = np.bincount(number, time_ns, len(pairs)).astype(np.int64)
    some = summed > 0
    return Spent(piece[pairs][some], np.full(int(some.sum()), int(cause)), site[pairs][some], summed[some])


def _placed(facts: Facts, pieces: Pieces, cause: Cause, spent: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """Events, or stretches of time, that tell where in the program the time went."""
    events, launches = facts.trace.events, facts.launches
    if cause in (Cause.HOST, Cause.UNKNOWN, Cause.UNRECORDED):
        return _stretches(facts, pieces, spent)
    if cause == Cause.INPUT:
        return _of_loading(facts, pieces, spent)
    if facts.device.present and cause in (Cause.COMPUTE, Cause.COPY):
        kinds = (Category.KERNEL,) if cause == Cause.COMPUTE else DEVICE_WORK[1:]
        mine = np.flatnonzero(~facts.device.collective & facts.trace.in_categories(*kinds)[launches.work])
        rows = launches.work[mine]
        return events.start_ns[rows], events.ends_of(rows), site_of(facts, launches.owner[mine])
    rows = _rows_of(facts, cause)
    return events.start_ns[rows], facts.tree.end_ns[rows], site_of(facts, rows)


def _stretches(facts: Facts, pieces: Pieces, spent: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """The time itself, cut where a piece begins, and the lines that the main thread was at."""
    cut = intersection(spent, union(pieces.start_ns, pieces.end_ns))
    edges = distinct(np.concatenate([cut.start_ns, cut.end_ns, pieces.start_ns]))
    start, end = edges[:-1], edges[1:]
    inside = cut.covered_within(start, end) > 0
    return start[inside], end[inside], sites_between(facts, start[inside], end[inside])


def _of_loading(facts: Facts, pieces: Pieces, spent: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """Without workers the lines of the data set are those of the main thread; a loader with workers is told at the line
    that makes it, as there it has to change."""
    start, end, site = _stretches(facts, pieces, spent.minus(working(facts)))
    rows = _rows_of(facts, Cause.COMPUTE)
    rows = rows[facts.tree.under(facts.loading)[rows]]
    start = np.concatenate([start, facts.trace.events.start_ns[rows]])
    end, site = np.concatenate([end, facts.tree.end_ns[rows]]), np.concatenate([site, site_of(facts, rows)])
    busiest = max(range(len(facts.run.loaders)), key=lambda at: facts.run.loaders[at].asked_ns, default=NONE)
    if busiest != NONE and facts.run.loaders[busiest].workers and facts.run.loaders[busiest].site is not None:
        site = np.full(len(site), site_of_loader(facts, busiest))
    return start, end, site


def _rows_of(facts: Facts, cause: Cause) -> Rows:
    trace = facts.trace
    serial = facts.serial_lanes[trace.events.lane]
    if cause == Cause.GARBAGE:
        return np.flatnonzero(trace.where_name(lambda name: name.startswith(GC_MARK)))
    if cause == Cause.MEMORY:
        return np.flatnonzero(allocating(trace) & serial)
    return np.flatnonzero(facts.tree.outermost(trace.events.category == Category.OPERATOR) & serial)
