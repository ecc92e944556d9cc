"""What a fix would give back: the recorded step is replayed without the fault.

Decisions, and why they were made:

- ``launch-bound`` judges the shortest possible step (``least_ns`` in ``step_time.py``). An estimate of the recording's
  cost may leave the step twice too long.
- The replay is the dependency graph (``streams.py``). Host threads that take turns are one timeline and each stream
  runs in order, joined by waits, full queues and streams that wait for each other. Without an edit it reproduces every
  recording.
- This file offers what nearly all rules need: edits, and what an edit takes from a row. It does not offer ``replay``
  and ``step_time``: others price a rule, and one that must price an edit itself imports that openly.
- "No fault found" has to be earned (``costliest.py``). Whatever takes a twentieth of the step must be seen to compute
  at a good part of the device's rate; else the report names it, with the most to gain, and says what is not known.
"""

from __future__ import annotations

from profkit.savings.cases import dtype_of
from profkit.savings.edits import Edit, combine, remove, shrink, shrink_spans, shrink_work, unblock
from profkit.savings.pricing import (
    call_ns,
    computing_ns,
    drop_operators,
    leave_out,
    memory_bytes_per_ns,
    run_in_both,
    scale_operators,
    scale_with_backward,
    share_with_backward,
    take_less,
    without_share,
)
from profkit.savings.trial import Trial

__all__ = [
    "Edit",
    "Trial",
    "call_ns",
    "combine",
    "computing_ns",
    "drop_operators",
    "dtype_of",
    "leave_out",
    "memory_bytes_per_ns",
    "remove",
    "run_in_both",
    "scale_operators",
    "scale_with_backward",
    "share_with_backward",
    "shrink",
    "shrink_spans",
    "shrink_work",
    "take_less",
    "unblock",
    "without_share",
]
