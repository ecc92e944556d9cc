"""The replay: how long the measured steps would take with an edit applied.

A saving is not simply the time of the removed events. If the host spends 2 ms less while the device works anyway, the
step gets no shorter. So the replay runs the recorded step again, as a graph of dependencies:

- The host is one timeline. Its threads take turns (the main thread waits for the autograd thread), so time taken out of
  one moves everything after it, on all of them. `removed_host_time` says what an edit takes out.
- Each stream of the device runs its work in order. A piece starts once it was launched and its stream is free (see
  `profkit.savings.streams`). Work launched before the measured steps stays as it was.
- A wait of the host ends when the work ends that ended it in the recording. A launch into a full queue ends when there
  is room again.

Without an edit this reproduces the recording exactly. With one, times move as far as the dependencies allow, so a wait
hidden behind a busy device is worth nothing.

The length of the steps is the longer of two. One is the time from the end of the step before until host and device are
done. The other is the host's own work without its waits for the device: it is longer if the host had run ahead of the
device before the measured steps.
"""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import NOTHING, Intervals, union
from profkit.derive.timeline.thinned import Removed, Thinned
from profkit.savings.edits import Edit
from profkit.savings.outliers import outliers_ns
from profkit.savings.queueing import find_full_queue
from profkit.savings.streams import (
    CROSSING_NS,
    CROSSING_ON_AMD_NS,
    Disturbed,
    Edited,
    HostWaits,
    Queue,
    find_waits_for,
    replay_streams,
)
from profkit.trace.events import NONE, Category, Int32s, Rows
from profkit.trace.statistics import among

_ON_AMD = re.compile(r"^hip[A-Z]")
"""The runtime's calls in a trace of an AMD device."""


class Replay(Struct, frozen=True):
    """The length of the measured steps as recorded and with the edit, in nanoseconds."""

    recorded_ns: int
    edited_ns: int

    @property
    def fraction(self) -> float:
        """The share of the steps' time that the edit gives back, never negative."""
        return max(0.0, (self.recorded_ns - self.edited_ns) / max(self.recorded_ns, 1))


def replay(facts: Facts, edit: Edit) -> Replay:
    """Replay the measured steps without what disturbed them (`Facts.disturbance`), and then with ``edit`` applied too.

    Each edit is replayed once: a rule asks whether it is worth reporting, and the finding's price is the same answer.
    """
    known = _replays(facts)
    if edit not in known:
        known[edit] = _replay(facts, edit)
    return known[edit]


@derived_once
def _replays(facts: Facts) -> WeakKeyDictionary[Edit, Replay]:  # noqa: ARG001  # each recording has its own
    """The replays so far of edits that somebody still holds: those tried and dropped are a tenth of the memory."""
    return WeakKeyDictionary()


def _replay(facts: Facts, edit: Edit) -> Replay:
    removed = removed_host_time(facts, edit)
    unedited, edited = _unedited(facts), _run(facts, edit, removed)
    least_ns = min(edited.working_ns, unedited.together_ns)
    edited_ns = max(0, edited.together_ns, least_ns) + outliers_ns(facts, edit, removed)
    return Replay(max(0, unedited.together_ns), edited_ns)


def host_at_work_ns(facts: Facts) -> int:
    """How long the host worked in the measured steps, without what disturbed it and without its waits for the
    device."""
    return max(0, _unedited(facts).working_ns)


def device_alone_ns(facts: Facts, edit: Edit | None = None) -> int:
    """How long the device needs for the measured steps, with an edit or without one, if everything is launched at once:
    it then only waits for itself, one stream for another."""
    window, (start_ns, end_ns) = _window(facts), facts.steps.window_ns
    queue = replace(window.queue, latency_ns=np.zeros_like(window.queue.latency_ns))
    whole = union(np.array([start_ns]), np.array([end_ns]))
    applied = _applied(facts, edit or Edit(), window, Removed.of(whole, _added(facts)))
    gone = applied.gone | (queue.launched_ns >= start_ns) & ~facts.steps.in_measured(queue.launched_ns)
    waited_for = np.zeros(len(window.waits.rows), dtype=bool)
    edited = replace(applied, duration_ns=np.where(gone, 0, applied.duration_ns), gone=gone, ignored=waited_for)
    outcome = replay_streams(queue, window.waits, edited, end_ns, window.free_ns)
    return max(0, outcome.device_end_ns - _device_begun_ns(facts))


