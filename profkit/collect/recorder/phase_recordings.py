"""The recording of each phase of the schedule: begun, kept or dropped when the phase changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from math import inf
from types import FunctionType
from typing import Any

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from profkit.collect.boundaries.schedule import Moment, Phase
from profkit.collect.machine import environment
from profkit.collect.program.engine import is_larger
from profkit.collect.program.living import walk_once
from profkit.collect.recorder.archive import Archive, Parts, RunFile
from profkit.collect.recorder.census_times import CensusTimes
from profkit.collect.sessions.allowance import FEW_EVENTS, MANY_EVENTS, MAX_EVENTS, Allowance
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.device_moments import take_moment
from profkit.collect.sessions.host_marks import free_cycles
from profkit.collect.sessions.session import ProfilerSession, mark_located, pause_marked
from profkit.run.plan import Plan

_POSTPONED = "recording the large steps had to wait, so that it adds at most 5 s or a tenth to the program's time"
_CUT_OFF = "a step was so long that the recording ended in the middle of it"
_CUT_SHORT = "fewer steps were recorded than planned, because the program paused between them"
_CUT_AMID = "fewer steps were recorded than planned, because one was much longer than the others"
_AS_FORESEEN = 3
"""Recording makes a step at most about twice as long, so steps of one kind fit well into a time that is foreseen for
three times as many events."""
_MOST_PER_S = 500_000
"""Events come at most so fast, in loops of the smallest operators (530,000 were measured)."""
_TIMES_CUT = 4
"""So many times the events of the steps that were cut off must be left for another: half of what is left is kept back
for what arrives before a cut, and nobody knows how much of the step was missing. A step that counts for `MAX_EVENTS`
that way fits in none."""
_MOST_CUT = 3
"""Steps that may be cut off before a part of one has to do. For each the program waits about a second."""
_FEW_TRIES, _AS_LONG = 2, 3.0
"""Tries that ended with few events, from which on the pace of the last is believed: the opening's, at which memory was
taken for events, is then not that of the steps. The next may last this many times as long as the longest step so far,
as lines are marked in it. So a loop of small operators at its end costs no more than some seconds."""
_TRACED_PER_S = 100_000
"""Line marks let events come at most about so fast: 54,000 to 110,000 were measured."""
_PART_S = 1.0
"""So long the recording of what passes between the steps may last: rounds of a few tenths of a second each fit in. What
it holds is bounded besides."""
_WATCHED = (FunctionType, nn.Module, Optimizer, Parameter, Tensor)
"""What the watches look for that begin with a step, among all objects."""


class PhaseRecordings:
    """Call `enter` for the first phase; at the end of each step `end_step`, then `advance` or `restart`, then `enter`
    again; and `conclude` at the end of the recording, which keeps what there is.

    From `pause` to `resume`, while it ``is_paused``, nothing is recorded or timed and no step ends: that work belongs
    to no step, such as an evaluation during training.
    """

    def __init__(
        self,
        plan: Plan,
        allowance: Allowance,
        bounds: Bounds,
        parts: Parts,
        archive: Archive,
        file: RunFile,
        notes: list[str],
    ) -> None:
        self.is_paused = self._was_dropped = self._was_step_left_out = False
        self._cut_events: list[int] = []
        self._cut_pace = 0.0
        self._plan, self._allowance, self._bounds = plan, allowance, bounds
        self._calls, self._gradients, self._padding = parts.calls, parts.gradients, parts.padding
        self._functions = parts.functions
        self._timed_watches = parts.calls, parts.functions, parts.padding
        self._schedule, self._recordings, self._prologue = parts.schedule, parts.recordings, parts.prologue
        self._tracer, self._parts, self._archive, self._file, self._notes = parts.tracer, parts, archive, file, notes
        self._memory = parts.memory
        self._census_times = CensusTimes(parts.census, parts.schedule, file, plan)

    def enter(self) -> None:
        """A step begins: record it, or end the recording before it."""
        phase = self._schedule.phase
        if self._schedule.measured or (self._schedule.recorded and not self._parts.choice.is_weak):
            self._recordings.drop_prologue()
        is_begun = self._schedule.recorded > 0 or self._recordings.running is not None
        if phase.recorded and not (is_begun or self._is_affordable):
            self._notes += [] if _POSTPONED in self._notes else [_POSTPONED]
            phase = self._schedule.postpone()
        if phase.recorded:
            (self._recordings.running or self._begin(phase)).begin_step(self._schedule.step)
            self._bounds.begin_step()
            if phase is Phase.LOCATED and self._plan.is_light:
                mark_located()
            elif phase is Phase.LOCATED:
                self._memory.history.begin()
                if self._cut_events:  # they are about the part, which this step replaces
                    self._tracer.notes.clear()
                self._tracer.start(sys._getframe(), self._plan.max_lines, leaves_some=True)
        elif self._recordings.running is not None:
            self._keep_whole()
        if phase is Phase.AFTER:
            self._padding.follow()

    def end_step(self, between: Callable[[], None] | None) -> Moment | None:
        """A step ended: take stock of what it left, and call ``between``. Return the device's moment of its end."""
        ended, running = self._schedule.phase, self._recordings.running
        self._tracer.pause()
        if running is not None:
            running.end_step()
        moment = take_moment()
        self._look_at_memory(ended)
        is_due = self._census_times.are_due(ended)
        with pause_marked() if running is not None and (is_due or between) else nullcontext():
            with self._allowance.spending():
                self._census_times.after(ended, is_due, sys._getframe())
            if between is not None:
                between()
        return moment

    def _look_at_memory(self, ended: Phase) -> None:
        """Read what the GPU's allocator holds after a recorded step and what it did in the located one."""
        if ended.recorded:
            self._memory.counts.read(self._schedule.step)
        if ended is Phase.LOCATED and self._memory.history.is_on:
            with self._allowance.spending(), pause_marked():
                self._memory.history.end()

    def advance(self, now_ns: int, faults: int, moment: Moment | None, crowded_ns: int | None) -> None:
        """Count the step that ended."""
        ended = self._schedule.phase
        self._end_watches(ended)
        following = self._schedule.advance(now_ns, faults, moment, crowded_ns)
        if ended is Phase.LOCATED and following is not Phase.LOCATED:
            self._end_located()

    def restart(self) -> None:
        """A better signal came: discard the steps by a weaker one. The prologue holds the first step, and more."""
        ended = self._schedule.phase
        self._end_watches(ended)
        if ended is Phase.PROLOGUE:
            self._prologue.close()
            self._tracer.notes.clear()
            self._schedule.limit_recorded(self._allowance.steps_left(self._prologue.events))
        else:
            self._bounds.end()
            self._recordings.drop()
            self._calls.stop()
            self._functions.stop()
            self._parts.census.forget()
        self._schedule.restart(self._recordings.cut_operators_off)

    def keep(self, unfinished_step: int | None = None) -> None:
        """Write what was recorded."""
        self._bounds.end()
        self._archive.keep(unfinished_step)

    def _keep_whole(self, unfinished_step: int | None = None) -> None:
        """Collect cycles at the end of the recording, and write it."""
        with self._allowance.spending():
            free_cycles()
            self.keep(unfinished_step)

    def pause(self) -> None:
        """End a running recording, which must not contain the pause.

        The first recording that meets a pause begins again afterwards. A second one that holds measured steps is kept
        as it is: pauses come too often. Before the first step has ended there is nothing to pause.
        """
        if self._schedule.phase is Phase.PROLOGUE:
            return
        self.is_paused = True
        self.stop_tracing()
        if self._recordings.running is None:
            return
        if self._schedule.measured and self._was_dropped:
            self._keep_fewer(_CUT_SHORT)
        else:
            self._bounds.end()
            self._recordings.drop()
            self._was_dropped |= self._schedule.measured > 0
            self._schedule.forget_measured()

    def _keep_fewer(self, why: str) -> None:
        """Keep the steps so far, and record no more."""
        self._notes.append(why)
        self._schedule.limit_recorded(self._schedule.recorded)
        self._keep_whole(self._schedule.step)
        self._schedule.let_settle(0)

    def resume(self) -> None:
        """The next step begins here."""
        self.enter()
        self.is_paused = False

    def disown(self) -> None:
        """In the child of a fork: watch no more."""
        self._functions.stop()

    def conclude(self) -> None:
        """Keep the complete steps, else the prologue, else the part of a step that was recorded."""
        phase, complete = self._schedule.phase, self._schedule.recorded
        self._functions.stop()
        self.stop_tracing()
        if phase in (Phase.AFTER, Phase.DONE):
            return
        if not complete and self._cut_events and not self._file.run.is_part:
            self._notes.append(_CUT_OFF)
            self._file.set(is_part=self._recordings.take_part_back())
        if not complete:
            self._archive.note_what_is_missing(is_in_prologue=phase is Phase.PROLOGUE)
        if phase is Phase.PROLOGUE:
            with self._allowance.spending():
                free_cycles()
                self._prologue.close()
        self.keep(unfinished_step=self._schedule.step if complete else None)

    def cut_step_off(self) -> None:
        """End the recording within the step, as it cannot wait for the step's end; call `conclude` next."""
        self._notes.append(_CUT_OFF)
        self.stop_tracing()
        self._charge_watches()
        if self._schedule.recorded:
            self._recordings.drop_prologue()
        else:
            self._file.set(is_part=self._recordings.keep_part(), flow=self._calls.flow)

    def put_off(self, foreseen: int = 0) -> bool:
        """The step that was to be located is too large for what is left, or its events came more slowly than expected,
        or as many as ``foreseen`` would come: keep the part aside, and locate a later step as soon as the allowance has
        so much left for it. A tenth of the program's time makes that grow. Returns False if it can never grow so far,
        or if others record the same step."""
        plan = self._plan
        is_first = self._schedule.phase is Phase.LOCATED and not self._schedule.recorded
        if not is_first or plan.stops or plan.is_rank or plan.is_light or plan.interlude is not None:
            return False
        if len(self._cut_events) >= _MOST_CUT or self._least_events > MAX_EVENTS:
            return False
        self.stop_tracing()
        self._charge_watches()
        ran_s = self._bounds.ran_s
        self._bounds.end()
        self._file.set(flow=self._calls.flow)
        for watch in (self._calls, self._functions, self._gradients, self._padding):
            watch.stop()
        self._parts.census.forget()
        events = self._recordings.put_aside()
        self._cut_events.append(max(events, foreseen))
        self._cut_pace = events / ran_s if ran_s > 0 else 0.0
        self._schedule.postpone()
        return True

    def leave_step_out(self) -> bool:
        """Leave out a step that is much longer than the located one: end the recording within it, or begin it again
        behind it if nothing was measured yet. Steps are timed on, as such a step may come again and again. Returns
        False if that is not possible."""
        if not self._plan.finds_cycles or self._recordings.located is None or self._was_step_left_out:
            return False
        self._was_step_left_out = True
        self.stop_tracing()
        if self._schedule.measured:
            self._keep_fewer(_CUT_AMID)
        else:
            self._bounds.end()
            self._recordings.drop()
            self._schedule.let_another_pass()
        return True

    def foresee_too_much(self, roots: Any) -> int:
        """How many events the backward pass from ``roots`` will take at least, if that is more than half of those that
        may be recorded, else 0; the other half is for the work before it."""
        most = max(self._allowance.events_left // 2, FEW_EVENTS)
        with self._allowance.spending(), pause_marked():
            return most + 1 if is_larger(roots, most) else 0

    @property
    def watched_s(self) -> float:
        """The CPU time that the watches took so far; any thread may ask."""
        return self._allowance.watched_s + sum(watch.uncharged_s for watch in self._timed_watches)

    def stop_tracing(self) -> None:
        self._tracer.stop(sys._getframe())
        self._memory.history.drop()

    def _begin(self, phase: Phase) -> ProfilerSession:
        # it walks through all of Python's objects, a second for ten million
        with self._allowance.spending(), walk_once(*_WATCHED):
            return self._start(phase)

    def _start(self, phase: Phase) -> ProfilerSession:
        is_first = self._recordings.located is None
        if is_first:
            self._parts.signals.forget_uses()
            if not self._plan.is_light:
                self._gradients.begin()
                self._parts.denormals.look()
                self._parts.denormals.keep()
        are_large = is_first and self._prologue.was_filled_by_events
        is_second, trusts_pace = is_first and self._archive.is_second, is_first and self._knows_pace
        most_s = min(self._most_s, self._longest_s) if trusts_pace else self._most_s
        self._bounds.begin(is_first, are_large, is_second, most_s, self._cut_pace, trusts_pace=trusts_pace)
        recording = self._recordings.start(trees=is_first and self._gradients.is_on)
        if is_first and phase is Phase.LOCATED and not self._plan.is_light:
            self._calls.begin()
            self._functions.begin()
            self._padding.begin(with_modules=True)
        if recording.cuda:
            self._memory.failures.begin()
            self._parts.sampler.watch_gpu(environment.device_uuid())
        return recording

    @property
    def _most_s(self) -> float:
        """How long one step of the recording that begins now may last.

        If the program's steps may come in cycles, the measured ones leave half of the events for a recording of whole
        cycles. So none of them may last so long that it takes more, at the pace of the located one, had that not been
        recorded, but not at an impossible one. This does not concern steps that are all large. A long step that is
        recorded alone may take what is left, at the pace of steps with line marks."""
        located, left = self._recordings.located_events, self._allowance.events_left
        if self._recordings.located is None and self._plan.interlude is not None:
            return max(left / _TRACED_PER_S, _PART_S)
        if self._recordings.located is None:
            return inf if self._plan.one_in == 1 else max(left, MANY_EVENTS) / _TRACED_PER_S
        are_large = _AS_FORESEEN * located * self._plan.active > left // 2
        if self._was_step_left_out or are_large or not (self._plan.finds_cycles and located):
            return inf
        of_event_s = min(self._schedule.reference_step_ns, default=0) / 1e9 / located
        return left // 2 * max(of_event_s, 1 / _MOST_PER_S)

    @property
    def _is_affordable(self) -> bool:
        """Whether a recording may begin now. A program that ends once it is recorded does not wait, nor do ranks, which
        must record the same steps."""
        if self._plan.stops or self._plan.is_rank:
            return True
        if self._allowance.events_left < self._least_events:
            return False
        if not (self._archive.is_second or self._prologue.was_filled_by_events):
            return True
        return self._allowance.affords(self._schedule.reference_step_ns, self._a_part_will_do)

    @property
    def _knows_pace(self) -> bool:
        """Whether the steps make few events, though the recording of them grew."""
        return len(self._cut_events) >= _FEW_TRIES and max(self._cut_events) <= FEW_EVENTS

    @property
    def _longest_s(self) -> float:
        return _AS_LONG * max(self._schedule.reference_step_ns, default=0) / 1e9 or inf

    @property
    def _least_events(self) -> int:
        """How many must be left after the steps that were cut off."""
        return _TIMES_CUT * sum(self._cut_events)

    @property
    def _a_part_will_do(self) -> bool:
        """A part of a step never replaces an earlier recording, unless that holds none of what takes most of the
        time."""
        return not self._archive.is_second or self._plan.one_in > 1

    def _end_located(self) -> None:
        """Keep the located steps. Before steps are measured, operators that the stop cut off must end, and batches that
        workers loaded meanwhile must be used up."""
        self._bounds.end()
        self._recordings.keep_located(self._gradients.read)
        more = self._allowance.steps_left(self._recordings.located_events)
        self._schedule.limit_recorded(self._schedule.recorded + more)
        cut_off, ahead = self._recordings.cut_operators_off, self._parts.signals.batches_ahead
        following = self._schedule.let_settle(max(int(cut_off), ahead))
        if not self._schedule.is_settling:
            self._end_gradients()
            if not following.recorded:  # no measured step can be afforded
                self._recordings.drop_prologue()
                self.keep()

    def _end_watches(self, ended: Phase) -> None:
        if self._calls.is_installed or ended is Phase.LOCATED:  # it may have left within the step, its budget used
            with self._allowance.spending():
                self._calls.end_step()
            self._parts.denormals.add(self._calls.denormals)
            self._file.set(recomputation=self._calls.found, flow=self._calls.flow)
        if self._functions.is_installed:
            with self._allowance.spending():
                self._functions.end_step()
            self._file.set(repeated_calls=self._functions.found)
        if self._padding.is_begun:
            is_recorded = self._padding.must_copy and self._recordings.running is not None
            with self._allowance.spending(), pause_marked() if is_recorded else nullcontext():
                self._padding.end_step()
            self._file.set(padding=self._padding.found)
        self._charge_watches()
        if ended is Phase.LOCATED:
            self.stop_tracing()
        else:
            self._end_gradients()

    def _charge_watches(self) -> None:
        for watch in self._timed_watches:
            self._allowance.charge(watch.take_uncharged_s())

    def _end_gradients(self) -> None:
        """Note what became of the located step's gradients, which is known now."""
        if self._gradients.is_on:
            self._gradients.finish()
            self._file.set(gradients=self._gradients.use)
