"""The steps of a recording that has no event of the host: what a vendor's tool or a filter leaves of a trace.

The profiler's step marks have shadows on the device. Without them, a sequence of kernels that repeats shows the loop.
The layers of one pass repeat too, but between kernels that none of them has: the embedding's, the loss's, the
optimizer's. In a loop of steps, what comes before the first whole round and after the last is part of a round.
"""

from __future__ import annotations

import numpy as np

from profkit.core.marks import STEP_MARK
from profkit.derive.steps.repetition import find_period
from profkit.trace.events import DEVICE_WORK, Category, Int64s, Rows, Trace

MARKED = "the profiler's step marks on the device"
REPEATED = "a sequence of kernels that repeats"
_HOST = (Category.OPERATOR, Category.ANNOTATION, Category.RUNTIME, Category.COMPILED_CODE, Category.LINE_MARK)


def find_on_device(trace: Trace) -> tuple[Int64s, Int64s, str] | None:
    """Starts and ends of the steps, and what they were found from; None if the host was recorded or nothing shows."""
    if trace.in_categories(*_HOST).any():
        return None
    return _marked(trace) or _repeating(trace)


def _marked(trace: Trace) -> tuple[Int64s, Int64s, str] | None:
    events = trace.events
    named = trace.where_name(lambda name: name.startswith(STEP_MARK))
    rows = _busiest(trace, np.flatnonzero(named & (events.category == Category.DEVICE_ANNOTATION)))
    if not rows.size:
        return None
    starts = events.start_ns[rows]
    return starts, np.append(starts[1:], events.ends_of(rows)[-1]), MARKED


def _repeating(trace: Trace) -> tuple[Int64s, Int64s, str] | None:
    events = trace.events
    rows = _busiest(trace, np.flatnonzero(trace.in_categories(*DEVICE_WORK)))
    if not rows.size:
        return None
    start_ns, codes = events.start_ns[rows], events.name_code[rows]
    starts = find_period(codes, start_ns, int(np.ptp(start_ns)))
    if starts is None:
        return None
    inside = (start_ns >= starts[0]) & (start_ns < starts[-1])
    kernels = events.category[rows] == Category.KERNEL
    foreign = kernels & ~inside & ~np.isin(codes, codes[inside])
    return None if foreign.any() else (starts[:-1], starts[1:], REPEATED)


def _busiest(trace: Trace, rows: Rows) -> Rows:
    """Those of the stream that has most of their time, in order of time."""
    if not rows.size:
        return rows
    events = trace.events
    lane = np.bincount(events.lane[rows], events.duration_ns[rows]).argmax()
    mine = rows[events.lane[rows] == lane]
    in_order: Rows = mine[np.argsort(events.start_ns[mine], kind="stable")]
    return in_order