class _Lengths(Struct, frozen=True):
    """``together_ns``: from the end of the step before the measured ones until host and device are done.
    ``working_ns``: how long the host worked meanwhile without waiting for the device."""

    together_ns: int
    working_ns: int


@derived_once
def _unedited(facts: Facts) -> _Lengths:
    return _run(facts, Edit(), NOTHING)


class _Window(Struct, frozen=True):
    """The part of the recording that is replayed: the device's work that was launched in the measured steps, or earlier
    if it still kept the device busy, and the waits of the host's threads. No stream is free before ``free_ns``."""

    queue: Queue
    waits: HostWaits
    free_ns: int


def _run(facts: Facts, edit: Edit, removed: Intervals) -> _Lengths:
    """Replay the measured steps with the edit, which takes ``removed`` out of the host's timeline, and without what the
    recording added. Time between the measured steps stays."""
    window, (start_ns, end_ns) = _window(facts), facts.steps.window_ns
    between, pauses = _outside_measured(facts), _pauses(facts)
    edited = removed.minus(between).minus(pauses).clipped_to(start_ns, end_ns)
    taken = Removed.of(edited, _added(facts))
    outcome = replay_streams(window.queue, window.waits, _applied(facts, edit, window, taken), end_ns, window.free_ns)
    host_ns, device_ns = outcome.host_end_ns - _begun_ns(facts), outcome.device_end_ns - _device_begun_ns(facts)
    working_ns = outcome.host_end_ns - start_ns - outcome.waited_ns - between.total_ns - pauses.total_ns
    return _Lengths(max(host_ns - _between_ns(facts), device_ns - _between_ns(facts), working_ns), working_ns)


@derived_once
def _added(facts: Facts) -> Thinned:
    """What the recording added within the measured steps."""
    added = facts.disturbance
    inside = added.where.minus(_outside_measured(facts)).minus(_pauses(facts))
    return Thinned(inside.clipped_to(*facts.steps.window_ns), added.share)


def _begun_ns(facts: Facts) -> int:
    """When the step before the first measured one was over."""
    return int(facts.steps.begun_ns[facts.steps.measured].min())


def _device_begun_ns(facts: Facts) -> int:
    """When the device was done with everything launched before the measured steps, recorded or not."""
    window = _window(facts)
    before = window.queue.end_ns[window.queue.launched_ns < facts.steps.window_ns[0]]
    return max(_begun_ns(facts), int(before.max(initial=window.free_ns)))


def _between_ns(facts: Facts) -> int:
    """The time between the measured steps: steps that are left out, time outside any step, and profkit's pauses."""
    steps, measured = facts.steps, facts.steps.measured
    between_ns = (steps.begun_ns[measured][1:] - steps.done_ns[measured][:-1]).clip(min=0).sum()
    return int(between_ns + steps.pause_ns[measured].sum())


def _applied(facts: Facts, edit: Edit, window: _Window, taken: Removed) -> Edited:
    """What the edit leaves of the device's work and of the waits. Work launched before the window or between measured
    steps belongs to other steps and stays. Without the device's side of the recording nothing shows what waits hid, so
    they stay too."""
    queue = window.queue
    duration_ns = queue.duration_ns
    place = _places_in_measured(facts)[edit.work]
    np.minimum.at(duration_ns, place[place >= 0], edit.work_kept_ns[place >= 0])
    gone = (duration_ns <= 0) & (queue.duration_ns > 0)
    ignored = among(window.waits.rows, edit.waits) & facts.device.present
    return Edited(taken, _disturbed(facts), duration_ns.clip(min=0), gone, ignored)


