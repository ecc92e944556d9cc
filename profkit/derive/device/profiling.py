"""The profiler's own work, as far as it records that itself."""

from __future__ import annotations

from profkit.trace.events import Bools, Category, Trace

_FLUSH = "Buffer Flush"
"""CUPTI delivers full buffers on a thread of its own, or when the recording ends."""
_HOLDING_UP = ("Activity Buffer Request", "Instrumentation", "Resource")
"""These happen inside the program's calls. All are kinds of ``CUpti_ActivityOverheadKind``; the other kinds are the
driver's."""


def holding_up(trace: Trace) -> Bools:
    """The profiler's work inside the program's calls: a buffer for its records, or a kernel's instrumentation."""
    held: Bools = trace.named(*_HOLDING_UP) & (trace.events.category == Category.OTHER)
    return held


def own_work(trace: Trace) -> Bools:
    """All of its work, on any thread."""
    rows: Bools = trace.named(_FLUSH, *_HOLDING_UP) & (trace.events.category == Category.OTHER)
    return rows
