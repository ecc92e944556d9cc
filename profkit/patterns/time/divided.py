"""The measured steps, divided among the places of the program: who takes the time, at fault or not.

At each moment the step's time belongs to one place. While a device works, it is the place that launched the work;
otherwise it is the place where the host is. A place is a line. Where no line is known it is the user's function, else
an operator or a kernel by its name. Backward operators belong to their forward's place.

The time of operators and of the device is that of measured steps. Between two operators nothing is recorded there: such
a gap is divided as in the located step, between the same two operators. The tracer makes Python several times slower,
line by line, so only the division comes from there, not the length.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import Intervals, union
from profkit.patterns.loops.located import located_marks
from profkit.patterns.places.events import frames_around
from profkit.patterns.places.frames import user_frames
from profkit.patterns.program import length_ns
from profkit.patterns.time.hottest import BACKWARD
from profkit.patterns.time.idling import user_ranges
from profkit.patterns.time.innermost import Innermost, find_innermost
from profkit.trace.events import NONE, Bools, Category, Float64s, Int64s, Rows
from profkit.trace.statistics import among, distinct, distinct_rows, quantile

_MOST_STRETCHES = 2_000_000
"""Of line marks or frames inside gaps: a second's work. Gaps are disjoint where the steps repeat each other exactly."""
_EMPTY_LINE = 0.1
"""The quantile of all stretches of the located step that stands for a line that does nothing: the tracer's own time."""
_MOST_TRACED_NS = 5_000
"""The tracer takes 1 to 3 µs a line. If all lines take longer than this, none of them does nothing."""

_TRACE_OF_TIME_NS = 1e-3
"""Counted for each stretch, so that a gap of lines that do nothing is divided evenly."""


class Work(Struct, frozen=True):
    """Operators of the host, or pieces of work of a device, each with its place and its part of the steps' time."""

    rows: Rows
    place: Int64s
    time_ns: Float64s


class Gaps(Struct, frozen=True):
    """What lies between the operators of the host: from when to when, and the part of the steps' time. The gap number
    ``of[i]`` belongs to the extent of ``share[i]`` to ``place[i]``. ``in_backward`` marks those between two backward
    operators."""

    start_ns: Int64s
    end_ns: Int64s
    time_ns: Float64s
    in_backward: Bools
    of: Rows
    place: Int64s
    share: Float64s

    def parts_ns(self) -> Float64s:
        """The time of each of the parts."""
        return self.time_ns[self.of] * self.share


class _Parts(Struct, frozen=True):
    """Parts of ranges: the number of the range, the place, and the share of the range."""

    of: Rows
    place: Int64s
    share: Float64s

    def given_to(self, numbers: Rows, like: Rows) -> _Parts:
        """Each of these numbers gets the parts of the range that it is like; if that has none, its place is unknown."""
        order = np.argsort(self.of, kind="stable")
        sizes = np.bincount(self.of, minlength=int(like.max(initial=-1)) + 1)
        begins, told = np.cumsum(sizes) - sizes, sizes[like] > 0
        size = sizes[like[told]]
        inside = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        at = order[np.repeat(begins[like[told]], size) + inside]
        known = _Parts(np.repeat(numbers[told], size), self.place[at], self.share[at])
        left = numbers[~told]
        return _together(known, _Parts(left, np.full(len(left), NONE, dtype=np.int64), np.ones(len(left))))


def _together(one: _Parts, other: _Parts) -> _Parts:
    return _Parts(
        *(np.concatenate([getattr(parts, name) for parts in (one, other)]) for name in _Parts.__struct_fields__)
    )


class Divided(Struct, frozen=True):
    """The time of the measured steps, without what disturbed them, in parts that do not overlap. A place below
    ``lines`` is the number of a call site. Others are codes of names, from ``lines`` on; `NONE` is unknown."""

    total_ns: float
    lines: int
    host: Work
    device: Work
    gaps: Gaps

    def by_place(self) -> tuple[Int64s, Float64s]:
        """The places with their time, the one with the most first."""
        place = np.concatenate([self.host.place, self.device.place, self.gaps.place])
        time_ns = np.concatenate([self.host.time_ns, self.device.time_ns, self.gaps.parts_ns()])
        places, number = np.unique(place, return_inverse=True)
        taken_ns: Float64s = np.bincount(number, time_ns, len(places)).astype(np.float64)
        order = np.argsort(-taken_ns, kind="stable")
        return places[order].astype(np.int64), taken_ns[order]


@derived_once
def divide_steps(facts: Facts) -> Divided:
    """Divide the measured steps of a recording."""
    steps, device = facts.steps, facts.device
    whole = union(steps.begun_ns[steps.measured], steps.done_ns[steps.measured])
    whole = whole.minus(_pauses(facts))
    idle = whole.minus(device.any_occupied) if device.present else whole
    rows = _host_rows(facts)
    place = _places(facts)
    host = Work(rows, place[rows], _idle_ns(facts, idle, facts.trace.events.start_ns[rows], facts.tree.end_ns[rows]))
    on_device = _device_work(facts, whole.total_ns - idle.total_ns, place)
    gaps = _find_gaps(facts, idle, rows, place)
    taken_ns = float(host.time_ns.sum() + on_device.time_ns.sum() + gaps.time_ns.sum())
    recorded_ns = whole.total_ns - float(facts.disturbance.covered_within(idle.start_ns, idle.end_ns).sum())
    return Divided(max(taken_ns, recorded_ns, 1.0), _line_count(facts), host, on_device, gaps)


