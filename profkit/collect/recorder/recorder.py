"""One recording of a program, from its start to its files; told where steps end.

Everything here may raise; `profkit.collect.recorder.profiler` stands between it and the program.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from threading import current_thread, main_thread
from typing import Any

from psutil import Process  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.boundaries.choice import SignalChoice, Verdict
from profkit.collect.boundaries.cycles import CycleWatch
from profkit.collect.boundaries.recorded_thread import CUT_OFF, MISSED, RecordedThread
from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.boundaries.step_boundary import StepBoundary
from profkit.collect.census.names import Census
from profkit.collect.loaders.feeding import FeedingWatch
from profkit.collect.loaders.sites import LoaderSites
from profkit.collect.loaders.worker_watch import WorkerWatch
from profkit.collect.machine import environment
from profkit.collect.machine.page_faults import count_faults
from profkit.collect.machine.sampler import Sampler, rss_bytes_of
from profkit.collect.program.children import ProcessorTime
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.archive import Archive, Parts
from profkit.collect.recorder.census_times import CensusTimes
from profkit.collect.recorder.pause import Pause
from profkit.collect.recorder.prologue import MANY_EVENTS, Prologue
from profkit.collect.recorder.side_files import SideFiles
from profkit.collect.recorder.subject import Subject
from profkit.collect.recorder.watchdog import Watchdog
from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.bounds import MAX_EVENTS, Bounds
from profkit.collect.sessions.device_moments import read_clocks, take_moment
from profkit.collect.sessions.graph_size import is_larger
from profkit.collect.sessions.host_marks import free_cycles
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.sessions.session import ProfilerSession, is_capturing, pause_marked, when_cuda_starts
from profkit.collect.tensors.gradients import GradientWatch
from profkit.collect.tensors.recomputation import CallWatch
from profkit.plan import Plan
from profkit.source.growth import GrowthLines
from profkit.source.user_code import UserFiles

Progress = Callable[[str, int, int], None]
_FEW_EVENTS = 5_000
"""An eighth of a second's work in all: so small a step is recorded whatever was spent before."""
_NEVER_STEPPED = "an optimizer is there and did not step for a minute after the recording: its steps were not recorded"
_POSTPONED = "steps hold so much that their recording had to wait: it may add 5 s or a tenth to the program's time"


