"""Replaying the device's streams against a host timeline from which time has been taken out.

Between two host waits every stream is a max-plus recurrence, ``end[i] = max(launched[i], end[i-1]) + advance[i]``. With
``A`` the running sum of the advances, ``end[i] - A[i] = max(launched[i] - A[i-1], end[i-1] - A[i-1])``, a running
maximum: so a segment costs a few NumPy calls, and the only loop runs over the waits that really held the host up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.derive.intervals import Intervals
from profkit.trace.events import NONE, Bools, Events, Int64s, Rows


@dataclass(frozen=True, slots=True)
class Streams:
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
        start_ns, end_ns, wait_start_ns = events.start_ns[work], events.end_ns[work], events.start_ns[waits]
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
    for code in np.unique(stream):
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
    new_end = np.full(len(streams.work), np.iinfo(np.int64).min // 2, dtype=np.int64)
    stream_end = np.full(int(streams.stream.max(initial=-1)) + 1, streams.free_ns, dtype=np.int64)
    wait_start = streams.wait_start_ns - removed.covered_before(streams.wait_start_ns)
    wait_end = streams.wait_end_ns - removed.covered_before(streams.wait_end_ns)
    holding = np.flatnonzero(((streams.ended_by >= 0) & (wait_end > wait_start)) | ignored)
    shift = 0
    done = 0
    for wait in holding:
        upto = max(done, int(np.searchsorted(streams.launched_ns, streams.wait_end_ns[wait])))
        _run_segment(streams, slice(done, upto), launched, shift, advance_ns, new_end, stream_end)
        done = upto
        if ignored[wait]:
            shift -= int(wait_end[wait] - wait_start[wait])
            continue
        culprit = streams.ended_by[wait]
        rest = int(streams.wait_end_ns[wait] - streams.end_ns[culprit])
        earliest = int(wait_start[wait]) + shift
        shift = max(earliest, int(new_end[culprit]) + rest) - int(wait_end[wait])
    _run_segment(streams, slice(done, None), launched, shift, advance_ns, new_end, stream_end)
    host = host_end_ns - int(removed.covered_before(np.array([host_end_ns]))[0]) + shift
    return host, int(stream_end.max(initial=host))


def _run_segment(
    streams: Streams,
    part: slice,
    launched_ns: Int64s,
    shift_ns: int,
    advance_ns: Int64s,
    new_end_ns: Int64s,
    stream_end_ns: Int64s,
) -> None:
    """Run one stretch of launches on all streams, updating the ends in place."""
    lone = len(stream_end_ns) == 1  # the most frequent case by far, and then most segments are short
    stream = streams.stream[part]
    for code in (0,) * bool(len(stream)) if lone else np.unique(stream):
        rows = part if lone else np.flatnonzero(stream == code) + part.start
        total = np.cumsum(advance_ns[rows])
        launched = launched_ns[rows] + shift_ns
        launched[0] = max(int(launched[0]), int(stream_end_ns[code]))
        end = np.maximum.accumulate(launched - (total - advance_ns[rows])) + total
        new_end_ns[rows] = end - streams.early_ns[rows]
        stream_end_ns[code] = end[-1]
