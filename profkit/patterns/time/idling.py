"""What the host does while the device has nothing to do: why part of the step is idle.

The first matching reason counts, and the reasons are ordered by how much they explain: a synchronisation inside an
operator that launches is a wait, and a call of the allocator during a compilation is the compiler's. If several threads
take turns (the main one, and those of the backward pass that it waits for), the working one counts.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.core.marks import STEP_MARK
from profkit.derive.device.driver_memory import allocating
from profkit.derive.device.profiling import holding_up
from profkit.derive.facts import Facts, derived_once
from profkit.derive.steps.boundaries import compiling
from profkit.derive.timeline.intervals import NOTHING, Intervals, intersection, union
from profkit.patterns.places.frames import parse_frame, user_frames
from profkit.patterns.time.wait_causes import await_unrecorded_work
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.trace.statistics import distinct

_CLOSE_NS = 1_000_000
"""Between two launches Python takes 5 to 100 µs. A millisecond holds more than the way to the next launch."""
_QUEUED_NS = 50_000
"""Work begins on an idle device within 20 µs of its launch (see `profkit.savings.streams`)."""
LONG_PAUSE_NS = 100_000
"""Between two queued kernels pass 1 to 2 µs on an H100, 30 on an MI300X. After a longer pause, the device waited for
something else."""
QUEUED = "though work is queued"
UNRECORDED_WAIT = "the host waits for work that was not recorded"
PROFILER = "the profiler itself works inside a call"
"""CUPTI gets a buffer for its records inside the first launch: 1 to 2 ms that the program does not take."""
HOST_OPERATORS = "operators on the host"
"""The reason for arithmetic on the CPU that launches nothing."""
_PYTORCHS_OWN = (
    STEP_MARK,
    "Optimizer.",
    "enumerate(DataLoader)#",
    "DistributedDataParallel.",
    "DataParallel.",
    "nccl:",
)
"""Prefixes of the ranges that PyTorch itself records."""


@derived_once
def idle_parts(facts: Facts) -> list[tuple[str, Intervals]]:
    """When the host did what, by the reason why the device idles; the first reason counts."""
    trace, waits = facts.trace, facts.waits
    events, serial = trace.events, facts.serial_lanes[trace.events.lane]
    waiting, first = trace.mask_of(waits.rows[~waits.own]), trace.mask_of(facts.first_calls)
    unexplained = trace.mask_of(waits.rows[~waits.own & await_unrecorded_work(facts)])
    operators = facts.tree.outermost(events.category == Category.OPERATOR)
    return [
        (QUEUED, while_queued(facts)),
        ("waiting for data", when_on_main(facts, facts.loading)),
        (PROFILER, _profiling(facts)),
        ("compiling or loading code", when(facts, (compiling(trace) | first) & serial)),
        ("allocating or freeing memory", when(facts, allocating(trace) & serial)),
        (UNRECORDED_WAIT, when(facts, unexplained & serial)),
        ("the host waits for the device", when(facts, waiting & serial)),
        ("in the optimizer's step", facts.updates.on(events.lane == facts.steps.main_lane)),
        ("capturing graphs, trying out kernels, warming up", facts.starting.any),
        ("launching work", _launching(facts, operators & serial)),
        (HOST_OPERATORS, when(facts, operators & serial)),
        ("on the way into compiled code", when(facts, (events.category == Category.COMPILED_CODE) & serial)),
    ]


@derived_once
def while_queued(facts: Facts) -> Intervals:
    """When work that was launched some time ago had not begun. If the device idles then, it waits for something that
    was not recorded: work that is missing from the recording, or another device."""
    events, launches = facts.trace.events, facts.launches
    known = launches.call >= 0
    queued_ns, begun_ns = events.ends_of(launches.call[known]) + _QUEUED_NS, events.start_ns[launches.work[known]]
    late = begun_ns > queued_ns
    return union(queued_ns[late], begun_ns[late])


@derived_once
def between_queued(facts: Facts) -> Intervals:
    """The short pauses of the device between two pieces of work of which the second was queued already: no host makes
    them shorter."""
    busy = facts.device.busy
    start_ns, end_ns = busy.end_ns[:-1], busy.start_ns[1:]
    short = end_ns - start_ns < LONG_PAUSE_NS
    return intersection(Intervals(start_ns[short], end_ns[short]), while_queued(facts))


def busy_otherwise(facts: Facts) -> Bools:
    """What keeps a thread of the program from launching: the allocator, the compiler and first calls."""
    trace, serial = facts.trace, facts.serial_lanes[facts.trace.events.lane]
    return (allocating(trace) | trace.mask_of(facts.first_calls) | compiling(trace)) & serial


def _profiling(facts: Facts) -> Intervals:
    """The profiler's own work while a thread that holds up the program is inside an operator or a call."""
    trace, events = facts.trace, facts.trace.events
    own = np.flatnonzero(holding_up(trace))
    if not own.size:
        return NOTHING
    called = trace.in_categories(Category.OPERATOR, Category.RUNTIME) & facts.serial_lanes[events.lane]
    return intersection(union(events.start_ns[own], events.ends_of(own)), when(facts, called))


