"""What each step is to the recording: a state machine, without torch, that advances at each end of a step.

::

    PROLOGUE → REFERENCE → warmup LOCATED → REFERENCE → active ACTIVE → after AFTER → DONE

One of the ``wait`` steps passes between the located and the measured steps, so that the after-effects of locating
(memory not reused yet, batches that workers loaded meanwhile) are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from profkit.run.plan import Plan

_MOST_TIMED = 30
"""How many of the last unprofiled steps before the recorded ones keep their times."""
_COUNT_NS = 5_000_000
"""Counting page faults takes up to 12 µs, a fiftieth of a short step. Before anything is recorded profkit counts them
this often and spreads them evenly over the steps since."""
_COUNT_BEHIND_NS = 50_000_000
"""The same behind the recorded steps, of which thousands are timed; a count then takes 20 µs, its code being cold."""
_MOST_LATER = 200
"""How many steps behind the planned ones get device times: each moment takes 5 µs and holds a CUDA event."""


class Moment(Protocol):
    """When a device reached the end of a step."""

    def ns_since(self, earlier: Any) -> int:
        """0 if unknown."""

    def wait(self) -> None:
        """Wait a short while until it is known."""


Lap = tuple[Moment | None, Moment | None]
"""The begin and end of a step on a device, if taken."""
_UNTOLD: Lap = (None, None)


class Phase(str, Enum):
    """``PROLOGUE`` lasts until the first step ends. ``REFERENCE`` and ``AFTER`` steps pass unprofiled. ``LOCATED``
    steps are recorded with line marks and shapes, ``ACTIVE`` steps without them, to be measured."""

    PROLOGUE = "opening"
    REFERENCE = "reference"
    LOCATED = "located"
    ACTIVE = "active"
    AFTER = "after"
    DONE = "done"

    @property
    def recorded(self) -> bool:
        """Whether the steps of this phase are steps of the recording."""
        return self in (Phase.LOCATED, Phase.ACTIVE)


class Schedule:
    """The phase of the current step, its number from 0, and for the unprofiled and the measured steps their times on
    host and device and their page faults. ``take_moment`` marks where the device is, if there is one.

    ``measured`` counts the complete steps recorded without line marks, ``timed`` the unprofiled steps behind the
    recorded ones. The last of these ended at ``timed_until_ns`` of the performance counter, 0 if there is none.
    """

    def __init__(self, plan: Plan, take_moment: Callable[[], Moment | None] = lambda: None) -> None:
        self._plan, self._take_moment = plan, take_moment
        self._reference_laps: list[Lap] = []
        self._measured_laps: list[Lap] = []
        self._begun: Moment | None = None
        self._begun_crowded_ns: int | None = None
        self._most = plan.warmup + plan.active
        self.reference_step_ns: list[int] = []
        self.reference_step_faults: list[int] = []
        self.measured_step_faults: list[int] = []
        self.measured_step_crowded_ns: list[int] = []
        self.measured_step_ns: list[int] = []
        self._counted_ns = 0
        self.restart()
        if plan.prologue:
            self.phase = Phase.PROLOGUE

    @property
    def recorded(self) -> int:
        """Complete steps of the recording so far."""
        return self._located + self.measured

    @property
    def has_enough(self) -> bool:
        """Whether enough was measured to replace an earlier recording. One of calls or batches is replaced even by a
        single located step; so are single steps by a located cycle, if no more may be recorded."""
        is_better = self._plan.is_second and not self._plan.anew
        is_cycle = self._plan.every > 1 or self._plan.one_in > 1
        is_all = is_better or (is_cycle and self._most <= self._located)
        return self.measured > 0 or (is_all and self._located > 0)

    @property
    def begun_ns(self) -> int:
        """When the current step began, by the performance counter: the last one ended there."""
        return self._begun_ns

    @property
    def is_settling(self) -> bool:
        """Whether the current step passes between the located steps and the measured ones."""
        return self.phase is Phase.REFERENCE and self._located > 0

    @property
    def was_cut_short(self) -> bool:
        """Whether fewer steps were measured than planned, because they are long or dear to record."""
        return self.phase in (Phase.AFTER, Phase.DONE) and self.measured < self._plan.active

    @property
    def after_ns(self) -> list[int]:
        """How long each of the `timed` steps took."""
        return self.reference_step_ns[len(self.reference_step_ns) - self.timed :]

    @property
    def after_faults(self) -> list[int]:
        """The page faults of each of the `timed` steps."""
        return self.reference_step_faults[len(self.reference_step_faults) - self.timed :]

    @property
    def counted(self) -> dict[str, tuple[int, ...]]:
        """What was counted per step, by its name in ``run.json``. Later steps behind the recorded ones are kept apart
        from the nearest, as a program may become slower in the seconds that they take."""
        if self._plan.one_in > 1:
            return self._counted_of_long_steps
        nearest = len(self.reference_step_ns) - max(0, self.timed - self._plan.after)
        return {
            "reference_step_ns": tuple(self.reference_step_ns[:nearest]),
            "later_step_ns": tuple(self.reference_step_ns[nearest:]),
            "reference_step_device_ns": _device_ns(self._reference_laps[:nearest]),
            "later_step_device_ns": _device_ns(self._reference_laps[nearest:]),
            "measured_step_device_ns": _device_ns(self._measured_laps),
            "reference_step_faults": tuple(self.reference_step_faults[:nearest]),
            "measured_step_faults": tuple(self.measured_step_faults),
            "measured_step_crowded_ns": tuple(self.measured_step_crowded_ns),
        }

    @property
    def _counted_of_long_steps(self) -> dict[str, tuple[int, ...]]:
        """All steps that passed between them are others."""
        return {
            "reference_step_ns": self._plan.known_step_ns,
            "measured_step_device_ns": _device_ns(self._measured_laps),
            "reference_step_faults": self._plan.known_step_faults,
            "measured_step_faults": tuple(self.measured_step_faults),
            "measured_step_crowded_ns": tuple(self.measured_step_crowded_ns),
        }

    @property
    def progress(self) -> tuple[int, int]:
        """Steps completed and steps planned, up to the end of the recording."""
        planned = self._before + self._plan.warmup + self._between + self._plan.active
        return min(self.step, planned), planned

    def limit_recorded(self, steps: int) -> None:
        """Record at most that many steps, located ones included, but at least one."""
        self._most = steps

    def await_device(self) -> None:
        """Wait until the device has finished the steps so far or seems to hang."""
        for laps in (self._measured_laps, self._reference_laps):
            for end in [end for _, end in laps if end is not None][-1:]:
                end.wait()

    def begin(self, now_ns: int, faults: int = 0, moment: Moment | None = None, crowded_ns: int | None = None) -> None:
        """Count the time and page faults of the current step, and its wait for a CPU, from here."""
        self._begun_ns, self._begun_faults, self._begun, self._begun_crowded_ns = now_ns, faults, moment, crowded_ns

    def advance(
        self, now_ns: int, faults: int = 0, moment: Moment | None = None, crowded_ns: int | None = None
    ) -> Phase:
        """The current step ended. Return the phase of the next one."""
        if self.phase.recorded and crowded_ns is not None and self._begun_crowded_ns is not None:
            self._recorded_ns -= crowded_ns - self._begun_crowded_ns  # others on the machine bring no fewer steps
            if self.phase is Phase.ACTIVE:
                self.measured_step_crowded_ns.append(crowded_ns - self._begun_crowded_ns)
        if self.phase is Phase.AFTER:
            self.timed_until_ns = now_ns
        self._count(now_ns - self._begun_ns, faults, (self._begun, moment))
        self.step += 1
        self.phase = self._next()
        return self.phase

    def pass_by(self, now_ns: int, count_faults: Callable[[], int], may_skip: bool = True) -> int:
        """`advance` in half the time, if the current step and the next pass before anything is recorded; else do
        nothing and return 0. Return how many steps this counted: the current one and, if it ``may_skip``, some of the
        next, whose ends need not be reported."""
        if self.phase is not Phase.REFERENCE or self._located or self.step + 1 >= self._before:
            return 0
        is_near = self._before - self.step <= self._kept + 1
        self._note_passed(now_ns, count_faults, self._take_moment() if is_near else None)
        if len(self.reference_step_ns) > 2 * self._kept:
            self._forget_early()
        if may_skip:
            self._skip_far()
        return 1 + self._skipped

    def _skip_far(self) -> None:
        """Count the next steps now, except the last before the recorded ones, whose times are kept: handling the end of
        a step takes 40 µs, as its code is no longer in the caches."""
        ahead = self._before - self.step - 1 - self._kept
        self._skipped = max(0, min(ahead, _MOST_TIMED))
        self.step += self._skipped

    def pass_behind(self, now_ns: int, count_faults: Callable[[], int], most_ns: float) -> int:
        """The same for a step behind the planned ones that took at most ``most_ns``; return how long it took, or 0."""
        took_ns = now_ns - self._begun_ns
        if self.phase is not Phase.AFTER or self.timed < self._plan.after or took_ns > most_ns:
            return 0
        self.timed += 1
        self.timed_until_ns = now_ns
        moment = self._take_moment() if self.timed <= self._plan.after + _MOST_LATER else None
        self._note_passed(now_ns, count_faults, moment, _COUNT_BEHIND_NS)
        return took_ns

    def _note_passed(
        self, now_ns: int, count_faults: Callable[[], int], moment: Moment | None, count_ns: int = _COUNT_NS
    ) -> None:
        self.reference_step_ns.append((now_ns - self._begun_ns) // (1 + self._skipped))
        self._reference_laps.append(_UNTOLD if self._skipped else (self._begun, moment))
        self._begun_ns, self._skipped, self._begun = now_ns, 0, moment
        self.step += 1
        self._uncounted += 1
        if now_ns - self._counted_ns >= count_ns:
            self._spread(count_faults())
            self._counted_ns = now_ns

    def restart(self, must_wait: bool = False) -> Phase:
        """Discard the steps so far: the first step begins now. Return its phase.

        With ``must_wait`` at least one step passes unrecorded, in which operators that are open now end.
        """
        self._between = min(self._plan.wait, 1) if self._plan.warmup else 0
        self._before = max(self._plan.wait - self._between, self._plan.at_step, int(must_wait))
        if self._plan.one_in > 1:
            self._between = self._before = self._plan.one_in - 1
        self.reference_step_ns[:] = self._plan.known_step_ns
        self.reference_step_faults[:] = self._plan.known_step_faults
        self._reference_laps[:] = [_UNTOLD] * len(self.reference_step_ns)
        self.step = self._located = self._settled = self.measured = self.timed = 0
        self._recorded_ns = self._begun_ns = self._begun_faults = self._uncounted = self._skipped = 0
        self.timed_until_ns = 0
        self.phase = self._next()
        return self.phase

    def forget_measured(self) -> None:
        """Forget the steps measured so far."""
        self.measured = 0
        self.measured_step_faults.clear()
        self.measured_step_crowded_ns.clear()
        self.measured_step_ns.clear()
        self._measured_laps.clear()

    def let_settle(self, steps: int) -> Phase:
        """Let at least that many steps pass between the located and the measured ones. Return the current phase."""
        self._between += self._whole_rounds(steps - self._between)
        self.phase = self._next()
        return self.phase

    def let_another_pass(self) -> Phase:
        """Let the current step pass as well between the located and the measured ones. Return the current phase."""
        return self.let_settle(self._settled + 1)

    def postpone(self) -> Phase:
        """Let one more step pass before any is recorded. Return the current phase."""
        self._before = self.step + self._whole_rounds(1)
        self.phase = self._next()
        return self.phase

    def _whole_rounds(self, steps: int) -> int:
        """At least so many steps, after which the next one is as long as the one that would be next; 0 for none."""
        return max(0, -(-steps // self._plan.one_in) * self._plan.one_in)

    def go_on_timing(self) -> Phase:
        """Time one more step behind the recorded ones."""
        self.phase = Phase.AFTER
        return self.phase

    def end(self) -> Phase:
        """Stop timing steps."""
        self.phase = Phase.DONE
        return self.phase

    def _count(self, took_ns: int, faults: int, lap: Lap) -> None:
        if self.phase.recorded:
            self._recorded_ns += took_ns
        else:
            self.reference_step_ns.append(took_ns)
            self._reference_laps.append(lap)
            self._uncounted += 1
            self._spread(faults)
            if not self._located and not self.measured:
                self._forget_early()
        if self.phase is Phase.ACTIVE:
            self.measured_step_faults.append(faults - self._begun_faults)
            self.measured_step_ns.append(took_ns)
            self._measured_laps.append(lap)
        self._settled += self.is_settling
        self._located += self.phase is Phase.LOCATED
        self.measured += self.phase is Phase.ACTIVE
        self.timed += self.phase is Phase.AFTER

    def _spread(self, faults: int) -> None:
        """Spread the faults since the last count evenly over the steps since."""
        each = (faults - self._begun_faults) // self._uncounted
        self.reference_step_faults += [each] * self._uncounted
        self._begun_faults, self._uncounted = faults, 0

    def _forget_early(self) -> None:
        for counted in (self.reference_step_ns, self.reference_step_faults, self._reference_laps):
            del counted[: -self._kept]

    @property
    def _kept(self) -> int:
        """How many steps before the recorded ones keep their times."""
        return max(self._plan.wait, _MOST_TIMED)

    def _next(self) -> Phase:
        plan = self._plan
        if self.step < self._before:
            return Phase.REFERENCE
        if self._located < plan.warmup and not (self._located and (self.took_long or self._located + 1 >= self._most)):
            return Phase.LOCATED
        is_enough = (self.measured and self.took_long) or (self.recorded and self.recorded >= self._most)
        if not is_enough and self._located and self._settled < self._between:
            return Phase.REFERENCE
        if self.measured < plan.active and not is_enough:
            return Phase.ACTIVE
        return Phase.AFTER if self.timed < plan.after else Phase.DONE

    @property
    def took_long(self) -> bool:
        """Whether the recorded steps took as long as a recording may."""
        return self._recorded_ns > self._plan.limit_s * 1e9


def _device_ns(laps: Sequence[Lap]) -> tuple[int, ...]:
    """Empty if no lap could be read."""
    took = tuple(ended.ns_since(begun) if begun and ended else 0 for begun, ended in laps)
    return took if any(took) else ()
