"""What the host does while the device has nothing to do: why part of the step is idle.

The reasons are ordered by how much they explain: a synchronisation inside an operator that launches is a wait, and a
call of the allocator during a compilation is the compiler's. If several threads take turns (the main one and those of
the backward pass that it waits for), the one at work counts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from profkit.derive.device.driver_memory import allocating
from profkit.derive.steps.steps import compiling
from profkit.derive.timeline.intervals import Intervals, union
from profkit.evidence.frames import is_user_frame, parse_frame
from profkit.marks import STEP_MARK
from profkit.trace.events import Bools, Category, Rows

if TYPE_CHECKING:
    from profkit.derive.facts import Facts

_LOADS_CODE = re.compile(r"(?:cu|hip)(?:ModuleLoad|LibraryLoad)")
"""Code is loaded onto the device when a kernel is first launched."""
_CLOSE_NS = 1_000_000
"""Between two launches Python takes 5 to 100 us; a millisecond holds something besides the way to the next one."""
_PYTORCHS_OWN = (STEP_MARK, "Optimizer.", "enumerate(DataLoader)#", "DistributedDataParallel.", "nccl:")
"""Beginnings of the ranges that PyTorch itself records."""


def idle_parts(facts: Facts) -> list[tuple[str, Intervals]]:
    """When the host did what, by the reasons why the device idles; the first reason counts."""
    trace, waits = facts.trace, facts.waits
    events, serial = trace.events, facts.serial_lanes[trace.events.lane]
    runtime = events.category == Category.RUNTIME
    waiting = trace.mask_of(waits.rows[~waits.own])
    operators = facts.tree.outermost(events.category == Category.OPERATOR)
    return [
        ("waiting for data", _on_main(facts, facts.loading)),
        ("compiling or loading code", _when(facts, (compiling(trace) | runtime & _named(facts, _LOADS_CODE)) & serial)),
        ("allocating or freeing memory", _when(facts, allocating(facts.trace) & serial)),
        ("the host waits for the device", _when(facts, waiting & serial)),
        ("in the optimizer's step", facts.updates.on(events.lane == facts.steps.main_lane)),
        ("launching work", _launching(facts, operators & serial)),
        ("operators on the host", _when(facts, operators & serial)),
        ("on the way into compiled code", _when(facts, (events.category == Category.COMPILED_CODE) & serial)),
    ]


def busy_otherwise(facts: Facts) -> Bools:
    """What keeps a thread of the program from launching anything: the allocator and the compiler."""
    loads = (facts.trace.events.category == Category.RUNTIME) & _named(facts, _LOADS_CODE)
    serial = facts.serial_lanes[facts.trace.events.lane]
    busy: Bools = (allocating(facts.trace) | loads | compiling(facts.trace)) & serial
    return busy


def _launching(facts: Facts, operators: Bools) -> Intervals:
    """Inside operators that launch something, inside the launching calls, and between two of these that are close."""
    events, launches = facts.trace.events, facts.launches
    calls = launches.call[launches.call >= 0]
    calls = np.unique(calls[facts.serial_lanes[events.lane[calls]]])
    launching = facts.trace.mask_of(np.append(calls, launches.operator[launches.operator >= 0]))
    rows = np.flatnonzero(operators & facts.tree.holding(launching))
    called = union(events.start_ns[calls], events.ends_of(calls))
    close = called.start_ns[1:] - called.end_ns[:-1] < _CLOSE_NS
    parts = (
        (called.start_ns, called.end_ns),
        (called.end_ns[:-1][close], called.start_ns[1:][close]),
        (events.start_ns[rows], facts.tree.end_ns[rows]),
    )
    return union(*(np.concatenate(edges) for edges in zip(*parts, strict=True)))


def time_by_place(facts: Facts, spent: Intervals) -> list[tuple[str, int]]:
    """Each function, range or marked line of the user's in which the main thread was meanwhile, innermost only, with
    its part of the time in nanoseconds, most first. Empty if none was recorded."""
    events, tree = facts.trace.events, facts.tree
    marks = events.category == Category.LINE_MARK
    named = marks | _user_frames(facts) | _user_ranges(facts)
    rows = np.flatnonzero(named & (events.lane == facts.steps.main_lane))
    covered = spent.covered_within(events.start_ns[rows], tree.end_ns[rows])
    around = tree.nearest_ancestor(facts.trace.mask_of(rows), of=rows)
    own, inner = covered.copy(), around >= 0
    np.subtract.at(own, np.searchsorted(rows, around[inner]), covered[inner])
    by_name = np.bincount(events.name_code[rows], own.clip(min=0), minlength=len(facts.trace.names))
    totals: dict[str, int] = {}
    for code in np.flatnonzero(by_name).tolist():
        label = _label(facts, code, rows[events.name_code[rows] == code])
        totals[label] = totals.get(label, 0) + int(by_name[code])
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))


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
    """The file without its folders, which may be those of another system."""
    return re.split(r"[\\/]", path)[-1]


def _user_frames(facts: Facts) -> Bools:
    frames: Bools = facts.trace.events.category == Category.PYTHON
    return frames & facts.trace.where_name(is_user_frame) if frames.any() else frames


def _user_ranges(facts: Facts) -> Bools:
    own = facts.trace.where_name(lambda name: name.startswith(_PYTORCHS_OWN))
    ranges: Bools = (facts.trace.events.category == Category.ANNOTATION) & ~own
    return ranges


def _named(facts: Facts, pattern: re.Pattern[str]) -> Bools:
    return facts.trace.where_name(lambda name: pattern.match(name) is not None)


def _when(facts: Facts, wanted: Bools) -> Intervals:
    rows = np.flatnonzero(wanted)
    return union(facts.trace.events.start_ns[rows], facts.tree.end_ns[rows])


def _on_main(facts: Facts, wanted: Bools) -> Intervals:
    return _when(facts, wanted & (facts.trace.events.lane == facts.steps.main_lane))
