"""From the facts to the pictures that reports draw: what was busy when, step by step, and for which lines.

Columns, steps, spans and branches have a maximum, so the report of a long trace is as small as that of a short one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts
from profkit.derive.steps.boundaries import measured_numbers
from profkit.derive.steps.layers import MODULE_CALL
from profkit.derive.timeline.intervals import Intervals, union
from profkit.findings.pictures import LEVELS, Branch, Lane, Mark, MemoryCurve, MemoryHolder, Pictures, StepPicture
from profkit.patterns.places.callers import where_marked
from profkit.patterns.places.events import call_site
from profkit.patterns.retention.holding import live_growth_per_step
from profkit.patterns.retention.lifetimes import lifetimes, live_bytes
from profkit.patterns.time.hottest import BACKWARD
from profkit.patterns.time.idling import when
from profkit.patterns.time.shares import time_parts
from profkit.trace.events import NONE, Bools, Category, Float64s, Int32s, Int64s, Rows
from profkit.trace.statistics import distinct

COLUMNS = 2000
"""More than a screen's width: zoomed in by two, a column is a pixel."""
_MOST_DRAWN = 16
"""Steps on the timeline. With more, a step is too narrow to show anything inside."""
_MOST_STEPS = 128
_MOST_SPANS = 64
_MOST_BRANCHES = 300
_MOST_HOLDERS = 6
"""Beyond what the page can show: its size must not grow with the recording."""
_MOST_BYTES = float(1 << 62)
"""No memory is larger. Sizes in a damaged trace may add up to more than an integer of 64 bits holds."""
_LEAST_HOLDER = 0.01
"""Of all that is held."""
_LEAST_BRANCH = 0.002
"""Of all time. Less is narrower than a pixel or two."""
_LONGEST_LABEL = 160
"""Kernels' names have thousands of characters; a label beyond this is wider than its branch."""
_TOP = len(LEVELS) - 1
_OUTSIDE, _NO_LINE = "outside of modules", "no line recorded"


