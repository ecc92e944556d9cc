"""Replaying the device's streams against a host timeline from which time has been taken out.

A piece of work starts when its launch has reached the device, its stream is free, and the work of another stream that
it waits for, if any, has ended::

    start[i] = max(launched[i] + latency[i], end[i-1] + gap[i], end[other] + delay[i])

A launch travels while earlier work runs, so its latency costs a busy stream nothing. The trace does not say which of
the three held a piece up. `Queue.of` tells by the times, and gives that one exactly the recorded value, so that without
an edit every piece starts when it did. The other two get the usual latency and gap of the trace: an edit may make one
of them the latest. Daydream (Zhu et al., ATC 2020) and Lumos (MLSys 2025) replay such graphs, too.

A loop over all pieces would be slow in Python. But what happens only depends on other streams or on the host at the
*places* where the host waits for work, or one stream for another. In the segment between two places each stream follows
``end[i] = max(ready[i], end[i-1] + advance[i])``: a piece ends when it would on a free stream, or that much after the
one before. With ``A`` the running sum of the advances this is ``end[i] - A[i] = max(ready[i] - A[i], end[i-1] -
A[i-1])``, a running maximum, which NumPy finds for all segments at once. At each place the host's delay may change,
which moves all later launches alike. So the only loop runs over the places, in plain integers.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.crossing import greatest
from profkit.derive.timeline.intervals import Intervals
from profkit.derive.timeline.thinned import Removed
from profkit.trace.events import NONE, Bools, Events, Int64s, Rows
from profkit.trace.statistics import distinct, median

_LATENCY_NS = 10_000
"""The time from a launch to the start on an idle device, if no launch of the trace shows it: 6.5 µs on an H100, 11.6 on
an A100, 16 on a 2080 Ti, 18 on an MI300X."""
GAP_NS = 1_500
"""The gap between two queued kernels, if the trace shows none: 1 to 2 µs on all of these."""
_QUEUED_NS = 50_000
"""Work launched this long before its stream was free was queued; this is far more than any latency."""
_TOLERATED_NS = 5_000
"""Starts of queued work differ by this much for no reason that a trace shows."""
CROSSING_NS, CROSSING_ON_AMD_NS = 5_000, 25_000
"""The longest time from the end of work to the start of what waits for it in another stream. It takes 1 to 4 µs on
NVIDIA's GPUs and 9 to 20 µs on an MI300X, and in traces of either nothing lies between that and some 90 µs."""
_MOST_LATE_NS = 20_000
"""The longest time that a wait takes to return after the work is done."""


class Queue(Struct, frozen=True, dict=True):
    """The device's work in launch order, as columns: when it was launched, started and ended, and on which stream.

    ``latency_ns`` is the time from the launch until it has reached the device. ``gap_ns`` is the least time between the
    end before it on its stream and its start (negative if pieces overlap). ``waits_for`` is the work of another stream
    that it waits for, and ``delay_ns`` the time from the end of that to its start; `NONE` for most.
    """

    work: Rows
    launched_ns: Int64s
    start_ns: Int64s
    end_ns: Int64s
    stream: Int64s
    latency_ns: Int64s
    gap_ns: Int64s
    waits_for: Rows
    delay_ns: Int64s

    @property
    def duration_ns(self) -> Int64s:
        return self.end_ns - self.start_ns

    @cached_property
    def by_stream(self) -> tuple[Rows, ...]:
        """The work of each stream. Every replay needs it."""
        return tuple(np.flatnonzero(self.stream == code) for code in range(int(self.stream.max(initial=-1)) + 1))

    @classmethod
    def of(cls, events: Events, work: Rows, launched_ns: Int64s, free_ns: int, crossing_ns: int = CROSSING_NS) -> Queue:
        """Tell by the times what held each piece of recorded work up. Before ``free_ns`` no stream could begin, and a
        stream goes on at most ``crossing_ns`` after the work of another that it waited for."""
        start_ns, end_ns = events.start_ns[work], events.ends_of(work)
        stream = np.unique(events.lane[work], return_inverse=True)[1].astype(np.int64)
        free = _previous_end(end_ns, stream, free_ns)
        lateness, after = start_ns - launched_ns, start_ns - free
        idle, queued = free <= launched_ns, launched_ns + _QUEUED_NS <= free
        typical_latency = int(median(lateness[idle])) if idle.any() else _LATENCY_NS
        typical_gap = max(int(median(after[queued])), 0) if queued.any() else GAP_NS
        latency = np.minimum(lateness, typical_latency)
        gap = np.minimum(after, typical_gap)
        expected = np.maximum(launched_ns + latency, free + gap)
        delayed = np.flatnonzero(start_ns > expected + _TOLERATED_NS)
        waits_for = np.full(len(work), NONE, dtype=np.int64)
        waits_for[delayed] = _ended_just_before(delayed, start_ns, end_ns, stream, crossing_ns)
        delay = np.where(waits_for >= 0, start_ns - end_ns[waits_for], 0)
        alone = waits_for < 0
        launch_bound = launched_ns + latency >= free + gap
        latency = np.where(alone & launch_bound, lateness, latency)
        gap = np.where(alone & ~launch_bound, after, gap)
        return cls(work, launched_ns, start_ns, end_ns, stream, latency, gap, waits_for, delay)