def _pauses(facts: Facts) -> Intervals:
    rows = np.flatnonzero(facts.trace.events.category == Category.PAUSE)
    return union(facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])


def _host_rows(facts: Facts) -> Rows:
    """The outermost operators and waits of the threads that take turns, in measured steps, in time order."""
    events, serial = facts.trace.events, facts.serial_lanes[facts.trace.events.lane]
    wanted = facts.lines.backward & serial
    wanted[facts.operators.rows] = True
    wanted[facts.waits.rows[~facts.waits.own & serial[facts.waits.rows]]] = True
    rows = np.flatnonzero(facts.tree.outermost(wanted) & facts.measured)
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def _idle_ns(facts: Facts, idle: Intervals, start_ns: Int64s, end_ns: Int64s) -> Float64s:
    """How much of each stretch of the host's time is the step's, without what disturbed it."""
    if not facts.device.present:
        return length_ns(facts, start_ns, end_ns).clip(min=0).astype(np.float64)
    covered_ns = idle.covered_within(start_ns, end_ns)
    kept = length_ns(facts, start_ns, end_ns) / np.maximum(end_ns - start_ns, 1)
    return np.asarray(covered_ns * kept.clip(0, 1), dtype=np.float64)


def _line_count(facts: Facts) -> int:
    return len(facts.callsites) if facts.lines.known else 0


@derived_once
def _places(facts: Facts) -> Int64s:
    """Column over all events: the line's number, else the code of the function's or of the operator's name behind the
    lines, else `NONE`."""
    events, lines, count = facts.trace.events, facts.lines, _line_count(facts)
    named = count + _operator_names(facts)
    frames = frames_around(facts)
    known = frames >= 0
    place = np.where(known, count + events.name_code[frames.clip(min=0)].astype(np.int64), named)
    is_line = (lines.forward_site >= 0) & (lines.forward_site < count)
    return np.where(is_line, lines.forward_site.astype(np.int64), place)


def _operator_names(facts: Facts) -> Int64s:
    """For each event the code of a name: the optimizer's step around it, else the outermost operator around it, of a
    backward operator its forward's; its own without one."""
    events, updates, tree = facts.trace.events, facts.updates, facts.tree
    operator = tree.nearest_ancestor(facts.trace.mask_of(facts.operators.rows), include_self=True)
    own = np.where(operator >= 0, operator, np.arange(len(events)))
    forward = facts.lines.forward
    row = np.where(forward >= 0, own[forward], own)
    update = tree.nearest_ancestor(facts.trace.mask_of(updates.rows), include_self=True)
    row = np.where(updates.inside & (update >= 0), update, row)
    return _plain_codes(facts.trace.names)[events.name_code[row]]


def _plain_codes(names: tuple[str, ...]) -> Int64s:
    """For each name the code of the same without autograd's words before it, if the trace has that."""
    code_of = {name: code for code, name in enumerate(names)}
    return np.array([code_of.get(name.removeprefix(BACKWARD), code) for code, name in enumerate(names)], dtype=np.int64)


def _device_work(facts: Facts, busy_ns: int, place: Int64s) -> Work:
    """The device's work of the measured steps. Pieces that run at the same time share it."""
    launches, events = facts.launches, facts.trace.events
    chosen = np.flatnonzero(facts.steps.in_measured(launches.launched_ns))
    work, owner = launches.work[chosen], launches.operator[chosen].astype(np.int64)
    owner = np.where(owner >= 0, owner, launches.call[chosen])
    code = _line_count(facts) + events.name_code[work].astype(np.int64)
    is_told = (owner >= 0) & ((launches.operator[chosen] >= 0) | (_told_by_call(facts, place)[owner]))
    duration_ns = events.duration_ns[work].astype(np.float64)
    scale = min(1.0, busy_ns / max(float(duration_ns.sum()), 1.0))
    return Work(work, np.where(is_told, place[owner], code), duration_ns * scale)


def _told_by_call(facts: Facts, place: Int64s) -> Bools:
    """Events whose place is a line or a function, not merely their own name."""
    return (place < _line_count(facts)) | (frames_around(facts) >= 0)


