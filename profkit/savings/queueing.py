"""Launches into a full queue: the host stands still in the launch until the device has finished earlier work.

CUDA holds about 1,022 launches that have not ended; the next one returns when one of them has (seen on a V100, an A100
and an H100). Such time is a wait for the device, not work of the host. The trace shows how many fit.
"""

from __future__ import annotations

import numpy as np

from profkit.savings.streams import Queue
from profkit.trace.events import Events, Rows
from profkit.trace.statistics import distinct, median

_LEAST_QUEUED_LAUNCHES = 256
"""With fewer outstanding launches no known device's queue is full: a long launch among them waits for something else,
such as memory or the loading of a kernel's code."""
_COUNT_TOLERANCE = 16
"""Counts of outstanding launches are off by this much, because ends and returns are recorded microseconds apart."""
_LONG_NS = 20_000
_TIMES = 4
"""A launch takes 5 to 10 µs; a blocked one takes as long as the kernel that it waits for."""


def find_full_queue(events: Events, queue: Queue, call: Rows) -> Rows:
    """Which of the calls that launched the queue's work (`NONE` if unknown) were blocked by a full queue."""
    calls = distinct(call[call >= 0])
    if not calls.size:
        return calls
    length_ns, return_ns = events.duration_ns[calls], events.ends_of(calls)
    ended = np.searchsorted(np.sort(queue.end_ns), return_ns, side="right")
    outstanding = np.searchsorted(queue.launched_ns, events.start_ns[calls]) - ended
    is_long = length_ns > max(_LONG_NS, _TIMES * median(length_ns))
    depth = int(outstanding[is_long].max(initial=0))
    if depth < _LEAST_QUEUED_LAUNCHES:
        return calls[:0]
    full: Rows = calls[is_long & (outstanding >= depth - _COUNT_TOLERANCE)]
    return full
