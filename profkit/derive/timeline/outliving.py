"""Ranges that outlive the Python frame in which they begin.

``record_function`` begins its range inside the frame of its own ``__enter__`` and of what that calls
(``_record_function_enter_new``), which return long before the range ends. A generator that yields inside ``with
record_function(…)``, as PyTorch's compiler does to record its work, returns before the range ends too. Neither interval
is wrong. In the tree everything that ran in a range lies below it, so such a frame ends there where the range begins;
its own duration stays as recorded.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.timeline.crossing import greatest
from profkit.trace.events import Bools, Category, Int64s, Rows, Trace

_ENTERING = "profiler::_record_function_enter"
"""The operator with which ``record_function`` begins a range, if it was recorded."""

COMPILING = "(dynamo_timed)"
"""The suffix of what PyTorch's compiler records of its work (``dynamo_timed`` in ``_dynamo/utils.py``): as operators,
which begin in a generator's frame."""


def tell_ranges(trace: Trace) -> Bools:
    """The events that may outlive the frame in which they begin."""
    ranges: Bools = (trace.events.category == Category.ANNOTATION) | trace.where_name(lambda n: n.endswith(COMPILING))
    return ranges


def tell_enclosing(trace: Trace) -> Bools:
    """The events in which a range may begin that outlives them."""
    entering = trace.where_name(lambda name: name.startswith(_ENTERING)) & (trace.events.category == Category.OPERATOR)
    enclosing: Bools = entering | (trace.events.category == Category.PYTHON)
    return enclosing


def end_at_ranges(start_ns: Int64s, end_ns: Int64s, frames: Rows, ranges: Rows) -> None:
    """End each of a thread's ``frames`` where the first range that outlives it begins; changes ``end_ns`` in place.

    ``frames`` and ``ranges`` are indices of intervals that are sorted by start.
    """
    if not (frames.size and ranges.size):
        return
    begins, ends = start_ns[ranges], end_ns[ranges]
    first = np.searchsorted(begins, start_ns[frames], side="right")
    last = np.searchsorted(begins, end_ns[frames])
    holding = np.flatnonzero(last > first)
    frames, first, last = frames[holding], first[holding], last[holding]
    outlived = greatest(ends, first, last) > end_ns[frames]
    frames, first, last = frames[outlived], first[outlived], last[outlived]
    while (last - first > 1).any():  # halve the stretch that holds the first of them
        middle = (first + last) // 2
        is_earlier = greatest(ends, first, middle) > end_ns[frames]
        first, last = np.where(is_earlier, first, middle), np.where(is_earlier, middle, last)
    end_ns[frames] = begins[first]