def _find_gaps(facts: Facts, idle: Intervals, rows: Rows, place: Int64s) -> Gaps:
    """The gaps between the operators ``rows`` in the measured steps, each divided among the places in it."""
    steps, events, tree = facts.steps, facts.trace.events, facts.tree
    start_ns, end_ns = events.start_ns[rows], tree.end_ns[rows]
    own = _pauses(facts)
    at_work = union(np.concatenate([start_ns, own.start_ns]), np.concatenate([end_ns, own.end_ns]))
    in_steps = steps.start_ns[steps.measured], steps.end_ns[steps.measured]
    edges = distinct(np.concatenate([*in_steps, at_work.start_ns, at_work.end_ns]))
    begin, end = edges[:-1], edges[1:]
    free = steps.in_measured(begin) & (at_work.covered_within(begin, begin + 1) == 0)
    begin, end = begin[free], end[free]
    by_end = np.argsort(end_ns, kind="stable")
    before = np.append(rows[by_end], NONE)[np.searchsorted(end_ns[by_end], begin, side="right") - 1]
    after = np.append(rows, NONE)[np.searchsorted(start_ns, end)]
    first, last = among(begin, in_steps[0]), among(end, in_steps[1])
    before, after = np.where(first, NONE, before), np.where(last, NONE, after)
    known = (before >= 0) & (after >= 0)
    in_backward = known & facts.lines.backward[before] & facts.lines.backward[after]
    parts = _divide_gaps(facts, (begin, end), (before, after), in_backward, place)
    time_ns = _idle_ns(facts, idle, begin, end)
    return Gaps(begin, end, time_ns, in_backward, parts.of, parts.place, parts.share)


def _divide_gaps(
    facts: Facts, between: tuple[Int64s, Int64s], beside: tuple[Rows, Rows], in_backward: Bools, place: Int64s
) -> _Parts:
    """Autograd's own time between two nodes belongs to the one before. With line marks, other gaps are divided as in
    the located step; without, the user's functions or ranges divide them as they lie."""
    nodes, rest = np.flatnonzero(in_backward), np.flatnonzero(~in_backward)
    by_nodes = _Parts(nodes, place[beside[0][nodes]], np.ones(len(nodes)))
    if facts.lines.known:
        begin, end = _like_located(facts, (beside[0][rest], beside[1][rest]))
        first, like = distinct_rows(begin, end)
        nest, code = _marked_lines(facts), facts.trace.events.site.astype(np.int64)
        code = np.where(code < _line_count(facts), code, NONE)
        parts = _share(nest, (begin[first], end[first]), code, _empty_ns(nest))
    else:
        like, nest = np.arange(len(rest)), _named_places(facts)
        parts = _share(nest, (between[0][rest], between[1][rest]), facts.trace.events.name_code.astype(np.int64), 0.0)
    return _together(by_nodes, parts.given_to(rest, like))


def _like_located(facts: Facts, beside: tuple[Rows, Rows]) -> tuple[Int64s, Int64s]:
    """For each gap from when to when the same lasts in the located step, between the operators that those beside it
    repeat, or the ends of the step. An end before the begin says that there is none."""
    steps, marked = facts.steps, facts.lines.marked.astype(np.int64)
    located = int(np.flatnonzero(steps.located)[0]) if steps.located.any() else int(np.flatnonzero(steps.measured)[0])
    edges = int(steps.start_ns[located]), int(steps.end_ns[located])
    before, after = (np.where(rows >= 0, marked[rows], NONE) for rows in beside)
    begin = np.where(before >= 0, facts.tree.end_ns[before], edges[0])
    end = np.where(after >= 0, facts.trace.events.start_ns[after], edges[1])
    inside = (begin >= edges[0]) & (end <= edges[1]) & (begin < end)
    return np.where(inside, begin, 0), np.where(inside, end, 0)


def _marked_lines(facts: Facts) -> Innermost:
    marks = located_marks(facts)
    return find_innermost(facts, marks[facts.trace.events.lane[marks] == facts.steps.main_lane])


def _named_places(facts: Facts) -> Innermost:
    """The user's functions, or without any the ranges that are the program's own."""
    frames = user_frames(facts)
    wanted = frames if frames.any() else user_ranges(facts)
    return find_innermost(facts, np.flatnonzero(wanted & (facts.trace.events.lane == facts.steps.main_lane)))


def _empty_ns(nest: Innermost) -> float:
    """What the tracer adds to a line."""
    lengths_ns = np.diff(nest.from_ns)
    empty_ns = quantile(lengths_ns, _EMPTY_LINE) if len(lengths_ns) else 0.0
    return empty_ns if empty_ns <= _MOST_TRACED_NS else 0.0


def _share(nest: Innermost, ranges: tuple[Int64s, Int64s], code: Int64s, empty_ns: float) -> _Parts:
    """The parts of the ranges that are known, each with the code of its innermost event."""
    known = np.flatnonzero(ranges[1] > ranges[0])
    number, row, length_ns = nest.stretches(ranges[0][known], ranges[1][known], _MOST_STRETCHES)
    if not len(number):
        return _Parts(number, number, np.zeros(0))
    number, where = known[number], np.where(row >= 0, code[row], NONE)
    stretch_ns = (length_ns - empty_ns).clip(min=0.0) + _TRACE_OF_TIME_NS
    first, group = distinct_rows(number, where)
    own_ns: Float64s = np.bincount(group, stretch_ns, len(first)).astype(np.float64)
    number, where = number[first], where[first]
    return _Parts(number, where, own_ns / np.bincount(number, own_ns)[number])
