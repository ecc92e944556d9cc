"""What a step takes when nothing is recorded, and which of host and device bounds it.

A recording slows the host and hardly the device. What bounds the recorded steps need not bound the others.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.savings.edits import Edit, shrink_spans
from profkit.savings.replay import host_at_work_ns, replay
from profkit.trace.values import median

_BOUND = 0.9
"""A step of which the device needs so much is bound by it: nothing that the host does faster gives back more than the
rest."""


class StepTime(Struct, frozen=True):
    """In nanoseconds: a step as recorded; without the recording, and whether that was ``measured`` or is ``estimated``,
    None where neither can be; what the device alone needs of it and what the host alone does, without its waits for the
    device; ``bound_by`` is ``device`` or ``host``. All three are None without a device."""

    recorded_ns: int
    unrecorded_ns: int | None = None
    source: str | None = None
    device_ns: int | None = None
    host_ns: int | None = None
    bound_by: str | None = None

    @property
    def ns(self) -> int:
        """What savings are stated on: without the recording where that is known."""
        return self.recorded_ns if self.unrecorded_ns is None else self.unrecorded_ns


def step_time(facts: Facts) -> StepTime:
    """The step time of a recording; derived once."""
    return facts.once(_tell)


def _tell(facts: Facts) -> StepTime:
    steps, run = facts.steps, facts.run
    recorded_ns = steps.median_ns
    reference_ns = int(median(run.reference_step_ns)) if run.reference_step_ns else None
    if not facts.device.present:
        return StepTime(recorded_ns, reference_ns, None if reference_ns is None else "measured")
    device_ns = min(_device_alone_ns(facts), recorded_ns)
    host_ns = steps.per_step_ns(host_at_work_ns(facts))
    if reference_ns is not None:
        # Steps that nobody waits for are timed by their launches: the device may need longer.
        unrecorded_ns, source = max(reference_ns, device_ns), "measured"
    elif len(facts.overhead.start_ns):
        unrecorded_ns, source = steps.per_step_ns(replay(facts, Edit()).recorded_ns), "estimated"
    else:
        return StepTime(recorded_ns, None, None, device_ns, host_ns, _bound_by(device_ns, recorded_ns))
    return StepTime(recorded_ns, unrecorded_ns, source, device_ns, host_ns, _bound_by(device_ns, unrecorded_ns))


def _device_alone_ns(facts: Facts) -> int:
    """A step of which the host does everything in no time."""
    steps = facts.steps
    start_ns, end_ns = steps.start_ns[steps.measured], steps.end_ns[steps.measured]
    everything = shrink_spans(start_ns, end_ns, np.zeros(len(start_ns), dtype=np.int64), 0.0)
    return steps.per_step_ns(replay(facts, everything).edited_ns)


def _bound_by(device_ns: int, step_ns: int) -> str:
    return "device" if device_ns >= _BOUND * step_ns else "host"
