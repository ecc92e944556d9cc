"""What a written recording holds, counted in its text.

Asking PyTorch's events one by one costs 4 µs each, and a recording that offers them takes a third longer to stop. The
text of a trace is read at 1 µs an event.
"""

from __future__ import annotations

import re
from typing import IO

from msgspec import Struct

from profkit.core.marks import PAUSE_MARK

ACCUMULATES = "torch::autograd::AccumulateGrad"
"""The operator that stores a leaf's gradient, or adds to it."""
STOP_MARK = f"{PAUSE_MARK}.stop"
"""The mark at the very end: operators that end after it were cut off."""
_EVENT = re.compile(rb'"ph": "[Xi]",\s*"cat": "(?!Trace")')
"""Kineto's own events have no category, or that one."""
_ADDS = f'"name": "{ACCUMULATES}"'.encode()
_TIMES = rb'"[^{}]*?"ts": (\d+)(?:\.(\d+))?,\s*"dur": (\d+)(?:\.(\d+))?'
_OWN = re.compile(rb'"name": "(profkit\.[^"]*)' + _TIMES)
_OPERATOR = re.compile(rb'"cat": "cpu_op",\s*"name": "(?!profkit\.)[^{}"]*' + _TIMES)
_DIGITS = 3
"""Kineto writes microseconds with so many decimals: whole nanoseconds."""


class Counted(Struct, frozen=True):
    """The number of the program's events, how many of their operators the stop cut off, and how often a gradient was
    stored or added to."""

    events: int = 0
    cut_off: int = 0
    gradients_added: int = 0


def count_events(trace: IO[bytes]) -> Counted:
    """Count what Kineto wrote. The file is read from its beginning, and holds no compressed text."""
    trace.seek(0)
    text = trace.read()
    own = [(_end_ns(*times), name.decode()) for name, *times in _OWN.findall(text)]
    stopped = max((end for end, name in own if name == STOP_MARK), default=0)
    # Kineto gives an event that never ended the exact end of the mark around it, or of the recording.
    ends = {end for end, _ in own}
    of_operators = (_end_ns(*found.groups(b"")) for found in _OPERATOR.finditer(text))
    cut_off = sum(end > stopped or end in ends for end in of_operators)
    return Counted(sum(1 for _ in _EVENT.finditer(text)) - len(own), cut_off, text.count(_ADDS))


def _end_ns(ts: bytes, ts_ns: bytes, dur: bytes, dur_ns: bytes) -> int:
    return int(ts + ts_ns.ljust(_DIGITS, b"0")) + int(dur + dur_ns.ljust(_DIGITS, b"0"))
