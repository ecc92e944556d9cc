"""From the facts to the pictures that reports draw: what was at work when, step by step, and which lines it served.

What is drawn is bounded: columns, steps, spans and branches have a most, so that the report of a long trace is as small
as that of a short one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.steps.steps import measured_numbers
from profkit.derive.timeline.intervals import Intervals, union
from profkit.evidence.hottest import BACKWARD
from profkit.evidence.idling import when
from profkit.evidence.places import call_site
from profkit.evidence.shares import time_parts
from profkit.pictures.values import LEVELS, Branch, Lane, Mark, MemoryCurve, Pictures, StepPicture
from profkit.trace.events import Bools, Category, Float64s, Int64s, Rows
from profkit.trace.values import distinct

COLUMNS = 2000
"""More than a screen is wide: twice zoomed in, a column is a pixel."""
_MOST_DRAWN = 16
"""Steps on the timeline: beyond that one is too narrow to show anything inside."""
_MOST_STEPS = 128
_MOST_SPANS = 64
_MOST_BRANCHES = 300
_LEAST_BRANCH = 0.002
"""Of all: narrower than a pixel or two."""
_LONGEST_LABEL = 160
_TOP = len(LEVELS) - 1


def draw(facts: Facts, marked: Sequence[Rows] = ()) -> Pictures:
    """The pictures of one recording. ``marked`` are the events behind each finding, in the diagnosis' order."""
    steps = facts.steps
    chosen = np.flatnonzero(steps.measured)
    drawn = chosen[:_MOST_DRAWN]
    window = _Window(int(steps.begun_ns[drawn].min()), int(steps.done_ns[drawn].max()))
    parts = [(label, spent) for label, spent in facts.once(time_parts) if spent.total_ns > 0]
    return Pictures(
        parts=tuple(label for label, _ in parts),
        steps=_picture_steps(facts, window, chosen[:_MOST_STEPS], drawn, [spent for _, spent in parts]),
        duration_ns=window.span_ns,
        lanes=tuple(_lane(window, label, spent) for label, spent in _lanes(facts) if len(spent.start_ns)),
        marks=tuple(_marks(facts, window, marked)),
        memory=_memory_curve(facts, window),
        branches=_branches(facts),
        of_device=facts.device.present,
    )


class _Window(Struct, frozen=True):
    """The part of the recording that the timeline spans."""

    start_ns: int
    end_ns: int

    @property
    def span_ns(self) -> int:
        return max(self.end_ns - self.start_ns, 1)

    @property
    def edges_ns(self) -> Int64s:
        """Where the columns begin, and where the last one ends."""
        return (self.start_ns + np.linspace(0, self.span_ns, COLUMNS + 1)).astype(np.int64)

    def shares(self, times_ns: Int64s) -> Float64s:
        """Times as shares of the window, 0 to 1, in steps of a tenth of a column."""
        shares: Float64s = ((times_ns - self.start_ns) / self.span_ns).clip(0, 1).round(5)
        return shares


def _encode(levels: Float64s) -> str:
    """A row of columns from shares 0 to 1. What is more than nothing never becomes nothing."""
    return "".join(map(LEVELS.__getitem__, np.ceil(levels.clip(0, 1) * _TOP - 1e-9).astype(np.int64).tolist()))


def _picture_steps(
    facts: Facts, window: _Window, chosen: Rows, drawn: Rows, parts: Sequence[Intervals]
) -> tuple[StepPicture, ...]:
    steps = facts.steps
    begun_ns, done_ns = steps.begun_ns[chosen], steps.done_ns[chosen]
    numbers = measured_numbers(facts.trace, steps)
    first = numbers[0] if numbers else 0
    covered = [spent.covered_within(begun_ns, done_ns) for spent in parts]
    times = np.reshape(covered, (-1, len(chosen))).astype(np.int64).T
    begins, ends = window.shares(begun_ns), window.shares(done_ns)
    ends[len(drawn) :] = begins[len(drawn) :]
    return tuple(
        StepPicture(first + at, int(duration_ns), tuple(map(int, taken)), begin, end)
        for at, (duration_ns, taken, begin, end) in enumerate(
            zip(steps.duration_ns[chosen].tolist(), times.tolist(), begins.tolist(), ends.tolist(), strict=True)
        )
    )