def draw(facts: Facts, marked: Sequence[Rows] = ()) -> Pictures:
    """The pictures of a recording. ``marked`` has the events behind each finding, in the diagnosis' order."""
    steps = facts.steps
    chosen = np.flatnonzero(steps.measured)
    drawn = chosen[:_MOST_DRAWN]
    window = _Window(int(steps.begun_ns[drawn].min()), int(steps.done_ns[drawn].max()))
    parts = [(label, spent) for label, spent in time_parts(facts) if spent.total_ns > 0]
    levels, branches = _branches(facts)
    return Pictures(
        parts=tuple(label for label, _ in parts),
        steps=_picture_steps(facts, window, chosen[:_MOST_STEPS], drawn, [spent for _, spent in parts]),
        duration_ns=window.span_ns,
        lanes=tuple(_lane(window, label, spent) for label, spent in _lanes(facts) if len(spent.start_ns)),
        marks=tuple(_marks(facts, window, marked)),
        memory=_memory_curve(facts, window),
        branches=branches,
        levels=levels,
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
        """The start of each column, and the end of the last."""
        return (self.start_ns + np.linspace(0, self.span_ns, COLUMNS + 1)).astype(np.int64)

    def shares(self, times_ns: Int64s) -> Float64s:
        """Times as shares of the window, 0 to 1, in steps of a tenth of a column."""
        shares: Float64s = ((times_ns - self.start_ns) / self.span_ns).clip(0, 1).round(5)
        return shares


def _encode(levels: Float64s) -> str:
    """A row of columns from shares 0 to 1. Only 0 becomes the lowest level."""
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
    """The timeline's rows. Unlike the parts of a step, several may be busy at a time."""
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
    """Events less than a column apart are one span. If there are too many spans, the longest are kept."""
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
    """The live bytes, from the device's totals or else from the allocations and frees."""
    memory = facts.memory
    if not memory.present:
        return None
    if memory.is_absolute:
        times, live = memory.times_ns, np.concatenate([[memory.base_bytes], memory.held_bytes])
    else:
        times, live = live_bytes(*lifetimes(facts), memory.size_bytes)
        live = np.concatenate([[0], live])
    first = np.searchsorted(times, window.edges_ns, side="left")
    highest = np.maximum.reduceat(live, first[:-1])
    highest = np.maximum(highest, live[first[1:]])
    least, peak = int(highest.min()), int(highest.max())
    if peak == least:
        return None
    levels = _encode((highest - least) / (peak - least))
    ends = memory.live_at_step_end_bytes[facts.steps.measured].tolist()
    growth = live_growth_per_step(facts)
    return MemoryCurve(levels, least, peak, _holders(facts, window), growth, tuple(ends[:_MOST_STEPS]))


def _holders(facts: Facts, window: _Window) -> tuple[MemoryHolder, ...]:
    """The lines that allocated what is live at the window's peak."""
    memory, (made_ns, freed_ns) = facts.memory, lifetimes(facts)
    times, live = live_bytes(made_ns, freed_ns, memory.size_bytes)
    first, last = np.searchsorted(times, (window.start_ns, window.end_ns))
    if last <= first:
        return ()
    peak_ns = times[first + live[first:last].argmax()]
    held = (made_ns <= peak_ns) & (freed_ns > peak_ns)
    lines = _lines(facts, memory.rows[held])
    if set(lines.labels) <= {_NO_LINE}:
        return ()
    sums = np.bincount(lines.codes, memory.size_bytes[held], len(lines.labels)).clip(max=_MOST_BYTES)
    largest = np.argsort(-sums, kind="stable")[:_MOST_HOLDERS].tolist()
    return tuple(
        MemoryHolder(lines.labels[at], int(sums[at]), lines.sources[at])
        for at in largest
        if sums[at] > _LEAST_HOLDER * sums.sum()
    )


def _branches(facts: Facts) -> tuple[tuple[str, ...], tuple[Branch, ...]]:
    """The levels of the icicle, and its branches: modules (if known), their lines, the operators that these call, and
    the kernels of those."""
    operators, top, inner, ns = _device_paths(facts) if facts.device.present else _host_paths(facts)
    texts = [name.removeprefix(BACKWARD)[:_LONGEST_LABEL] for name in facts.trace.names]
    lines, modules = _lines(facts, operators), _modules(facts, operators)
    places = [lines] if modules is None else [modules] if set(lines.labels) == {_NO_LINE} else [modules, lines]
    levels = [*places, _Level("operator", texts, top), _Level("kernel", texts, inner)]
    branches = sorted(_lay_out(levels, 0, 0.0, int(ns.sum()), ns), key=lambda one: (one.depth, one.begin))
    return tuple(level.name for level in levels), tuple(branches)[:_MOST_BRANCHES]


class _Level(Struct, frozen=True):
    """A level of the icicle: its labels, and for each event the number of its label, -1 for none."""

    name: str
    labels: Sequence[str]
    codes: Int64s
    sources: Sequence[str] = ()


_Paths = tuple[Rows, Int64s, Int64s, Int64s]
"""For each event: its operator, the name codes of the outermost operator and of itself, and its time."""


def _device_paths(facts: Facts) -> _Paths:
    events, launches = facts.trace.events, facts.launches
    wanted = facts.steps.in_measured(launches.launched_ns)
    work, operator = launches.work[wanted], launches.operator[wanted].astype(np.int64)
    outermost = _outermost_operator(facts, operator)
    top = np.where(outermost >= 0, events.name_code[outermost], -1)
    return operator, top, events.name_code[work].astype(np.int64), events.duration_ns[work]


def _host_paths(facts: Facts) -> _Paths:
    events, operators = facts.trace.events, facts.trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE)
    rows = np.flatnonzero(operators & facts.measured & (events.lane == facts.steps.main_lane))
    top, own_ns = _outermost_operator(facts, rows), facts.tree.self_ns(events)[rows]
    inner = np.where(top == rows, -1, events.name_code[rows])
    return rows, events.name_code[top].astype(np.int64), inner.astype(np.int64), own_ns


def _outermost_operator(facts: Facts, rows: Rows) -> Rows:
    """The outermost operator around each of these events, for backward nodes the node's; -1 for -1."""
    operators = facts.tree.outermost(facts.trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE))
    outermost = facts.tree.nearest_ancestor(operators, include_self=True, of=rows.clip(min=0))
    found: Rows = np.where(rows >= 0, outermost, -1)
    return found