class HostWaits(Struct, frozen=True):
    """The host's waits, in time order: from when until when, and for the work at which place of the queue (`NONE` if
    there was none before). That work may have ended before the host came: then the call took its own time, and would
    have waited if the host had come earlier."""

    rows: Rows
    start_ns: Int64s
    end_ns: Int64s
    ended_by: Rows


class Disturbed(Struct, frozen=True):
    """How much time before each launch, before the host's end, and before the begin and the end of each wait lies in
    the intervals of `Removed.thinned`, which are the same for every edit."""

    launched_ns: Int64s
    host_end_ns: Int64s
    wait_start_ns: Int64s
    wait_end_ns: Int64s

    @classmethod
    def of(cls, where: Intervals, queue: Queue, waits: HostWaits, host_end_ns: int) -> Disturbed:
        times_ns = queue.launched_ns, np.array([host_end_ns]), waits.start_ns, waits.end_ns
        return cls(*map(where.covered_before, times_ns))


class Edited(Struct, frozen=True):
    """What an edit leaves: the time taken out of the host's timeline, how long each piece of work takes, which pieces
    are gone, and which waits are dropped."""

    removed: Removed
    disturbed: Disturbed
    duration_ns: Int64s
    gone: Bools
    ignored: Bools


class Outcome(Struct, frozen=True):
    """When the host and the device are done, and how long the host waited for the device."""

    host_end_ns: int
    device_end_ns: int
    waited_ns: int


def _previous_end(end_ns: Int64s, stream: Int64s, free_ns: int) -> Int64s:
    """For each piece of work the latest end before it on its stream; ``free_ns`` for the first."""
    previous = np.full(len(end_ns), free_ns, dtype=np.int64)
    for code in range(int(stream.max(initial=-1)) + 1):
        rows = np.flatnonzero(stream == code)
        previous[rows[1:]] = np.maximum.accumulate(end_ns[rows])[:-1].clip(min=free_ns)
    return previous


def _ended_just_before(places: Rows, start_ns: Int64s, end_ns: Int64s, stream: Int64s, crossing_ns: int) -> Rows:
    """For the work at these places: the work of another stream, launched before it, that ended just before it started;
    `NONE` if there is none."""
    found = np.full(len(places), NONE, dtype=np.int64)
    latest = start_ns[places] - crossing_ns
    for code in distinct(stream).tolist() if len(places) else ():
        rows = np.flatnonzero(stream == code)
        rows = rows[np.argsort(end_ns[rows], kind="stable")]
        at = np.searchsorted(end_ns[rows], start_ns[places], side="right") - 1
        candidate = rows[at.clip(min=0)]
        better = (at >= 0) & (stream[places] != code) & (end_ns[candidate] >= latest) & (candidate < places)
        found[better], latest[better] = candidate[better], end_ns[candidate[better]]
    return found