def _lane(window: _Window, label: str, spent: Intervals) -> Lane:
    before = spent.covered_before(window.edges_ns)
    taken, width = np.diff(before), np.maximum(np.diff(window.edges_ns), 1)
    return Lane(label, _encode(taken / width), round(float(before[-1] - before[0]) / window.span_ns, 4))


def _lanes(facts: Facts) -> Iterator[tuple[str, Intervals]]:
    """What is drawn beside each other; unlike the parts of a step, several may be at work at a time."""
    trace, device = facts.trace, facts.device
    events = trace.events
    if device.present:
        yield "device: kernels", device.computing
        yield "device: communication", device.communicating
        yield "device: copies, memset", when(facts, trace.in_categories(Category.MEMCPY, Category.MEMSET))
    on_main: Bools = events.lane == facts.steps.main_lane
    serial: Bools = facts.serial_lanes[events.lane]
    yield "waiting for data", when(facts, facts.loading & on_main)
    operators = serial & trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE)
    backward: Bools = facts.lines.backward & serial
    updates = facts.updates.on(on_main)
    yield "forward and other operators", when(facts, operators & ~backward).minus(updates)
    yield "backward", when(facts, backward)
    yield "optimizer", updates
    yield "device API calls", when(facts, serial & trace.in_categories(Category.RUNTIME))
    waiting = trace.mask_of(facts.waits.rows[~facts.waits.own])
    yield "host waits for the device", when(facts, waiting & serial)


def _marks(facts: Facts, window: _Window, marked: Sequence[Rows]) -> Iterator[Mark]:
    """Events closer than a column's width are one span; of too many spans the longest are kept."""
    column_ns = window.span_ns // COLUMNS
    for number, rows in enumerate(marked):
        start_ns, end_ns = facts.trace.events.start_ns[rows], facts.trace.events.ends_of(rows)
        inside = (end_ns >= window.start_ns) & (start_ns < window.end_ns)
        spans = union(start_ns[inside], end_ns[inside] + column_ns)
        longest = np.sort(np.argsort(spans.start_ns - spans.end_ns, kind="stable")[:_MOST_SPANS])
        begins, ends = window.shares(spans.start_ns[longest]), window.shares(spans.end_ns[longest])
        if len(longest):
            yield Mark(number, tuple(zip(begins.tolist(), ends.tolist(), strict=True)))


def _memory_curve(facts: Facts, window: _Window) -> MemoryCurve | None:
    """The live bytes: by the device's totals, else each allocation from its event to the one that frees it."""
    memory = facts.memory
    if not memory.present:
        return None
    if memory.is_absolute:
        times, live = memory.times_ns, np.concatenate([[memory.base_bytes], memory.held_bytes])
    else:
        times, live = _live_from_zero(facts)
    first = np.searchsorted(times, window.edges_ns, side="left")
    highest = np.maximum.reduceat(live, first[:-1])
    highest = np.maximum(highest, live[first[1:]])
    least, peak = int(highest.min()), int(highest.max())
    return MemoryCurve(_encode((highest - least) / max(peak - least, 1)), least, peak) if peak > least else None


def _live_from_zero(facts: Facts) -> tuple[Int64s, Int64s]:
    """The moments at which something is made or freed, and what is live before the first and after each."""
    memory, starts_ns = facts.memory, facts.trace.events.start_ns
    freed = memory.freed_by[memory.freed_by >= 0]
    times = np.concatenate([starts_ns[memory.rows], starts_ns[freed]])
    sizes = np.concatenate([memory.size_bytes, -memory.size_bytes[memory.freed_by >= 0]])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([[0], np.cumsum(sizes[order])])


def _branches(facts: Facts) -> tuple[Branch, ...]:
    """Lines, or functions where no lines were recorded, what they call, and the kernels of that."""
    table = _device_paths(facts) if facts.device.present else _host_paths(facts)
    return _lay_out(facts, *table)


_Paths = tuple[list[str], Int64s, Int64s, Int64s, Int64s]
"""The labels of places; for each event its place, the codes of an operator's and a kernel's name, and its time."""


