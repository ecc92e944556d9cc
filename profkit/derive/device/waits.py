"""Where the host waits for the device."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.core.marks import STEP_MARK
from profkit.derive.device.launches import Launches
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import Bools, Category, Int32s, Int64s, Rows, Trace

_WAITING_CALLS = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "CtxSynchronize")
_BLOCKING_COPIES = ("Memcpy", "MemcpyDtoH", "MemcpyHtoD", "MemcpyWithStream")
_PREFIXES = ("cuda", "hip", "cu")
_PROFILER = re.compile(r"torch/(autograd/)?profiler(/|\.py\()")


class Waits(Struct, frozen=True):
    """The outermost runtime calls in which the host waits.

    ``own`` marks the profiler's own waits: it synchronises the device when it starts and stops, outside all operators
    and steps. ``operator`` is the row of the innermost operator around each, or -1.
    """

    rows: Rows
    whole_device: Bools
    own: Bools
    operator: Rows
    duration_ns: Int64s


def find_waits(trace: Trace, tree: Tree, launches: Launches, calling: Int32s) -> Waits:
    """``calling`` is the innermost operator around each event."""
    events = trace.events
    named = trace.where_name(_waits_by_name) & (events.category == Category.RUNTIME)
    rows = np.flatnonzero(tree.outermost(named | _pageable_copies(trace, launches)))
    whole = trace.where_name(lambda n: "DeviceSynchronize" in n or "CtxSync" in n)[rows]
    operator = calling[rows].astype(np.int64)
    own = whole & (operator < 0)
    own[own] = _outside_program(trace, tree, rows[own]) & ~_called_by_program(trace, tree, rows[own])
    return Waits(rows, whole, own, operator, tree.end_ns[rows] - events.start_ns[rows])


def _waits_by_name(name: str) -> bool:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            call = name.removeprefix(prefix).split("_")[0]  # without ``_v2`` or ``_ptsz``
            return call in _WAITING_CALLS or call in _BLOCKING_COPIES
    return False


def _pageable_copies(trace: Trace, launches: Launches) -> Bools:
    """Asynchronous copies from or to pageable memory, for which the driver makes the host wait all the same."""
    pageable = trace.where_name(lambda name: "Pageable" in name)[launches.work]
    return trace.mask_of(launches.call[pageable & (launches.call >= 0)])


def _outside_program(trace: Trace, tree: Tree, rows: Rows) -> Bools:
    """Which of the events lie outside the profiler's step marks; without marks, before the first operator or after the
    last."""
    events = trace.events
    named = trace.where_name(lambda name: name.startswith(STEP_MARK))
    marks = named & (events.category == Category.ANNOTATION)
    operators = trace.rows(Category.OPERATOR)
    if marks.any() or not operators.size:
        return ~tree.under(marks)[rows]
    before = events.ends_of(rows) <= events.start_ns[operators].min()
    outside: Bools = before | (events.start_ns[rows] >= events.ends_of(operators).max())
    return outside


def _called_by_program(trace: Trace, tree: Tree, rows: Rows) -> Bools:
    """Which of the events lie under a Python function or a marked line of the program, and outside the profiler's
    code."""
    events = trace.events
    python = events.category == Category.PYTHON
    profiler = python & trace.matching(_PROFILER)
    called = tree.nearest_ancestor(python | (events.category == Category.LINE_MARK), include_self=True, of=rows) >= 0
    return called & (tree.nearest_ancestor(profiler, include_self=True, of=rows) < 0)
