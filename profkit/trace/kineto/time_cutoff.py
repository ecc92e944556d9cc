"""The cutoff of a trace that memory cannot hold: events that begin after it are dropped.

A file holds one thread or stream after another, so its first events are no window of time. At first nothing is cut.
Whenever the events held outgrow their bound, it moves to an earlier moment. In the end all events before the last
cutoff are held, in whatever order the file has them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from profkit.core.units import format_count, format_time
from profkit.trace.events import Bools, Int64s
from profkit.trace.kinds import BOUNDARIES
from profkit.trace.kineto.chunks import Chunk, is_step_mark
from profkit.trace.kineto.convert import Part
from profkit.trace.limits import describe_partial

_KEPT = 0.85
"""The share of what fits that stays after a cut: less would waste memory, more would mean more cuts."""
Kind = tuple[str, str, Any, Any]
"""Category, name, process and thread."""


class TimeCutoff:
    """``at_ns`` is the moment, on the file's own clock, from which on nothing is kept; None while everything is."""

    def __init__(self) -> None:
        self.at_ns: int | None = None
        self.dropped = 0
        self._marks_dropped: Counter[tuple[Any, Any]] = Counter()

    def note_dropped(self, chunk: Chunk) -> None:
        """Count the events of a chunk that begin after the cutoff."""
        self.dropped += chunk.dropped
        self._marks_dropped += chunk.marks_dropped

    def move_earlier(self, share: float, parts: list[dict[str, Part]], kinds: list[Kind]) -> None:
        """Set the cutoff so that slightly less than this share of the events remains, and remove the others."""
        starts: Int64s = np.concatenate([_known(part["start_ns"]) for part in parts])
        nth = int(_KEPT * share * len(starts))
        self.at_ns = max(int(np.partition(starts, nth)[nth]), int(starts.min()) + 1)
        del starts
        marks = np.array([is_step_mark(category, name) for category, name, _, _ in kinds], dtype=bool)
        for part in parts:
            kept = _known(part["start_ns"]) < self.at_ns
            if kept.all():
                continue
            kinds_dropped = _known(part["kind"])[~kept]
            self.dropped += len(kinds_dropped)
            for code in kinds_dropped[marks[kinds_dropped]].tolist():
                self._marks_dropped[kinds[code][2:]] += 1
            for key, column in part.items():
                part[key] = None if column is None else column[kept]
        parts[:] = [part for part in parts if len(_known(part["start_ns"]))]

    def cut(self, start_ns: Int64s, duration_ns: Int64s, kind: Int64s, kinds: list[Kind]) -> tuple[Int64s, Bools]:
        """The durations of the held events, which end at the cutoff at the latest, and the marks that this spoils."""
        if self.at_ns is None:
            return duration_ns, np.zeros(len(start_ns), dtype=bool)
        boundary = np.array([name.startswith(BOUNDARIES) for _, name, _, _ in kinds], dtype=bool)
        left_ns = self.at_ns - start_ns
        unusable = (duration_ns > left_ns) & boundary[kind]
        for code in kind[unusable].tolist():
            self.dropped += 1
            category, name, *thread = kinds[code]
            self._marks_dropped[tuple(thread)] += is_step_mark(category, name)
        return np.minimum(duration_ns, left_ns), unusable

    def describe(self, limit_bytes: int, held: int, length_ns: int, marks: Counter[tuple[Any, Any]]) -> list[str]:
        """A sentence about what is missing, if anything is. ``marks`` counts the whole steps that are kept, by
        thread."""
        if self.at_ns is None:
            return []
        events = f"{held:,} of {format_count(held + self.dropped, 'event')}"
        threads = {*marks, *self._marks_dropped}
        steps = max(((marks[key], self._marks_dropped[key]) for key in threads), key=sum, default=(0, 0))
        if steps[0]:
            kept = f"the first {steps[0]:,} of {format_count(sum(steps), 'step')} ({events})"
        else:
            kept = f"the first {format_time(length_ns)} ({events})"
        return [describe_partial(kept, limit_bytes)]


def _known(column: Part) -> np.ndarray[Any, Any]:
    assert column is not None  # every event has a time and a kind
    return column
