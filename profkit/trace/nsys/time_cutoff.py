"""How much of the recorded time is kept of an export that is larger than memory allows: what begins before a moment.

Each table holds its events in an order of its own, so that its first rows are no window of time.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.errors import UnreadableInput
from profkit.trace.kinds import BOUNDARIES
from profkit.trace.limits import describe_partial, most_events
from profkit.trace.nsys.parts import TABLES, Part
from profkit.trace.nsys.tables import MISSING, Tables
from profkit.units import format_count, format_time

_LEAST_ROW_BYTES = 8
"""Of the file: a byte and more for each of the columns that are read."""


class TimeCutoff(Struct, frozen=True):
    """``at_ns`` is the moment, on the file's own clock, from which on nothing is kept, of ``events`` in all."""

    at_ns: int
    events: int
    limit_bytes: int

    def cut(self, part: Part) -> Part:
        """Ranges that reach over the moment end there; marks whose end would then end a step that is not whole go."""
        cut_off = part.end_ns > self.at_ns
        ends_a_step = np.array([name.startswith(BOUNDARIES) for _, name in part.kinds], dtype=bool)
        kept = part.select(~(cut_off & ends_a_step[part.kind]))
        return kept.until(self.at_ns)

    def describe(self, kept: int, length_ns: int) -> str:
        """What is missing, in one sentence."""
        events = f"{kept:,} of {format_count(self.events, 'event')}"
        return describe_partial(f"the first {format_time(length_ns)} ({events})", self.limit_bytes)


def find_cutoff(tables: Tables, limit_bytes: int) -> TimeCutoff | None:
    """None where all events fit. Raises `UnreadableInput` where too many begin at once."""
    most = most_events(limit_bytes)
    if tables.path.stat().st_size <= most * _LEAST_ROW_BYTES:
        return None
    starts = [tables.read(table, ("start",))["start"] for table in TABLES if table in tables]
    start_ns = np.concatenate(starts) if starts else np.zeros(0, dtype=np.int64)
    start_ns = start_ns[start_ns != MISSING]
    if len(start_ns) <= most:
        return None
    at_ns = int(np.partition(start_ns, most)[most])
    if at_ns <= start_ns.min():
        raise UnreadableInput(tables.path, "holds more at one moment than the memory limit allows")
    return TimeCutoff(at_ns, len(start_ns), limit_bytes)
