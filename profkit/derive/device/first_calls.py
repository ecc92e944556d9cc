"""First calls: the one-off cost when an operator first needs a library, or a kernel its code.

A program's first call creates the device's context, whichever call it is. Not every driver call of a start-up is
recorded: cuBLAS and cuDNN set themselves up inside the operator that needs them, and a kernel's code may be loaded
inside its launch. Such a call takes many times as long as later calls of its name. What the profiler itself does
inside a call is no part of that.
"""

from __future__ import annotations

import re

import numpy as np

from profkit.derive.device.launches import Launches
from profkit.derive.device.profiling import holding_up
from profkit.derive.timeline.intervals import union
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import Category, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, median

_LOADS_CODE = re.compile(r"(?:cu|hip)(?:ModuleLoad|LibraryLoad)")
"""Code is loaded onto the device when a kernel is first launched."""
_MAY_WAIT = re.compile(r"Synchronize|Memcpy|Memset|Launch|Query")
"""Calls that may be long because the device still works on what was launched before the recording."""
_CONTEXT_NS = 50_000_000
"""Creating a context takes 0.1 s to many seconds, allocating memory less than a millisecond."""
_LEAST_NS = 1_000_000
"""A launch takes about 5 µs, and the operator around it about 50: this is something else."""
_LATER_SHARE = 0.1
"""Later calls take at most this share of the first. Different sizes seldom make as large a difference."""
_FEWEST_USUAL = 5
"""So many launches of other kernels show how long a launch usually takes in this recording."""
_BUSY_SHARE = 0.1
"""A launch into a full queue waits for the device. During one that loads code, the device soon runs out of work."""


def find_first_calls(trace: Trace, tree: Tree, launches: Launches) -> Rows:
    """The driver's calls that create a context or load code, and operators and launches that load it without a recorded
    call."""
    named = trace.where_name(lambda name: _LOADS_CODE.match(name) is not None)
    loads = np.flatnonzero(named & (trace.events.category == Category.RUNTIME))
    parts = [loads, _creation_of_context(trace)]
    return distinct(np.concatenate([*parts, _first_of_many(trace, tree, launches)] if launches.work.size else parts))


def _creation_of_context(trace: Trace) -> Rows:
    """The first call of the recording if it is long without a reason: whatever it is, it creates the context first."""
    calls = trace.rows(Category.RUNTIME)
    first = calls[np.argsort(trace.events.start_ns[calls], kind="stable")][:1]
    waits = trace.where_name(lambda name: _MAY_WAIT.search(name) is not None)[first]
    return first[~waits & (trace.events.duration_ns[first] >= _CONTEXT_NS)]


def _first_of_many(trace: Trace, tree: Tree, launches: Launches) -> Rows:
    """Launches of kernels, and operators that launch them, that are the first of their name and take far longer than
    those after. A kernel that is launched once is compared with the launches of all others."""
    kernels = trace.events.category[launches.work] == Category.KERNEL  # a copy's call may wait for earlier work
    linked = kernels & (launches.call >= 0)
    call, first_work = np.unique(launches.call[linked], return_index=True)
    kernel = trace.events.name_code[launches.work[linked][first_work]]
    operator = distinct(launches.operator[kernels & (launches.operator >= 0)])
    own_ns = (tree.self_ns(trace.events) - _profiler_ns(trace, tree)).clip(min=0)
    found = np.concatenate(
        [
            _outstanding(trace, call, kernel, own_ns[call]),
            _single(call, kernel, own_ns[call]),
            _outstanding(trace, operator, trace.events.name_code[operator], own_ns[operator]),
        ]
    )
    busy = union(trace.events.start_ns[launches.work], trace.events.ends_of(launches.work))
    begin_ns, end_ns = trace.events.start_ns[found], tree.end_ns[found]
    idle = busy.covered_within(begin_ns, end_ns) < _BUSY_SHARE * (end_ns - begin_ns)
    rows: Rows = np.sort(found[idle])
    return rows


def _profiler_ns(trace: Trace, tree: Tree) -> Int64s:
    """How long the profiler itself was at work within each event: CUPTI asks for a buffer inside the first launch."""
    events = trace.events
    own = np.flatnonzero(holding_up(trace))
    if not own.size:
        return np.zeros(len(events), dtype=np.int64)
    return union(events.start_ns[own], events.ends_of(own)).covered_within(events.start_ns, tree.end_ns)


def _single(rows: Rows, code: Int32s, own_ns: Int64s) -> Rows:
    """The long rows that are alone with their code, if the others usually take far less."""
    if len(rows) <= _FEWEST_USUAL:
        return rows[:0]
    alone = np.bincount(code, minlength=1)[code] == 1
    found: Rows = rows[alone & (own_ns >= _LEAST_NS) & (median(own_ns) <= _LATER_SHARE * own_ns)]
    return found


def _outstanding(trace: Trace, rows: Rows, code: Int32s, own_ns: Int64s) -> Rows:
    """The rows that are the first of their code and long, if there are others and none is nearly as long."""
    order = np.lexsort((trace.events.start_ns[rows], code))
    rows, code, own_ns = rows[order], code[order], own_ns[order]
    first = np.flatnonzero(np.diff(code, prepend=-1))
    count = np.diff(np.append(first, len(code)))
    later_ns = own_ns.copy()
    later_ns[first] = 0
    longest_later = np.maximum.reduceat(later_ns, first) if first.size else later_ns
    chosen = (count > 1) & (own_ns[first] >= _LEAST_NS) & (longest_later <= _LATER_SHARE * own_ns[first])
    found: Rows = rows[first[chosen]]
    return found
