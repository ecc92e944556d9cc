"""The whole recording as one step, for when finding the steps broke."""

from __future__ import annotations

import numpy as np

from profkit.derive.steps.steps import WHOLE_RECORDING, Steps
from profkit.trace.events import Category, Trace


def take_whole(trace: Trace) -> Steps:
    """One measured step from the first to the last event; the main thread is the one whose events last longest."""
    events = trace.events
    known = ~trace.in_categories(Category.OTHER, Category.PYTHON)  # Python frames were open before the start
    known = known if known.any() else np.ones(len(events), dtype=bool)
    start_ns, end_ns = int(events.start_ns[known].min()), int(events.ends_of(known).max())
    on_device = np.array([lane.on_device for lane in trace.lanes], dtype=bool)
    taken_ns = np.bincount(events.lane, events.duration_ns, minlength=len(trace.lanes))
    lane = int(np.where(on_device, -1, taken_ns).argmax())
    yes, no = np.ones(1, dtype=bool), np.zeros(1, dtype=bool)
    start, end = np.array([start_ns], dtype=np.int64), np.array([max(end_ns, start_ns + 1)], dtype=np.int64)
    return Steps(
        start_ns=start,
        end_ns=end,
        begun_ns=start,
        done_ns=end,
        located=no,
        measured=yes,
        source=WHOLE_RECORDING,
        main_lane=lane,
        pause_ns=np.zeros(1, dtype=np.int64),
    )
