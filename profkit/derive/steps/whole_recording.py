"""The whole recording as one step, for when finding the steps broke."""

from __future__ import annotations

import numpy as np

from profkit.derive.steps.steps import Steps, whole_window
from profkit.trace.events import Trace


def take_whole(trace: Trace) -> Steps:
    """One measured step from the first to the last event; the main thread is the one whose events last longest."""
    start, end, source = whole_window(trace)
    on_device = np.array([lane.on_device for lane in trace.lanes], dtype=bool)
    taken_ns = np.bincount(trace.events.lane, trace.events.duration_ns, minlength=len(trace.lanes))
    lane = int(np.where(on_device, -1, taken_ns).argmax())
    yes, no = np.ones(1, dtype=bool), np.zeros(1, dtype=bool)
    return Steps(
        start_ns=start,
        end_ns=end,
        begun_ns=start,
        done_ns=end,
        located=no,
        measured=yes,
        source=source,
        main_lane=lane,
        pause_ns=np.zeros(1, dtype=np.int64),
    )
