"""Replaying the device's streams against a host timeline from which time has been taken out.

Between two host waits every stream is a max-plus recurrence, ``end[i] = max(launched[i], end[i-1]) + advance[i]``. With
``A`` the running sum of the advances, ``end[i] - A[i] = max(launched[i] - A[i-1], end[i-1] - A[i-1])``, a running
maximum. How far it rises within a segment is known beforehand, so the only loop runs over the waits that really held
the host up, in plain integers.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.crossing import greatest
from profkit.derive.intervals import Intervals
from profkit.trace.events import NONE, Bools, Events, Int64s, Rows
from profkit.trace.values import distinct


class Streams(Struct, frozen=True):
    """Device work in launch order, and the host's waits in time order.

    ``advance_ns`` is how far each piece moved its stream's end beyond its launch and the previous end: its length, and
    what delayed its start; ``early_ns`` is how long before the stream's reach it ended, where pieces overlap;
    ``ended_by`` is the work each wait ended with, `NONE` for waits that held nobody up; before ``free_ns`` no stream
    could begin.
    """

    work: Rows
    launched_ns: Int64s
    start_ns: Int64s
    end_ns: Int64s
    stream: Int64s
    advance_ns: Int64s
    early_ns: Int64s
    waits: Rows
    wait_start_ns: Int64s
    wait_end_ns: Int64s
    ended_by: Rows
    free_ns: int

    @property
    def last_end_ns(self) -> int:
        return int(self.end_ns.max(initial=np.iinfo(np.int64).min))

    @classmethod
    def of(
        cls, events: Events, work: Rows, launched_ns: Int64s, waits: Rows, wait_end_ns: Int64s, free_ns: int
    ) -> Streams:
        """Derive the advances and what each wait waited for from recorded times."""
        start_ns, end_ns, wait_start_ns = events.start_ns[work], events.ends_of(work), events.start_ns[waits]
        stream = np.unique(events.lane[work], return_inverse=True)[1].astype(np.int64)
        advance = end_ns - np.maximum(launched_ns, _previous_end(end_ns, stream, free_ns))
        ended_by = _ended_by(launched_ns, end_ns, wait_start_ns, wait_end_ns)
        return cls(work, launched_ns, start_ns, end_ns, stream, advance.clip(min=0), (-advance).clip(min=0),
                   waits, wait_start_ns, wait_end_ns, ended_by, free_ns)  # fmt: skip


def monotonic_launches(
    launched_ns: Int64s, start_ns: Int64s, stream: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> Int64s:
    """Launch times that rise with the start times of each stream.

    A stream runs in order, so work that started before another was launched no later, whatever ids and clocks say.
    """
    fixed = launched_ns.copy()
    for code in distinct(stream):
        rows = np.flatnonzero(stream == code)
        rows = rows[np.argsort(start_ns[rows], kind="stable")]
        fixed[rows] = np.minimum.accumulate(fixed[rows][::-1])[::-1]
    return fixed


def _previous_end(end_ns: Int64s, stream: Int64s, free_ns: int) -> Int64s:
    """For each piece of work the latest end before it in its stream, ``free_ns`` for the first."""
    previous = np.full(len(end_ns), free_ns, dtype=np.int64)
    for code in range(int(stream.max(initial=-1)) + 1):
        rows = np.flatnonzero(stream == code)
        previous[rows[1:]] = np.maximum.accumulate(end_ns[rows])[:-1].clip(min=free_ns)
    return previous


def _ended_by(launched_ns: Int64s, end_ns: Int64s, wait_start_ns: Int64s, wait_end_ns: Int64s) -> Rows:
    """The work that each wait ended with: the last to end during the wait among what was launched before its end."""
    found = np.full(len(wait_start_ns), NONE, dtype=np.int64)
    if not len(end_ns):
        return found
    by_end = np.argsort(end_ns, kind="stable")
    at = np.searchsorted(end_ns[by_end], wait_end_ns, side="right") - 1
    last = by_end[at.clip(min=0)]
    held = (at >= 0) & (end_ns[last] > wait_start_ns) & (launched_ns[last] < wait_end_ns)
    found[held] = last[held]
    return found


def replay_streams(
    streams: Streams, removed: Intervals, advance_ns: Int64s, ignored: Bools, host_end_ns: int
) -> tuple[int, int]:
    """End of the host's and of the device's part with the edit applied. A wait in ``removed`` holds nobody up."""
    launched = streams.launched_ns - removed.covered_before(streams.launched_ns)
    wait_start = streams.wait_start_ns - removed.covered_before(streams.wait_start_ns)
    wait_end = streams.wait_end_ns - removed.covered_before(streams.wait_end_ns)
    holding = np.flatnonzero(((streams.ended_by >= 0) & (wait_end > wait_start)) | ignored)
    segments = _Segments(streams, launched, advance_ns, holding)
    shift = segments.run_all(wait_start[holding].tolist(), wait_end[holding].tolist(), ignored[holding].tolist())
    host = host_end_ns - int(removed.covered_before(np.array([host_end_ns]))[0]) + shift
    return host, max([host, *segments.last_ends_ns()])


class _Segments:
    """The stretches of launches between one holding wait and the next, on each stream.

    Per stream ``highest`` is the running maximum's own part, the greatest ``launched - A`` of each segment, and
    ``reached`` what the maximum was before each segment that was run.
    """

    def __init__(self, streams: Streams, launched_ns: Int64s, advance_ns: Int64s, holding: Rows) -> None:
        launched_before = np.searchsorted(streams.launched_ns, streams.wait_end_ns[holding])
        bounds = np.concatenate([[0], np.maximum.accumulate(launched_before), [len(streams.work)]])
        culprit = streams.ended_by[holding]
        culprit_at = culprit.clip(min=0)
        segment = np.searchsorted(bounds, culprit_at, side="right") - 1
        begun = np.zeros(len(holding), dtype=np.int64)
        after = np.zeros(len(holding), dtype=np.int64)
        self.highest: list[list[int]] = []
        self._last_total: list[int] = []
        for code in range(int(streams.stream.max(initial=-1)) + 1):
            rows = np.flatnonzero(streams.stream == code)
            total = np.cumsum(advance_ns[rows])
            before = launched_ns[rows] - (total - advance_ns[rows])
            inside = np.searchsorted(rows, bounds)
            self.highest.append(greatest(before, inside[:-1], inside[1:]).tolist())
            self._last_total.append(int(total[-1]))
            mine = np.flatnonzero((culprit >= 0) & (streams.stream[culprit_at] == code)) if len(rows) else rows
            place = np.searchsorted(rows, culprit[mine])
            begun[mine] = greatest(before, inside[segment[mine]], place + 1)
            late = streams.wait_end_ns[holding[mine]] - streams.end_ns[culprit[mine]]
            after[mine] = total[place] - streams.early_ns[culprit[mine]] + late
        columns = (_codes(streams, culprit_at), segment.tolist(), begun.tolist(), after.tolist())
        self._culprits: list[tuple[int, int, int, int]] = list(zip(*columns, strict=True))
        self._reached = [[streams.free_ns] for _ in self.highest]
        self._shifts: list[int] = []

    def run_all(self, wait_start_ns: list[int], wait_end_ns: list[int], skipped: list[bool]) -> int:
        """Run each segment, with the host later by what the waits before it took more; returns that after the last.

        What a wait ended with has ended by what its stream had reached before, or by what was launched in between.
        """
        streams, shifts, shift = list(zip(self._reached, self.highest, strict=True)), self._shifts, 0
        waits = zip(wait_start_ns, wait_end_ns, skipped, self._culprits, strict=True)
        for i, (start, end, is_skipped, (stream, segment, begun, after)) in enumerate(waits):
            shifts.append(shift)
            for reached, highest in streams:
                latest, raised = reached[i], highest[i] + shift
                reached.append(raised if raised > latest else latest)
            if is_skipped:
                shift -= end - start
            else:
                freed = max(self._reached[stream][segment], begun + shifts[segment]) + after
                shift = max(start + shift, freed) - end
        for reached, highest in streams:
            reached.append(max(reached[-1], highest[-1] + shift))
        return shift

    def last_ends_ns(self) -> list[int]:
        return [reached[-1] + total for reached, total in zip(self._reached, self._last_total, strict=True)]


def _codes(streams: Streams, work: Rows) -> list[int]:
    """The stream of each piece of work; of none where nothing ran."""
    return streams.stream[work].tolist() if len(streams.stream) else [0] * len(work)