@derived_once
def _disturbed(facts: Facts) -> Disturbed:
    window = _window(facts)
    return Disturbed.of(_added(facts).where, window.queue, window.waits, facts.steps.window_ns[1])


@derived_once
def _places_in_measured(facts: Facts) -> Int32s:
    """For each event its place in the queue if it was launched in a measured step; `NONE` for all others."""
    queue = _window(facts).queue
    looked_at = np.flatnonzero(facts.steps.in_measured(queue.launched_ns))
    place = np.full(len(facts.trace.events), NONE, dtype=np.int32)
    place[queue.work[looked_at]] = looked_at
    return place


def removed_host_time(facts: Facts, edit: Edit) -> Intervals:
    """What the edit takes out of the host's timeline: the tail of each shortened event and span."""
    events, tree = facts.trace.events, facts.tree
    serial = facts.serial_lanes[events.lane[edit.rows]]
    start, end, kept = events.start_ns[edit.rows][serial], tree.end_ns[edit.rows][serial], edit.kept_ns[serial]
    start = np.concatenate([start, edit.span_start_ns])
    end = np.concatenate([end, edit.span_end_ns])
    kept = np.concatenate([kept, edit.span_kept_ns])
    if not kept.any():  # as for most edits
        return union(np.minimum(start, end), end)
    added = facts.disturbance  # the kept time is the program's own: it must not fall on what disturbed it
    until = added.when_uncovered(start - added.covered_before(start) + kept)
    return union(np.minimum(np.where(kept > 0, until, start), end), end)


@derived_once
def _outside_measured(facts: Facts) -> Intervals:
    """The host's time in the window outside any measured step."""
    steps = facts.steps
    return union(steps.start_ns[steps.measured], steps.end_ns[steps.measured]).gaps(*steps.window_ns)


@derived_once
def _pauses(facts: Facts) -> Intervals:
    """Profkit's pauses in the measured steps."""
    steps, events = facts.steps, facts.trace.events
    rows = np.flatnonzero((events.category == Category.PAUSE) & (events.lane == steps.main_lane) & facts.measured)
    return union(events.start_ns[rows], events.ends_of(rows))


@derived_once
def _window(facts: Facts) -> _Window:
    events, launches = facts.trace.events, facts.launches
    start_ns, end_ns = facts.steps.window_ns
    launched_ns = launches.launched_ns
    inside = (launched_ns < end_ns) & ((launched_ns >= start_ns) | (events.ends_of(launches.work) > start_ns))
    order = np.flatnonzero(inside)
    order = order[np.lexsort((events.start_ns[launches.work[order]], launched_ns[order]))]
    free_ns = int(facts.device.first_lag.end_ns.max(initial=start_ns))
    crossing_ns = CROSSING_ON_AMD_NS if facts.trace.matching(_ON_AMD).any() else CROSSING_NS
    queue = Queue.of(events, launches.work[order], launched_ns[order], free_ns, crossing_ns)
    return _Window(queue, _host_waits(facts, queue, launches.call[order]), free_ns)


def _host_waits(facts: Facts, queue: Queue, call: Rows) -> HostWaits:
    """The waits in the window of the threads that take turns. Among ``call``, the calls that launched the queue's work,
    those that were blocked by a full queue count too."""
    events, waits, (start_ns, end_ns) = facts.trace.events, facts.waits, facts.steps.window_ns
    rows = waits.rows[~waits.own & facts.serial_lanes[events.lane[waits.rows]]]
    full = find_full_queue(events, queue, call)
    full = full[facts.serial_lanes[events.lane[full]] & ~among(full, rows)]
    rows = np.concatenate([rows, full])
    rows = rows[(events.start_ns[rows] >= start_ns) & (events.start_ns[rows] < end_ns)]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    place = np.full(len(events), NONE, dtype=np.int64)
    place[call[call >= 0]] = np.flatnonzero(call >= 0)
    own = np.where(among(rows, full), NONE, place[rows])
    until_ns = facts.tree.end_ns[rows]
    return HostWaits(rows, events.start_ns[rows], until_ns, find_waits_for(queue, events.start_ns[rows], until_ns, own))