def _launching(facts: Facts, operators: Bools) -> Intervals:
    """Inside operators that launch something, inside the launching calls, and between two launching calls close by. A
    long stretch inside an operator in which nothing else is recorded is not spent on launching: the operator computes,
    or compiles unseen."""
    events, launches = facts.trace.events, facts.launches
    calls = launches.call[launches.call >= 0]
    calls = distinct(calls[facts.serial_lanes[events.lane[calls]]])
    launching = facts.trace.mask_of(np.append(calls, launches.operator[launches.operator >= 0]))
    rows = np.flatnonzero(operators & facts.tree.holding(launching))
    called = union(events.start_ns[calls], events.ends_of(calls))
    close = called.start_ns[1:] - called.end_ns[:-1] < _CLOSE_NS
    parts = (
        (called.start_ns, called.end_ns),
        (called.end_ns[:-1][close], called.start_ns[1:][close]),
        (events.start_ns[rows], facts.tree.end_ns[rows]),
    )
    inside = union(*(np.concatenate(edges) for edges in zip(*parts, strict=True)))
    return inside.minus(_silent(facts).minus(called))


def _silent(facts: Facts) -> Intervals:
    """The stretches of a millisecond or more in which no event begins or ends on a thread that holds up the program."""
    events = facts.trace.events
    mine = (facts.tree.depth >= 0) & facts.serial_lanes[events.lane]
    edges = np.concatenate([events.start_ns[mine], facts.tree.end_ns[mine]])
    edges.sort()
    long = np.diff(edges) >= _CLOSE_NS
    return Intervals(edges[:-1][long], edges[1:][long])


def time_by_place(facts: Facts, spent: Intervals) -> list[tuple[str, int]]:
    """The user's functions, ranges and marked lines that the main thread was in, innermost only, with their part of the
    time in nanoseconds, the largest first. Empty if none was recorded."""
    events, rows = facts.trace.events, _named_places(facts)
    by_name = np.bincount(events.name_code[rows], own_time(facts, rows, spent), minlength=len(facts.trace.names))
    totals: dict[str, int] = {}
    for code in np.flatnonzero(by_name).tolist():
        label = _label(facts, code, rows[events.name_code[rows] == code])
        totals[label] = totals.get(label, 0) + int(by_name[code])
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))


def own_time(facts: Facts, rows: Rows, spent: Intervals) -> Int64s:
    """How much of this time is inside each of the rows, in ascending order, and inside no other row within it; in
    nanoseconds."""
    covered_ns = spent.covered_within(facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])
    around, own_ns = facts.tree.nearest_ancestor(facts.trace.mask_of(rows), of=rows), covered_ns.copy()
    inner = around >= 0
    np.subtract.at(own_ns, np.searchsorted(rows, around[inner]), covered_ns[inner])
    return own_ns.clip(min=0)


class Around(Struct, frozen=True):
    """A place that holds much of some time: its name in reports, and the recorded name if it is a function."""

    label: str
    frame: str = ""


def place_around(facts: Facts, spent: Intervals) -> Around | None:
    """The user's function or range that the main thread was in, with everything it calls, for half of the time or more.
    The shortest one if several enclose each other; None if there is none."""
    events, tree = facts.trace.events, facts.tree
    rows = _named_places(facts)
    rows = rows[events.category[rows] != Category.LINE_MARK]
    codes, first, of_code = np.unique(events.name_code[rows], return_index=True, return_inverse=True)
    covered = np.bincount(of_code, spent.covered_within(events.start_ns[rows], tree.end_ns[rows]), len(codes))
    lasted = np.bincount(of_code, tree.end_ns[rows] - events.start_ns[rows], len(codes))
    totals: dict[Around, tuple[float, float]] = {}
    for at in np.flatnonzero(covered).tolist():
        name, is_frame = facts.trace.names[codes[at]], events.category[rows[first[at]]] == Category.PYTHON
        place = Around(_label(facts, int(codes[at]), rows[first[at] : first[at] + 1]), name if is_frame else "")
        inside_ns, whole_ns = totals.get(place, (0.0, 0.0))
        totals[place] = (inside_ns + covered[at], whole_ns + lasted[at])
    around = [(whole_ns, place) for place, (inside_ns, whole_ns) in totals.items() if 2 * inside_ns >= spent.total_ns]
    return min(around, key=lambda one: (one[0], one[1].label))[1] if around and spent.total_ns else None


def _named_places(facts: Facts) -> Rows:
    """The user's functions, ranges and marked lines on the main thread."""
    events = facts.trace.events
    named = (events.category == Category.LINE_MARK) | user_frames(facts) | user_ranges(facts)
    return np.flatnonzero(named & (events.lane == facts.steps.main_lane))


def _label(facts: Facts, code: int, rows: Rows) -> str:
    """``load (data.py:12)``, ``line train.py:31``, ``the range "batch"`` for each of ``batch 1``, ``batch 2``."""
    name, site = facts.trace.names[code], int(facts.trace.events.site[rows[0]])
    if 0 <= site < len(facts.callsites):
        return f"line {_file(facts.callsites[site].file)}:{facts.callsites[site].line}"
    frame = parse_frame(name) if facts.trace.events.category[rows[0]] == Category.PYTHON else None
    if frame:
        return f"{frame[2]} ({_file(frame[0])}:{frame[1]})"
    return f'the range "{name.rstrip("0123456789 ") or name}"'


def _file(path: str) -> str:
    """The file without its folders, as the path may be one of another system."""
    return re.split(r"[\\/]", path)[-1]


def user_ranges(facts: Facts) -> Bools:
    own = facts.trace.where_name(lambda name: name.startswith(_PYTORCHS_OWN))
    ranges: Bools = (facts.trace.events.category == Category.ANNOTATION) & ~own
    return ranges


def when(facts: Facts, wanted: Bools) -> Intervals:
    """When any of these events was running. Those inside others add nothing."""
    rows = np.flatnonzero(facts.tree.outermost(wanted))
    return union(facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])


def when_on_main(facts: Facts, wanted: Bools) -> Intervals:
    """When any of these events was running on the main thread."""
    return when(facts, wanted & (facts.trace.events.lane == facts.steps.main_lane))