class Recorder:
    """`start`, then `take` each boundary that the program announces, then `finish`: all on one thread.

    Every signal of a step comes to `take` as a `StepBoundary`, and what it means is decided here: whether it is heard,
    whether it ends a step, and what the next step is. The parts are made in the order in which they need each other;
    what happens in one of them at a time of its own (a thread ends, lines are used up, CUDA starts) is told to a method
    of the recorder.

    ``over`` says that nothing is left to do but to `finish`, and ``on_over`` is called then; ``notes`` say what went
    wrong. ``replaces`` is the trace of an earlier recording, which stands until enough of this one was measured; both
    live on one ``allowance``. ``is_awaited`` says whether another recording is; ``wake`` interrupts a main thread that
    waits.
    """

    def __init__(  # noqa: PLR0913  # options by name
        self,
        directory: Path,
        plan: Plan,
        subject: Subject,
        guard: Guard,
        allowance: Allowance,
        *,
        on_progress: Progress | None,
        on_over: Callable[[], None],
        is_awaited: Callable[[], bool],
        wake: Callable[[], None],
        replaces: Path | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        self.over = self._busy = False
        self.notes = list(notes)
        self._plan, self._on_progress, self._on_over, self._allowance = plan, on_progress, on_over, allowance
        self._guard, self._is_second = guard, replaces is not None
        self._on_cuda = partial(guard, self._begin_with_cuda)
        self._files, self._processor_time = SideFiles(directory, subject), ProcessorTime()
        self._files.set(window=plan.window, signals_per_step=plan.every)
        self._is_user = is_user = UserFiles(subject.roots)

        self._schedule = schedule = Schedule(plan, take_moment)
        self.choice = SignalChoice(plan.chosen_signal, not plan.prologue, plan.every, plan.is_second)
        self.thread = RecordedThread(
            lambda: schedule.phase is Phase.PROLOGUE, partial(guard, self._leave_thread), wake
        )
        self._recordings = recordings = Recordings(directory, partial(guard, self._yield_to_program), allowance)
        self._tracer = tracer = LineTracer(
            is_user,
            plan.max_lines,
            plan.limit_s,
            on_end=partial(guard, self._on_lines_end),
            on_backward=self._on_backward,
        )
        self.cycles = CycleWatch(plan, schedule, lambda: recordings.located_events, self._events_left, is_awaited)
        self._make_watches(subject.generators)
        self.signals = self._make_signals(directory)
        parts = Parts(schedule, self.choice, self.signals, recordings, tracer, self._census, self._sampler)
        self._archive = Archive(self._files, parts, self.notes, replaces)
        self.pause = Pause(schedule, recordings, self._bounds, tracer)

    def _make_watches(self, generators: Callable[[], Iterable[Any]]) -> None:
        """What looks at the program while it runs, and at how much of it is recorded."""
        plan, tracer, cpus = self._plan, self._tracer, self._files.run.host.cpus if self._files.run.host else 1
        limits = plan.limit_s, partial(rss_bytes_of, Process())
        self._census = Census(self._is_user, GrowthLines(tracer.was_executed), generators)
        self._census_times = CensusTimes(self._census, self._schedule, self._files, plan)
        self._calls = CallWatch()
        self._gradients = GradientWatch(self._calls.aside)
        self._prologue = Prologue(self._recordings, tracer, *limits, self._allowance)
        self._bounds = Bounds(*limits)
        act = self.hears, partial(self._work, self._cut_off), self.thread.is_idle, self._move_on
        self._watchdog = Watchdog(self._prologue, self._bounds, tracer, self._guard, *act)
        self._sampler = Sampler(cpus, is_eager=plan.prologue, on_tick=self._watchdog.look)

    def _make_signals(self, directory: Path) -> StepSignals:
        recordings, guard = self._recordings, self._guard
        return StepSignals(
            self.take,
            guard,
            self.choice.chosen,
            self.pass_by,
            self._gradients,
            WorkerWatch(directory, self._is_user, guard),
            LoaderSites(self._is_user, guard),
            FeedingWatch(lambda: recordings.running is None),
        )

    def start(self) -> None:
        """Begin the prologue or, where the program ends its steps itself, the first step."""
        if not self._recordings.install():
            self.notes.append("the program runs a profiler of its own: nothing was recorded")
            self.over = True
            return
        self.signals.install()
        if self._plan.prologue:
            if current_thread() is main_thread():  # elsewhere nothing could end it
                self._prologue.begin()
            when_cuda_starts(self._on_cuda)
        else:
            self._enter(self._schedule.phase)
        self._sampler.start()
        self._schedule.begin(*read_clocks(self._recordings.running is not None))

    def step(self, boundary: StepBoundary) -> None:
        """The program says that a step ended."""
        verdict = self.take(boundary)
        if verdict is Verdict.FIRST:
            self.signals.skip_none()
        if verdict not in (Verdict.FIRST, Verdict.ENDS) and boundary.between is not None:
            boundary.between()

    def take(self, boundary: StepBoundary) -> Verdict:
        """A signal came: decide what it means, and do it."""
        verdict = self._judge(boundary)
        if verdict is Verdict.OUTDONE:
            self._outdo()
        elif verdict is Verdict.FIRST or (verdict is Verdict.ENDS and (boundary.between or not self._passes())):
            ended_ns = boundary.time_ns - self._calls.take_spent_ns()
            self._work(lambda: self._turn(boundary, (ended_ns, count_faults()), verdict is Verdict.FIRST))
        return verdict

    def pass_by(self) -> int:
        """All that there is to the ends of steps of the optimizer that nobody records, which no step may feel: how many
        these are, the one that ends now and those of the next that need not be told of; else 0."""
        return self._passes(True) if self.choice.is_each_update and self.thread.is_current else 0

    def begin_pause(self) -> None:
        """What follows, up to `end_pause`, belongs to no step."""
        if self.hears() and self.pause.begin():
            free_cycles()
            self._keep(self._schedule.step)
            self._schedule.let_settle(0)

    def end_pause(self) -> None:
        if self.pause.is_on:
            self._enter(self._schedule.phase)
            self.pause.end()
            self._schedule.begin(*read_clocks(self._recordings.running is not None))

    def finish(self, exit_status: int | None = None, notes: Iterable[str] = (), was_stopped: bool = False) -> None:
        """Keep what was recorded, however far it came, and write all files."""
        self.notes += notes
        if not self.over:
            self._end()
        self._archive.conclude(self._is_user)
        was_outdone = was_stopped and self.choice.awaits_optimizer
        self.notes += [_NEVER_STEPPED] if was_outdone else []
        own_ns, childrens_ns = self._processor_time.measure()
        self._files.set(
            exit_status=exit_status,
            was_stopped=was_stopped,
            was_outdone=was_outdone,
            own_cpu_ns=own_ns,
            children_cpu_ns=childrens_ns,
        )
        self.write()

    def abandon(self) -> None:
        """Remove everything from the program after an error, whatever state it left behind."""
        self.over = True
        parts = (self.signals.remove, self._stop_tracing, self._calls.stop, self._recordings.remove, self._sampler.stop)
        for remove in parts:
            with suppress(Exception):
                remove()

    def write(self) -> None:
        """Write the side files as of now."""
        self._archive.write(self.pause.notes)

    def hears(self) -> bool:
        """A boundary is one on the thread that is recorded, and none inside profkit's own work or a pause."""
        return not (self.over or self._busy or self.pause.is_on or not self.thread.is_current or is_capturing())

    def before_fork(self) -> None:
        """No thread may run, and the prologue pauses: a child that inherits it would record for as long as it lives."""
        self._sampler.suspend()
        self._prologue.break_off()

    def after_fork(self) -> None:
        """In the parent, which goes on."""
        self._prologue.go_on()
        self._sampler.resume()

    def disown(self) -> None:
        """In the child of a fork: remove everything, and leave the recording to the parent."""
        self.over = True
        self._tracer.pause()
        self._calls.stop()
        self.signals.remove()
        self._recordings.disown()

    def _judge(self, boundary: StepBoundary) -> Verdict:
        is_committed = self._schedule.recorded > 0
        if not self.choice.counts(boundary, is_committed):
            return Verdict.NOTHING
        if not self.hears():
            if self.thread.misses(boundary):
                self._watchdog.look()
            return Verdict.NOTHING
        return self.choice.judge(boundary, is_committed)

    def _passes(self, may_skip: bool = False) -> int:
        if self.over or self._busy or self.pause.is_on or self._on_progress or in_backward_pass():
            return 0
        at = time.perf_counter_ns(), count_faults
        return self._schedule.pass_by(*at, may_skip) or self.cycles.pass_by(*at)

    def _outdo(self) -> None:
        """The recording is to end here, and another to take its place."""
        if not self.over:
            self._end()
            self._on_over()

    def _leave_thread(self) -> None:
        """The recorded thread ended: where nothing of it was recorded yet, the next that ends a step is recorded."""
        if self._recordings.running is None and not self._schedule.recorded:
            self.choice.begin_anew()
            self.signals.begin_anew()
            self.thread.release()
        else:
            self._outdo()

    def _work(self, action: Callable[[], None]) -> None:
        """Nothing is heard meanwhile."""
        self._busy = True
        try:
            with self._calls.aside():
                action()
        finally:
            self._busy = False
        if self.over:
            self._on_over()

    def _turn(self, boundary: StepBoundary, at: tuple[int, int], is_first: bool) -> None:
        """From the end of one step to the beginning of the next."""
        ended = self._schedule.phase
        self._tracer.pause()
        if self._recordings.running is not None:
            self._recordings.running.end_step()
        moment = take_moment()
        is_due = self._census_times.are_due(ended)
        with pause_marked() if self._recordings.running is not None and (is_due or boundary.between) else nullcontext():
            self._census_times.after(ended, is_due, sys._getframe())
            if boundary.between is not None:
                boundary.between()
        if self._calls.is_installed:
            self._calls.end_step()
            self._files.set(recomputation=self._calls.found)
        if ended is Phase.LOCATED:
            self._stop_tracing()
        if is_first:
            self._drop_false_start(ended)
        if ended is not Phase.LOCATED:
            self._end_watch()
        schedule = self._schedule
        following = schedule.restart(self._recordings.cut_operators_off) if is_first else schedule.advance(*at, moment)
        if ended is Phase.LOCATED and following is not Phase.LOCATED:
            following = self._end_located()
        if ended is Phase.AFTER:
            following = self.cycles.look(self.choice.name)
        if self._on_progress is not None:
            self._on_progress(ended.value, *self._schedule.progress)
        self._enter(following)
        self._schedule.begin(*read_clocks(self._recordings.running is not None))

    def _drop_false_start(self, ended: Phase) -> None:
        """A better signal came: steps by a weaker one were none. The prologue holds the first step, and more."""
        if ended is Phase.PROLOGUE:
            self._prologue.close()
            self._tracer.notes.clear()
            self._schedule.limit_recorded(self._events_left() // max(self._prologue.events, 1))
        else:
            self._recordings.drop()
            self._calls.stop()
            self._census.forget()

    def _enter(self, phase: Phase) -> None:
        """Do what the step that begins needs."""
        if self._schedule.measured or (self._schedule.recorded and not self.choice.is_weak):
            self._recordings.drop_prologue()
        is_begun = self._schedule.recorded > 0 or self._recordings.running is not None
        if phase.recorded and not (is_begun or self._is_affordable()):
            self.notes += [] if _POSTPONED in self.notes else [_POSTPONED]
            phase = self._schedule.postpone()
        if phase.recorded:
            (self._recordings.running or self._begin_recording()).begin_step(self._schedule.step)
            if phase is Phase.LOCATED:
                self._tracer.start(sys._getframe(), self._plan.max_lines)
        elif self._recordings.running is not None:
            free_cycles()
            self._keep()
        if phase is Phase.DONE:
            self._leave()

    def _end_located(self) -> Phase:
        """What was open at the stop, and what workers loaded meanwhile, must be gone before steps are measured."""
        self._bounds.end()
        self._recordings.keep_located(self._gradients.read)
        more = self._events_left() // max(self._recordings.located_events, 1)
        self._schedule.limit_recorded(self._schedule.recorded + more)
        following = self._schedule.let_settle(max(int(self._recordings.cut_operators_off), self.signals.batches_ahead))
        if not self._schedule.is_settling:
            self._end_watch()
            if not following.recorded:  # no measured step can be afforded
                self._recordings.drop_prologue()
                self._keep()
        return following

    def _end_watch(self) -> None:
        """What became of the located step's gradients is known now."""
        if self._gradients.is_on:
            self._gradients.finish()
            self._files.set(gradients=self._gradients.use)

    def _begin_recording(self) -> ProfilerSession:
        is_first = self._recordings.located is None
        if is_first:
            self.signals.forget_uses()
            self._gradients.begin()
        allowance, are_large = self._allowance, is_first and self._prologue.was_filled_by_events
        per_s = allowance.events_per_s if are_large or (is_first and self._is_second) else 0.0
        events = self._events_left() // (2 if are_large else 1)  # half for what it may hold more before it is cut
        self._bounds.begin(events, are_large, per_s, is_first, allowance.event_bytes)
        recording = self._recordings.start()
        if is_first and self._schedule.phase is Phase.LOCATED:
            self._calls.begin()
        if recording.cuda:
            self._sampler.watch_gpu(environment.device_uuid())
        return recording

    def _events_left(self) -> int:
        return min(MAX_EVENTS, self._allowance.events_left)

    def _is_affordable(self) -> bool:
        """Whether a recording that begins now may hold a step or, where none did fit into the prologue, enough of one.
        A part of one takes no earlier recording's place. Who asked for the program's end does not wait."""
        if self._plan.stops or not (self._is_second or self._prologue.was_filled_by_events):
            return True
        passed_ns, left = self._schedule.reference_step_ns, self._events_left()
        foreseen = self._allowance.events_per_s * median(passed_ns) / 1e9 if passed_ns else inf
        return foreseen <= max(left, _FEW_EVENTS) or (left >= MANY_EVENTS and not self._is_second)

    def _keep(self, unfinished_step: int | None = None) -> None:
        self._bounds.end()
        self._archive.keep(unfinished_step, self.pause.notes)

    def _end(self) -> None:
        """The recording ends here."""
        if self._recordings.running is None or self.thread.is_current:
            self._conclude()
        else:
            self.notes.append(CUT_OFF)
            self._recordings.lose()
        self._leave()

    def _conclude(self) -> None:
        """Keep the complete steps, else the prologue, else the part of a step there is."""
        phase, complete = self._schedule.phase, self._schedule.recorded
        self._stop_tracing()
        if phase in (Phase.AFTER, Phase.DONE):
            return
        if phase is Phase.PROLOGUE:
            self.notes += [MISSED] if self.thread.others_step else []
            self._archive.note_what_is_missing(self._prologue.was_full, self._prologue.was_renewed)
            free_cycles()
            self._prologue.close()
        elif not complete:
            self._archive.note_what_is_missing(None)
        self._keep(unfinished_step=self._schedule.step if complete else None)

    def _yield_to_program(self) -> None:
        """The program is about to start a profiler of its own, which would not survive a second one."""
        if not self.over:
            self.notes.append("the program started a profiler of its own: the recording ended there")
            self._outdo()

    def _move_on(self) -> None:
        """The recorded thread only waits: where the next step ends the recording begins."""
        if self.thread.is_waiting():
            self._work(self._prologue.close)
            self.thread.release()
            if not self.thread.others_step:
                self._listen_to_forwards()

    def _cut_off(self) -> None:
        if self._schedule.phase is Phase.PROLOGUE:
            if self._prologue.look_at():
                self._listen_to_forwards()
        elif self._bounds.are_exceeded(self._tracer.has_ended):
            self._cut_step_off()

    def _on_lines_end(self) -> None:
        self._watchdog.lines_ended()

    def _on_backward(self, roots: object) -> None:
        self._guard(lambda: self._before_backward(roots))

    def _begin_with_cuda(self) -> None:
        self._prologue.record_cuda()

    def _listen_to_forwards(self) -> None:
        """Nothing better came for long."""
        if self.choice.is_open:
            self.signals.listen_to_forwards()

    def _before_backward(self, roots: object) -> None:
        """A pass that leaves more events than may be recorded is not entered: nothing could end it."""
        if self._recordings.running is None or in_backward_pass() or not self.hears():
            return
        with self._allowance.spending(), pause_marked():
            most = self._events_left() // 2  # half is for what went before it
            is_too_large = is_larger(roots, max(most, _FEW_EVENTS))
        if not is_too_large:
            return
        if self._schedule.phase is not Phase.PROLOGUE:
            self._work(self._cut_step_off)
        else:
            self._work(self._prologue.end)
            self._listen_to_forwards()

    def _cut_step_off(self) -> None:
        self.notes.append("a step was so long that the recording was ended in the middle of it")
        self._stop_tracing()
        if self._schedule.recorded:
            self._recordings.drop_prologue()
        else:
            self._files.set(is_part=self._recordings.keep_part())
        self._end()

    def _stop_tracing(self) -> None:
        self._tracer.stop(sys._getframe())

    def _leave(self) -> None:
        """Remove everything from the program: from here on it runs as if profkit were not there."""
        self.over = True
        self.signals.remove()
        self._calls.stop()
        self._recordings.remove()
        self._sampler.stop()
