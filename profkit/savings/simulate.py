"""The replay: how long the measured steps would take with an edit applied.

The host is one timeline: its threads wait for each other (the main thread for the autograd thread), so time taken out
of one is taken out of all. Each stream runs its work in order. Work starts when it has been launched and its stream is
free, plus the delay that was seen on top of that; a wait ends when the work that it ended with in the recording has
ended. What was launched before the window stays as it was. Without an edit this reproduces the recording exactly; with
one, times move by what the dependencies allow, so a wait hidden behind a busy device is worth nothing.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.intervals import Intervals, union
from profkit.findings import Saving
from profkit.savings.edits import Edit
from profkit.savings.hiccups import hiccups_ns
from profkit.savings.streams import Streams, monotonic_launches, replay_streams
from profkit.trace.events import Bools, Category, Int64s
from profkit.trace.values import among, median


class Replay(Struct, frozen=True):
    """Length of the measured window as recorded and with the edit, in nanoseconds."""

    recorded_ns: int
    edited_ns: int

    @property
    def fraction(self) -> float:
        """Share of the window that the edit gives back, never negative."""
        return max(0.0, (self.recorded_ns - self.edited_ns) / max(self.recorded_ns, 1))


def predict_saving(facts: Facts, edit: Edit, size_bytes: int = 0) -> Saving:
    """What an edit gives back per step, with a range from the edit's uncertainty and the spread of the steps.

    The time is on the scale of the unprofiled steps where those were measured.
    """
    fraction = replay(facts, edit).fraction
    return _saving_of(facts, (fraction, fraction, fraction), edit.uncertainty, size_bytes)


def measured_saving(facts: Facts, edits: tuple[Edit, Edit, Edit], size_bytes: int = 0) -> Saving:
    """What an edit gives back whose kept times were measured: for their median, and for the ends of their range, of
    which the first keeps least. The spread of the steps widens it; no model's uncertainty is left."""
    high, middle, low = (replay(facts, edit).fraction for edit in edits)
    return _saving_of(facts, (low, middle, high), 0.0, size_bytes)


def _saving_of(facts: Facts, fractions: tuple[float, float, float], uncertainty: float, size_bytes: int) -> Saving:
    """The least, likely and most of the step that comes free, widened by the uncertainty and the steps' spread."""
    low, middle, high = fractions
    margin = min(1.0, uncertainty + _spread_of_steps(facts))
    return Saving(
        time_ns_per_step=int(middle * step_time_ns(facts)),
        fraction=round(middle, 6),
        low=round(low * (1 - margin), 6),
        high=round(min(1.0, high * (1 + margin)), 6),
        bytes=size_bytes,
    )


def _spread_of_steps(facts: Facts) -> float:
    """The median absolute deviation of the steps' durations from their median, as a share of it."""
    durations = facts.steps.duration_ns[facts.steps.measured]
    return float(median(np.abs(durations - median(durations))) / max(median(durations), 1))


def step_time_ns(facts: Facts) -> int:
    """The step time that savings are stated on: unprofiled where measured, else as recorded."""
    reference = facts.run.reference_step_ns
    return int(median(reference)) if reference else facts.steps.median_ns


def replay(facts: Facts, edit: Edit) -> Replay:
    """Replay the measured window without what the recording added to it, and then with ``edit`` applied too."""
    end_ns = facts.steps.window_ns[1]
    streams = facts.once(_streams_in)
    edited_ns = _replayed_ns(facts, edit, streams)
    if len(facts.overhead.start_ns):
        return Replay(facts.once(_unedited_ns), edited_ns)
    return Replay(max(end_ns, streams.last_end_ns) - _origin(facts, streams), edited_ns)


def _unedited_ns(facts: Facts) -> int:
    return _replayed_ns(facts, Edit(), facts.once(_streams_in))


def _replayed_ns(facts: Facts, edit: Edit, streams: Streams) -> int:
    """Length of the measured window with the edit applied and without what the recording added."""
    start_ns, end_ns = facts.steps.window_ns
    edited, added = _removed_host_time(facts, edit), facts.overhead
    taken = union(np.concatenate([edited.start_ns, added.start_ns]), np.concatenate([edited.end_ns, added.end_ns]))
    removed = taken.minus(facts.once(_outside_measured)).clipped_to(start_ns, end_ns)
    advance_ns = _edited_advance(facts, edit, streams, start_ns)
    ends_ns = replay_streams(streams, removed, advance_ns, _ignored_waits(facts, edit, streams), end_ns)
    return max(0, max(ends_ns) - _origin(facts, streams)) + hiccups_ns(facts, edit, edited)