def _lines(facts: Facts, rows: Rows) -> _Level:
    """Each event's line, in the backward pass that of its forward operator; without a line, the part of the step."""
    site = _forward_sites(facts, rows)
    backward = (rows >= 0) & facts.lines.backward[rows]
    updating = facts.trace.mask_of(facts.updates.rows)
    in_update = (rows >= 0) & facts.tree.under(updating)[rows]
    code = np.where(site >= 0, 2 * site + backward, np.where(backward, -2, np.where(in_update, -3, -1)))
    known = distinct(code)
    named = [_name_place(facts, int(one)) for one in known]
    return _Level("line", [label for label, _ in named], np.searchsorted(known, code), [text for _, text in named])


def _forward_sites(facts: Facts, rows: Rows) -> Int64s:
    site: Int64s = np.where(rows >= 0, facts.lines.forward_site[rows], -1).astype(np.int64)
    site[site >= len(facts.callsites)] = -1
    return site


def _name_place(facts: Facts, code: int) -> tuple[str, str]:
    """A place's label and its source text."""
    place = call_site(facts, code // 2) if code >= 0 else None
    if place is None:
        return {-2: "backward", -3: "optimizer"}.get(code, _NO_LINE), ""
    file = place.file.replace("\\", "/").rpartition("/")[2]
    passed = ", backward" if code % 2 else ""
    return f"{file}:{place.line}{passed}"[:_LONGEST_LABEL], place.source.strip()[:_LONGEST_LABEL]


def _modules(facts: Facts, rows: Rows) -> _Level | None:
    """The class of the innermost module around each event, in the backward pass around its forward operator. None if
    the recording has no modules."""
    calls, codes, classes = _module_calls(facts)
    if not calls.any():
        return None
    at = np.where(rows >= 0, where_marked(facts, rows), NONE)
    call = np.where(at >= 0, facts.tree.nearest_ancestor(calls, of=at.clip(min=0)), NONE)
    code = np.where(call >= 0, codes[call], NONE)
    known = distinct(code)
    names = [_OUTSIDE if one < 0 else classes[one][:_LONGEST_LABEL] for one in known.tolist()]
    labels = sorted(set(names))
    place = np.array([labels.index(name) for name in names], dtype=np.int64)
    return _Level("module", labels, place[np.searchsorted(known, code)])


def _module_calls(facts: Facts) -> tuple[Bools, Int32s, list[str]]:
    """The events around a module's work, their codes, and the module's class for each code. They are recorded calls of
    modules (``with_stack=True``) or else the lines of methods called ``forward``."""
    events = facts.trace.events
    called = facts.trace.where_name(lambda name: name.startswith(MODULE_CALL)) & (events.category == Category.PYTHON)
    if called.any():
        classes = [name.removeprefix(MODULE_CALL).rpartition("_")[0] for name in facts.trace.names]
        return called, events.name_code, classes
    classes = [_class_of_method(place.function) for place in facts.callsites]
    in_forward = np.array([*map(bool, classes), False])
    site = np.where(events.site < len(classes), events.site, np.int32(NONE))
    return in_forward[site] & (events.category == Category.LINE_MARK), site, classes


def _class_of_method(function: str) -> str:
    """``Block`` for ``Block.forward``, the method of a module that PyTorch calls; empty for anything else."""
    owner, _, method = function.rpartition(".")
    return owner.rpartition(".")[2] if method == "forward" else ""


def _lay_out(levels: Sequence[_Level], depth: int, begin: float, total: int, ns: Int64s) -> Iterator[Branch]:
    """The branches, on each level the widest first and without narrow ones."""
    level, deeper = levels[0], levels[1:]
    known, inverse = np.unique(level.codes, return_inverse=True)
    sums = np.bincount(inverse, ns, len(known))
    for at in np.argsort(-sums, kind="stable").tolist():
        share, code = float(sums[at]) / max(total, 1), int(known[at])
        if share < _LEAST_BRANCH:
            break
        if code >= 0:
            source = level.sources[code] if level.sources else ""
            yield Branch(depth, level.labels[code], round(begin, 5), round(share, 5), int(sums[at]), source)
            inside = inverse == at
            if deeper:
                below = [structs.replace(one, codes=one.codes[inside]) for one in deeper]
                yield from _lay_out(below, depth + 1, begin, total, ns[inside])
        begin += share
