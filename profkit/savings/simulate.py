"""The saving of an edit: what it gives back per step, with a range, relative to the steps without the recording.

What the recording added to the host's steps is known in all, but hardly where: it is taken off event by event. Had it
slowed everything alike, an edit would give back the same share of a step as of the recorded one. In recordings of CPU
programs whose steps it made 1.3 to 2.4 times as long, the two differ by up to a half. What a fix gave back lay near the
one or the other: 4 % where they are 8 and 14, 39 where they are 17 and 31. So the range has both.
"""

from __future__ import annotations

from math import hypot

from profkit.derive.facts import Facts
from profkit.findings.values import Saving
from profkit.patterns.time.bounds import Bound
from profkit.patterns.time.shares import FIRST_LAG
from profkit.savings.edits import Edit
from profkit.savings.replay import Replay, device_alone_ns, removed_host_time, replay
from profkit.savings.step_time import step_time
from profkit.trace.statistics import relative_deviation

_SLOWED = 4.0
"""No host whose step takes a millisecond was slowed by more by a recording (`profkit.derive.steps.distortion`)."""
_MARKED = 0.3
"""Of a saving, if each recorded step has its lines marked and the host's work is shrunk evenly to that of plain steps:
five were off by 2 to 36 %, and one that is a wait for the device by more (H200)."""
_MARKED_LINES = 0.5
"""The same without a device, where each line keeps what it takes of plain steps. Half of 37 prices of programs that
were recorded both ways are within 1.4 times that of plain steps, three quarters within 2.1."""


def predict_saving(facts: Facts, edit: Edit, size_bytes: int = 0) -> Saving:
    """What an edit gives back per step. The range comes from the edit's uncertainty and the spread of the steps. The
    time is relative to the unprofiled steps if those were measured."""
    replayed = replay(facts, edit)
    likely, alike = replayed.fraction, _as_recorded(facts, edit)
    others = (_with_a_faster_host(facts, edit, replayed), _with_longer_waits(facts, edit, replayed), alike)
    low, high = (min(likely, alike), max(likely, *others)) if likely else (0.0, 0.0)
    unsure = edit.uncertainty if edit.of_plain_steps else hypot(edit.uncertainty, _of_marks(facts))
    return _saving_of(facts, (low, likely, high), unsure, size_bytes)


def _as_recorded(facts: Facts, edit: Edit) -> float:
    """What the edit takes out of the recorded steps, as a share of these, both without waits for a CPU. The replayed
    share beside a device, whose work a recording does not slow, where no step was timed without one, where the edit
    comes from such steps, and where each recorded step has its lines marked: that slows some parts tenfold."""
    is_alike = step_time(facts).source == "measured" and not facts.steps.measured_are_marked
    if facts.device.present or edit.of_plain_steps or not is_alike:
        return replay(facts, edit).fraction
    steps = facts.steps
    start_ns, end_ns = steps.start_ns[steps.measured], steps.end_ns[steps.measured]
    crowding = facts.crowding
    taken_ns = removed_host_time(facts, edit).minus(crowding).covered_within(start_ns, end_ns).sum()
    spent_ns = (end_ns - start_ns - crowding.covered_within(start_ns, end_ns)).sum()
    return float(taken_ns) / max(int(spent_ns - steps.pause_ns[steps.measured].sum()), 1)


def _with_a_faster_host(facts: Facts, edit: Edit, replayed: Replay) -> float:
    """The most that the edit may give back of steps that the device bounds. A busy device hides how fast the host is
    without the recording, and the host bounds the steps once the device has less to do."""
    if step_time(facts).bound_by is not Bound.DEVICE:
        return 0.0
    least_ns = max(device_alone_ns(facts, edit), replayed.edited_ns / _SLOWED)
    return max(0.0, 1 - least_ns / max(replayed.recorded_ns, 1))


def _with_longer_waits(facts: Facts, edit: Edit, replayed: Replay) -> float:
    """The most that an edit of waits may give back if each recorded step has its lines marked. A host that marks lines
    comes late to its waits: without that, all of the device's work may be waited for."""
    step, is_marked = step_time(facts), facts.steps.measured_are_marked
    if not len(edit.waits) or not is_marked or step.source != "measured" or step.busy_ns is None:
        return 0.0
    return replayed.fraction + step.busy_ns / max(step.ns, 1)


def predict_part(facts: Facts, joint: Edit, part: float) -> Saving:
    """This place's part of what fixing several places at once gives back per step."""
    fraction = replay(facts, joint).fraction * part
    return _saving_of(facts, (fraction, fraction, fraction), hypot(joint.uncertainty, _of_marks(facts)), 0)


def measured_saving(facts: Facts, edits: tuple[Edit, Edit, Edit], size_bytes: int = 0) -> Saving:
    """What edits with measured times give back: for both ends of the measured range and its median, the edit that keeps
    least first. Only the spread of the steps widens the range, because no model is involved."""
    high, middle, low = (replay(facts, edit).fraction for edit in edits)
    return _saving_of(facts, (low, middle, high), _of_marks(facts), size_bytes)


def _of_marks(facts: Facts) -> float:
    """How unsure a saving is because each recorded step has its lines marked. That does not depend on how unsure the
    edit is, so their squares add up."""
    return _MARKED if facts.marks_added.total_ns else _MARKED_LINES if facts.marks_by_line.total_ns else 0.0


def _unjudged(facts: Facts) -> float:
    """The share of the step that passes before the first kernel begins, for a reason that was not recorded."""
    rows = step_time(facts).rows
    lag = sum(time for label, time in rows if label == FIRST_LAG)
    return lag / max(sum(time for _, time in rows), 1.0)


def _saving_of(facts: Facts, fractions: tuple[float, float, float], uncertainty: float, size_bytes: int) -> Saving:
    """A saving from its low, middle and high share of the replayed time, widened by the uncertainty and the spread of
    the steps. What passes before the first kernel begins is no part of that time, but of the step."""
    low, middle, high = (one * (1 - _unjudged(facts)) for one in fractions)
    margin = uncertainty + relative_deviation(facts.steps.duration_ns[facts.steps.measured])
    return Saving(
        time_ns_per_step=int(middle * step_time(facts).ns),
        fraction=round(middle, 6),
        low=round(low * max(0.0, 1 - margin), 6),
        high=round(min(1.0, high * (1 + margin)), 6),
        bytes=size_bytes,
        of_part=facts.is_part,
    )