def find_waits_for(queue: Queue, start_ns: Int64s, end_ns: Int64s, own: Rows) -> Rows:
    """The work that each wait was for. If the wait is for a copy of its ``own``, that copy; else, of the work launched
    before the wait, the piece that ended last by its end; `NONE` if nothing did."""
    found = np.full(len(start_ns), NONE, dtype=np.int64)
    if not len(queue.end_ns):
        return found
    latest = np.full(len(start_ns), np.iinfo(np.int64).min)
    for code in distinct(queue.stream).tolist():
        rows = np.flatnonzero(queue.stream == code)
        launched = np.searchsorted(queue.launched_ns[rows], start_ns)
        reached = np.maximum.accumulate(queue.end_ns[rows])
        at = np.minimum(np.searchsorted(reached, end_ns, side="right"), launched) - 1
        candidate = rows[at.clip(min=0)]
        better = (at >= 0) & (queue.end_ns[candidate] > latest)
        found[better], latest[better] = candidate[better], queue.end_ns[candidate[better]]
    own_end_ns = queue.end_ns[own.clip(min=0)]
    is_own = (own >= 0) & (own_end_ns > start_ns) & (own_end_ns <= end_ns + _MOST_LATE_NS)
    return np.where(is_own, own, found)


def replay_streams(queue: Queue, waits: HostWaits, edited: Edited, host_end_ns: int, free_ns: int) -> Outcome:
    """Run the host and the device with the edit applied. A wait inside the removed time holds nothing up."""
    gone_by, known = edited.removed.covered_before, edited.disturbed
    start_ns = waits.start_ns - gone_by(waits.start_ns, known.wait_start_ns)
    end_ns = waits.end_ns - gone_by(waits.end_ns, known.wait_end_ns)
    waiting = np.flatnonzero(((waits.ended_by >= 0) & (end_ns > start_ns)) | edited.ignored)
    launched_ns = queue.launched_ns - gone_by(queue.launched_ns, known.launched_ns)
    places = _Places(queue, edited, launched_ns, waits, waiting, free_ns)
    held = np.append(queue.end_ns, 0)[waits.ended_by[waiting]] > waits.start_ns[waiting]
    ready_ns = np.where(held, start_ns[waiting], end_ns[waiting])  # a call that waited for nothing took its own time
    spans = _Spans(start_ns[waiting].tolist(), ready_ns.tolist(), end_ns[waiting].tolist())
    shift, waited_ns = places.run_all(spans, edited.ignored[waiting].tolist())
    host_ns = host_end_ns - int(gone_by(np.array([host_end_ns]), known.host_end_ns)[0]) + shift
    return Outcome(host_ns, max(places.last_ends_ns(), default=host_ns), waited_ns)


class _Spans(Struct, frozen=True):
    """For each wait: when the host comes to it, when it would go on if nothing held it up, and when it went on in the
    recording."""

    start_ns: list[int]
    ready_ns: list[int]
    end_ns: list[int]


class _Pace(Struct, frozen=True):
    """For each piece of work: when it would end on a free stream (``ready_ns``), and how far it moves its stream's end
    (``moved_ns``, negative if pieces overlap: it ends that long before the end of the one before)."""

    ready_ns: Int64s
    moved_ns: Int64s

    @classmethod
    def of(cls, queue: Queue, edited: Edited, launched_ns: Int64s) -> _Pace:
        moved_ns, needed_ns = queue.gap_ns + edited.duration_ns, queue.latency_ns + edited.duration_ns
        moved_ns[edited.gone] = needed_ns[edited.gone] = 0
        return cls(launched_ns + needed_ns, moved_ns)