def _origin(facts: Facts, streams: Streams) -> int:
    start_ns, end_ns = facts.steps.window_ns
    return start_ns + facts.once(_outside_measured).total_ns + _standing_lag(streams, start_ns, end_ns)


def _removed_host_time(facts: Facts, edit: Edit) -> Intervals:
    """What the edit takes out of the host's timeline: the tail of each shortened event and span."""
    events, tree = facts.trace.events, facts.tree
    serial = facts.serial_lanes[events.lane[edit.rows]]
    start, end, kept = events.start_ns[edit.rows][serial], tree.end_ns[edit.rows][serial], edit.kept_ns[serial]
    start = np.concatenate([start, edit.span_start_ns])
    end = np.concatenate([end, edit.span_end_ns])
    kept = np.concatenate([kept, edit.span_kept_ns])
    added = facts.overhead  # what is kept is time of the program, so that much must lie outside of it
    until = added.when_uncovered(start - added.covered_before(start) + kept)
    return union(np.minimum(np.where(kept > 0, until, start), end), end)


def _outside_measured(facts: Facts) -> Intervals:
    """What of the window belongs to no measured step: profkit's pauses and steps that are left out."""
    steps, events, (start_ns, end_ns) = facts.steps, facts.trace.events, facts.steps.window_ns
    left_out = union(steps.start_ns[steps.measured], steps.end_ns[steps.measured]).gaps(start_ns, end_ns)
    pauses = np.flatnonzero((events.category == Category.PAUSE) & (events.lane == steps.main_lane))
    start = np.concatenate([left_out.start_ns, events.start_ns[pauses]])
    end = np.concatenate([left_out.end_ns, events.ends_of(pauses)])
    return union(start, end).clipped_to(start_ns, end_ns)


def _streams_in(facts: Facts) -> Streams:
    """The device's work that was launched in the window, or before it and still kept the device busy then; and the
    waits of the threads that take turns."""
    events, launches, waits = facts.trace.events, facts.launches, facts.waits
    start_ns, end_ns = facts.steps.window_ns
    launched = np.where(launches.call >= 0, events.start_ns[launches.call], events.start_ns[launches.work])
    inside = (launched < end_ns) & ((launched >= start_ns) | (events.ends_of(launches.work) > start_ns))
    work = launches.work[inside]
    launched = monotonic_launches(launched[inside], events.start_ns[work], events.lane[work])
    order = np.lexsort((events.start_ns[work], launched))
    waiting = (events.start_ns[waits.rows] >= start_ns) & (events.start_ns[waits.rows] < end_ns) & ~waits.own
    rows = waits.rows[waiting & facts.serial_lanes[events.lane[waits.rows]]]
    rows = rows[np.argsort(events.start_ns[rows])]
    free_ns = int(facts.device.inherited.end_ns.max(initial=start_ns))
    return Streams.of(events, work[order], launched[order], rows, facts.tree.end_ns[rows], free_ns)


def _edited_advance(facts: Facts, edit: Edit, streams: Streams, start_ns: int) -> Int64s:
    """How far each piece of work moves its stream with the edit applied: the least where several edits name it.

    Work launched before the window belongs to steps that are not looked at, and stays.
    """
    kept = np.full(len(facts.trace.events), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(kept, edit.work, edit.work_kept_ns)
    kept_ns = np.where(streams.launched_ns >= start_ns, kept[streams.work], np.iinfo(np.int64).max)
    saved = (streams.end_ns - streams.start_ns - kept_ns).clip(min=0)
    return np.where(kept_ns <= 0, 0, (streams.advance_ns - saved).clip(min=0))


def _ignored_waits(facts: Facts, edit: Edit, streams: Streams) -> Bools:
    """The waits that the edit takes away; without the device's side of the recording nobody knows what they hid."""
    ignored: Bools = among(streams.waits, edit.waits) & facts.device.present
    return ignored


def _standing_lag(streams: Streams, start_ns: int, end_ns: int) -> int:
    """How far the device is behind the host both when the window begins and when it ends.

    That much of the time until the device's last end is work of the steps before the window.
    """
    before = streams.end_ns[streams.launched_ns < start_ns]
    first_ns = max(int(before.max(initial=start_ns)), streams.free_ns)
    return max(0, min(first_ns - start_ns, streams.last_end_ns - end_ns))