def _device_paths(facts: Facts) -> _Paths:
    events, launches = facts.trace.events, facts.launches
    wanted = facts.steps.in_measured(launches.launched_ns)
    work, operator = launches.work[wanted], launches.operator[wanted].astype(np.int64)
    names, places = _places(facts, operator)
    outermost = _outermost_operator(facts, operator)
    top = np.where(outermost >= 0, events.name_code[outermost], -1)
    return names, places, top, events.name_code[work].astype(np.int64), events.duration_ns[work]


def _host_paths(facts: Facts) -> _Paths:
    events, operators = facts.trace.events, facts.trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE)
    rows = np.flatnonzero(operators & facts.measured & (events.lane == facts.steps.main_lane))
    names, places = _places(facts, rows)
    top, own_ns = _outermost_operator(facts, rows), facts.tree.self_ns(events)[rows]
    inner = np.where(top == rows, -1, events.name_code[rows])
    return names, places, events.name_code[top].astype(np.int64), inner.astype(np.int64), own_ns


def _outermost_operator(facts: Facts, rows: Rows) -> Rows:
    """The outermost operator around each of these events, backward nodes as their operators; -1 for -1."""
    outermost = facts.once(_outermost_operators)
    found: Rows = np.where(rows >= 0, outermost[rows], -1)
    return found


def _outermost_operators(facts: Facts) -> Rows:
    operators = facts.trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE)
    return facts.tree.nearest_ancestor(facts.tree.outermost(operators), include_self=True)


def _places(facts: Facts, rows: Rows) -> tuple[list[str], Int64s]:
    """The line of each event, of its forward operator in the backward pass; elsewhere what it is part of."""
    site = np.where(rows >= 0, facts.lines.forward_site[rows], -1)
    site[site >= len(facts.callsites)] = -1
    backward = (rows >= 0) & facts.lines.backward[rows]
    updating = facts.trace.mask_of(facts.updates.rows)
    in_update = (rows >= 0) & facts.tree.under(updating)[rows]
    code = np.where(site >= 0, 2 * site + backward, np.where(backward, -2, np.where(in_update, -3, -1)))
    known = distinct(code)
    return [_name_place(facts, int(one)) for one in known], np.searchsorted(known, code)


def _name_place(facts: Facts, code: int) -> str:
    place = call_site(facts, code // 2) if code >= 0 else None
    if place is None:
        return {-2: "backward", -3: "optimizer"}.get(code, "no line recorded")
    file = place.file.replace("\\", "/").rpartition("/")[2]
    passed = " backward:" if code % 2 else ""
    return f"{file}:{place.line}{passed} {place.source.strip()}"[:_LONGEST_LABEL]


def _lay_out(
    facts: Facts, names: list[str], places: Int64s, operators: Int64s, kernels: Int64s, ns: Int64s
) -> tuple[Branch, ...]:
    """An icicle: the widest first at each level, narrow ones left out."""
    total = int(ns.sum())
    if not total:
        return ()
    texts = facts.trace.names
    branches: list[Branch] = []
    by_place = np.bincount(places, ns, len(names))
    begin = 0.0
    for place in np.argsort(-by_place, kind="stable").tolist():
        share = float(by_place[place]) / total
        if share < _LEAST_BRANCH:
            break
        branches.append(Branch(0, names[place], round(begin, 5), round(share, 5), int(by_place[place])))
        inside = places == place
        branches += _inner(texts, 1, begin, total, [operators[inside], kernels[inside]], ns[inside])
        begin += share
    return tuple(sorted(branches, key=lambda one: (one.depth, one.begin)))[:_MOST_BRANCHES]


def _inner(texts: Sequence[str], depth: int, begin: float, total: int, codes: list[Int64s], ns: Int64s) -> list[Branch]:
    known, inverse = np.unique(codes[0], return_inverse=True)
    sums, branches = np.bincount(inverse, ns, len(known)), []
    for at in np.argsort(-sums, kind="stable").tolist():
        share = float(sums[at]) / total
        if share < _LEAST_BRANCH:
            break
        if known[at] >= 0:
            label = texts[int(known[at])].removeprefix(BACKWARD)[:_LONGEST_LABEL]
            branches.append(Branch(depth, label, round(begin, 5), round(share, 5), int(sums[at])))
            inside = inverse == at
            if len(codes) > 1:
                branches += _inner(texts, depth + 1, begin, total, [code[inside] for code in codes[1:]], ns[inside])
        begin += share
    return branches