class _Places:
    """The places in launch order where the host waits or a stream waits for another, and the segments between them.

    At each place somebody waits for one piece of work, the ``culprit``. It ends at ``max(reached, begun + shift) +
    after``: ``reached`` is its stream's running maximum before the culprit's segment, ``begun`` how far the launches of
    the segment raise it up to the culprit, ``shift`` the host's delay in that segment, and ``after`` turns the maximum
    back into a time. Per stream ``highest`` is how far the launches of each whole segment raise the maximum.
    """

    def __init__(
        self, queue: Queue, edited: Edited, launched_ns: Int64s, waits: HostWaits, holding: Rows, free_ns: int
    ) -> None:
        pace = _Pace.of(queue, edited, launched_ns)
        waiting = np.flatnonzero((queue.waits_for >= 0) & ~edited.gone)
        waited_for = np.searchsorted(queue.launched_ns, waits.end_ns[holding])
        position = np.concatenate([np.maximum.accumulate(waited_for), waiting])
        culprit = np.concatenate([waits.ended_by[holding], queue.waits_for[waiting]])
        ended_ns = np.append(queue.end_ns, 0)[waits.ended_by[holding]]  # the 0 is for dropped waits without work
        late_ns = np.where(ended_ns > waits.start_ns[holding], waits.end_ns[holding] - ended_ns, 0)
        late_ns = np.concatenate([late_ns, queue.delay_ns[waiting]])
        order = np.argsort(position, kind="stable")  # at the same place, the host's wait comes first
        self._is_wait = (order < len(holding)).tolist()
        culprit, late_ns, position = culprit[order], late_ns[order], position[order]
        bounds = np.concatenate([[0], position, [len(queue.work)]])
        culprit_at = culprit.clip(min=0)
        segment = np.searchsorted(bounds, culprit_at, side="right") - 1
        begun, after = np.zeros(len(culprit), dtype=np.int64), np.zeros(len(culprit), dtype=np.int64)
        target = np.zeros(len(culprit), dtype=np.int64)
        target_row = np.where(order >= len(holding), position, NONE)
        self._highest: list[list[int]] = []
        self._last_total: list[int] = []
        for code, rows in enumerate(queue.by_stream):
            total = np.cumsum(np.maximum(pace.moved_ns[rows], 0))
            before = pace.ready_ns[rows] - total
            inside = np.searchsorted(rows, bounds)
            self._highest.append(greatest(before, inside[:-1], inside[1:]).tolist())
            self._last_total.append(int(total[-1]))
            mine = np.flatnonzero((culprit >= 0) & (queue.stream[culprit_at] == code))
            place = np.searchsorted(rows, culprit[mine])
            begun[mine] = greatest(before, inside[segment[mine]], place + 1)
            after[mine] = total[place] + np.minimum(pace.moved_ns[culprit[mine]], 0) + late_ns[mine]
            aimed = np.flatnonzero((target_row >= 0) & (queue.stream[target_row.clip(min=0)] == code))
            row = target_row[aimed]
            target[aimed] = edited.duration_ns[row] - total[np.searchsorted(rows, row)]
        self._target = target.tolist()
        self._target_stream = _codes(queue, target_row.clip(min=0))
        columns = (_codes(queue, culprit_at), segment.tolist(), begun.tolist(), after.tolist())
        self._culprits: list[tuple[int, int, int, int]] = list(zip(*columns, strict=True))
        self._reached = [[free_ns] for _ in self._highest]
        self._shifts: list[int] = []

    def run_all(self, spans: _Spans, skipped: list[bool]) -> tuple[int, int]:
        """Run segment after segment. Each wait that takes longer or shorter than recorded changes the ``shift``, the
        delay of all that the host does afterwards. Returns the last shift, and how long the host waited.

        This is the one loop of the replay. A call of `max` would take as long as the rest of a round.
        """
        streams, shifts, shift, waited = list(zip(self._reached, self._highest, strict=True)), self._shifts, 0, 0
        waits = iter(zip(spans.start_ns, spans.ready_ns, spans.end_ns, skipped, strict=True))
        for i, (is_wait, (stream, segment, begun, after)) in enumerate(zip(self._is_wait, self._culprits, strict=True)):
            shifts.append(shift)
            for reached, highest in streams:
                latest, raised = reached[i], highest[i] + shift
                reached.append(raised if raised > latest else latest)
            if is_wait:
                start, ready, end, is_skipped = next(waits)
                if is_skipped:
                    shift -= end - start
                    continue
            latest, raised = self._reached[stream][segment], begun + shifts[segment]
            ended = (raised if raised > latest else latest) + after
            if not is_wait:
                waiting = self._reached[self._target_stream[i]]
                waiting[-1] = max(waiting[-1], ended + self._target[i])
            elif ended > ready + shift:
                waited += ended - ready - shift
                shift = ended - end
            else:
                shift += ready - end
        for reached, highest in streams:
            reached.append(max(reached[-1], highest[-1] + shift))
        return shift, waited

    def last_ends_ns(self) -> list[int]:
        return [reached[-1] + total for reached, total in zip(self._reached, self._last_total, strict=True)]


def _codes(queue: Queue, work: Rows) -> list[int]:
    """The stream of each piece of work; zeros if nothing ran."""
    return queue.stream[work].tolist() if len(queue.stream) else [0] * len(work)
