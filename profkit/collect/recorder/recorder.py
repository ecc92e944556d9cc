"""One recording of a program, from its start to its files; told where steps end.

Everything here may raise; `profkit.collect.recorder.profiler` stands between it and the program.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from math import inf
from pathlib import Path
from statistics import median
from threading import current_thread, main_thread

from torch.optim.optimizer import Optimizer

from profkit.collect.boundaries.cycles import CycleWatch
from profkit.collect.boundaries.recorded_thread import CUT_OFF, MISSED, RecordedThread
from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.census.names import Census
from profkit.collect.loaders.feeding import FeedingWatch
from profkit.collect.loaders.sites import LoaderSites
from profkit.collect.loaders.worker_watch import WorkerWatch
from profkit.collect.machine import environment
from profkit.collect.machine.page_faults import count_faults
from profkit.collect.machine.sampler import Sampler
from profkit.collect.program.children import ProcessorTime
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.archive import Archive
from profkit.collect.recorder.census_times import Looks
from profkit.collect.recorder.forking import Forking
from profkit.collect.recorder.pause import Interlude
from profkit.collect.recorder.prologue import MANY_EVENTS, Opening
from profkit.collect.recorder.side_files import SideFiles
from profkit.collect.recorder.subject import Subject
from profkit.collect.recorder.watchdog import Watchdog
from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.bounds import MAX_EVENTS, Bounds
from profkit.collect.sessions.device_moments import read_clocks, take_moment
from profkit.collect.sessions.graph_size import is_larger
from profkit.collect.sessions.host_marks import free_cycles
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Tape
from profkit.collect.sessions.session import Recording, is_capturing, pause_marked, when_cuda_starts
from profkit.collect.tensors.gradients import GradientWatch
from profkit.collect.tensors.recomputation import CallWatch
from profkit.plan import EXPLICIT, Plan
from profkit.source.growth import GrowthLines
from profkit.source.user_code import UserFiles

Progress = Callable[[str, int, int], None]
_FEW_EVENTS = 5_000
"""An eighth of a second's work in all: so small a step is recorded whatever was spent before."""
_NEVER_STEPPED = "an optimizer is there and did not step for a minute after the recording: its steps were not recorded"
_POSTPONED = "steps hold so much that their recording had to wait: it may add 5 s or a tenth to the program's time"


class Recorder:
    """`start`, then `step` for each step that the program ends itself, then `finish`: all on one thread.

    ``over`` says that nothing is left to do but to `finish`, and ``on_over`` is called then; ``notes`` say what went
    wrong. ``replaces`` is the trace of an earlier recording, which stands until enough of this one was measured; both
    live on one ``allowance``.
    """

    def __init__(
        self,
        directory: Path,
        plan: Plan,
        subject: Subject,
        guard: Guard,
        on_progress: Progress | None = None,
        on_over: Callable[[], None] = lambda: None,
        replaces: Path | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.over = self._busy = False
        self._plan, self._on_progress, self._on_over = plan, on_progress, on_over
        self._files, self._processor_time = SideFiles(directory, subject), ProcessorTime()
        self._files.set(window=plan.window, signals_per_step=plan.every)
        self._schedule = Schedule(plan, take_moment)
        self._is_user = is_user = UserFiles(subject.roots)
        self._tracer = LineTracer(self._is_user, plan.max_lines, plan.limit_s)
        self._census = Census(self._is_user, GrowthLines(self._tracer.was_executed), subject.generators)
        self._looks = Looks(self._census, self._schedule, self._files, plan)
        self._allowance = allowance = allowance or Allowance()
        self._tape = Tape(directory, lambda: guard(self._yield_to_program), allowance)
        workers, sites = WorkerWatch(directory, is_user, guard), LoaderSites(is_user, guard)
        self.signals = StepSignals(self, guard, workers, sites, FeedingWatch(lambda: self._tape.running is None))
        self._sampler = Sampler(self._files.run.host.cpus if self._files.run.host else 1, is_eager=plan.opening)
        self._opening = Opening(self._tape, self._tracer, plan.limit_s, self._sampler.measure_rss_bytes, allowance)
        self._bounds = Bounds(plan.limit_s, self._sampler.measure_rss_bytes)
        parts = (self._schedule, self.signals, self._tape, self._tracer, self._census, self._sampler)
        self._archive = Archive(self._files, *parts)
        self._archive.replaces, self.notes = replaces, self._archive.notes
        self._gradients, self._calls = GradientWatch(), CallWatch()
        self.cycles = CycleWatch(plan, self._schedule, lambda: self._tape.located_events, self._events_left)
        self.aside = Interlude(self._schedule, self._tape, self._bounds, self._stop_tracing, self._keep, self._enter)
        self.forking = Forking(self._sampler, self._opening, self._tracer, self.signals, self._tape, self._calls)
        self.thread = RecordedThread(lambda: self._schedule.phase is Phase.OPENING, lambda: guard(self._leave_thread))
        act = self.hears, lambda: self._work(self._cut_off), self.thread.is_idle, self._move_on
        self._sampler.on_tick = self.thread.tell = Watchdog(self._opening, self._bounds, self._tracer, guard, *act).look
        self._tracer.on_backward = lambda roots: guard(lambda: self._before_backward(roots))
        self._on_cuda = lambda: guard(self._opening.record_cuda)
        self.misses = self.thread.misses
        self._between: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin the opening or, where the program ends its steps itself, the first step."""
        if not self._tape.install():
            self.notes.append("the program runs a profiler of its own: nothing was recorded")
            self.over = True
            return
        plan = self._plan
        self.signals.install(not plan.opening, plan.chosen_signal, plan.every, plan.is_second)
        if plan.opening:
            if current_thread() is main_thread():  # elsewhere nothing could end it
                self._opening.begin()
            when_cuda_starts(self._on_cuda)
        else:
            self._enter(self._schedule.phase)
        self._sampler.start()
        self._schedule.begin(*read_clocks(self._tape.running is not None))

    def step(self, between: Callable[[], None] | None = None) -> None:
        """The program says that a step ended. ``between`` is called before the next one begins."""
        self._between = between
        self.signals.give(EXPLICIT)
        self._call_between()

    def finish(self, exit_status: int | None = None, notes: Iterable[str] = (), was_stopped: bool = False) -> None:
        """Keep what was recorded, however far it came, and write all files."""
        self.notes += notes
        if not self.over:
            self._end()
        self._archive.conclude(self._is_user)
        was_outdone = was_stopped and self.signals.awaits_optimizer
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
        parts = (self.signals.remove, self._stop_tracing, self._calls.stop, self._tape.remove, self._sampler.stop)
        for remove in parts:
            with suppress(Exception):
                remove()

    def write(self) -> None:
        """Write the side files as of now."""
        self._archive.write(self.aside.notes)

    def hears(self) -> bool:
        """A boundary is one on the thread that is recorded, and none inside profkit's own work or an interlude."""
        return not (self.over or self._busy or self.aside.is_on or not self.thread.is_current or is_capturing())

    def passes_by(self) -> bool:
        """All that there is to the end of a step that nobody records, which no step may feel; else False."""
        is_unheard = self.over or self._busy or self.aside.is_on or not self.thread.is_current
        if is_unheard or self._between or self._on_progress or in_backward_pass():
            return False
        at = time.perf_counter_ns(), count_faults
        return self._schedule.pass_by(*at, self.signals.skip) or self.cycles.pass_by(*at)

    def is_committed(self) -> bool:
        return self._schedule.recorded > 0

    def outdone(self) -> None:
        if not self.over:
            self._end()
            self._on_over()

    def _leave_thread(self) -> None:
        """The recorded thread ended: where nothing of it was recorded yet, the next that ends a step is recorded."""
        if self._tape.running is None and not self._schedule.recorded:
            self.signals.begin_anew()
            self.thread.release()
        else:
            self.outdone()

    def end_step(self, is_first: bool) -> None:
        if not is_first and self.passes_by():
            return
        ended_ns = time.perf_counter_ns() - self._calls.take_spent_ns()
        self._work(lambda: self._turn((ended_ns, count_faults()), is_first))

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

    def _turn(self, at: tuple[int, int], is_first: bool) -> None:
        """From the end of one step to the beginning of the next."""
        ended = self._schedule.phase
        self._tracer.pause()
        if self._tape.running is not None:
            self._tape.running.end_step()
        moment = take_moment()
        is_due = self._looks.are_due(ended)
        with pause_marked() if self._tape.running is not None and (is_due or self._between) else nullcontext():
            self._looks.after(ended, is_due, sys._getframe())
            self._call_between()
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
        following = schedule.restart(self._tape.cut_operators_off) if is_first else schedule.advance(*at, moment)
        if ended is Phase.LOCATED and following is not Phase.LOCATED:
            following = self._end_located()
        if ended is Phase.AFTER:
            following = self.cycles.look(self.signals.name)
        if self._on_progress is not None:
            self._on_progress(ended.value, *self._schedule.progress)
        self._enter(following)
        self._schedule.begin(*read_clocks(self._tape.running is not None))

    def _drop_false_start(self, ended: Phase) -> None:
        """A better signal came: steps by a weaker one were none. The opening holds the first step, and more."""
        if ended is Phase.OPENING:
            self._opening.close()
            self._tracer.notes.clear()
            self._schedule.limit_recorded(self._events_left() // max(self._opening.events, 1))
        else:
            self._tape.drop()
            self._calls.stop()
            self._census.forget()

    def _enter(self, phase: Phase) -> None:
        """Do what the step that begins needs."""
        if self._schedule.measured or (self._schedule.recorded and not self.signals.is_weak):
            self._tape.drop_opening()
        if phase.recorded and self._tape.running is None and not (self._schedule.recorded or self._is_affordable()):
            self.notes += [] if _POSTPONED in self.notes else [_POSTPONED]
            phase = self._schedule.postpone()
        if phase.recorded:
            (self._tape.running or self._begin_recording()).begin_step(self._schedule.step)
            if phase is Phase.LOCATED:
                self._tracer.max_lines = self._plan.max_lines
                self._tracer.start(sys._getframe())
        elif self._tape.running is not None:
            free_cycles()
            self._keep()
        if phase is Phase.DONE:
            self._leave()

    def _end_located(self) -> Phase:
        """What was open at the stop, and what workers loaded meanwhile, must be gone before steps are measured."""
        self._bounds.end()
        self._tape.keep_located(self._gradients.read)
        more = self._events_left() // max(self._tape.located_events, 1)
        self._schedule.limit_recorded(self._schedule.recorded + more)
        following = self._schedule.let_settle(max(int(self._tape.cut_operators_off), self.signals.batches_ahead))
        if not self._schedule.is_settling:
            self._end_watch()
            if not following.recorded:  # no measured step can be afforded
                self._tape.drop_opening()
                self._keep()
        return following

    def _end_watch(self) -> None:
        """What became of the located step's gradients is known now."""
        if self._gradients.is_on:
            self._gradients.finish()
            self.signals.watch_optimizers(None)
            self._files.set(gradients=self._gradients.use)

    def _begin_recording(self) -> Recording:
        is_first = self._tape.located is None
        if is_first:
            self.signals.forget_uses()
            self._gradients.begin()
            self.signals.watch_optimizers(self._look_at_gradients)
        allowance, are_large = self._allowance, is_first and self._opening.was_filled_by_events
        per_s = allowance.events_per_s if are_large or (is_first and self._archive.replaces is not None) else 0.0
        events = self._events_left() // (2 if are_large else 1)  # half for what it may hold more before it is cut
        self._bounds.begin(events, are_large, per_s, is_first, allowance.event_bytes)
        recording = self._tape.start()
        if is_first and self._schedule.phase is Phase.LOCATED:
            self._calls.begin()
        if recording.cuda:
            self._sampler.watch_gpu(environment.device_uuid())
        return recording

    def _look_at_gradients(self, optimizer: Optimizer) -> None:
        with self._calls.aside():
            self._gradients.look(optimizer)

    def _events_left(self) -> int:
        return min(MAX_EVENTS, self._allowance.events_left)

    def _is_affordable(self) -> bool:
        """Whether a recording that begins now may hold a step or, where none did fit into the opening, enough of one.
        A part of one takes no earlier recording's place. Who asked for the program's end does not wait."""
        is_second = self._archive.replaces is not None
        if self._plan.stops or not (is_second or self._opening.was_filled_by_events):
            return True
        passed_ns, left = self._schedule.reference_step_ns, self._events_left()
        foreseen = self._allowance.events_per_s * median(passed_ns) / 1e9 if passed_ns else inf
        return foreseen <= max(left, _FEW_EVENTS) or (left >= MANY_EVENTS and not is_second)

    def _keep(self, unfinished_step: int | None = None) -> None:
        self._bounds.end()
        self._archive.keep(unfinished_step, self.aside.notes)

    def _end(self) -> None:
        """The recording ends here."""
        if self._tape.running is None or self.thread.is_current:
            self._conclude()
        else:
            self.notes.append(CUT_OFF)
            self._tape.lose()
        self._leave()

    def _conclude(self) -> None:
        """Keep the complete steps, else the opening, else the part of a step there is."""
        phase, complete = self._schedule.phase, self._schedule.recorded
        self._stop_tracing()
        if phase in (Phase.AFTER, Phase.DONE):
            return
        if phase is Phase.OPENING:
            self.notes += [MISSED] if self.thread.others_step else []
            self._archive.note_what_is_missing(self._opening.was_full, self._opening.was_renewed)
            free_cycles()
            self._opening.close()
        elif not complete:
            self._archive.note_what_is_missing(None)
        self._keep(unfinished_step=self._schedule.step if complete else None)

    def _yield_to_program(self) -> None:
        """The program is about to start a profiler of its own, which would not survive a second one."""
        if not self.over:
            self.notes.append("the program started a profiler of its own: the recording ended there")
            self.outdone()

    def _move_on(self) -> None:
        """The recorded thread only waits: where the next step ends the recording begins."""
        if self.thread.is_waiting():
            self._work(self._opening.close)
            self.thread.release()
            if not self.thread.others_step:
                self.signals.listen_to_forwards()

    def _cut_off(self) -> None:
        if self._schedule.phase is Phase.OPENING:
            if self._opening.look_at():
                self.signals.listen_to_forwards()
        elif self._bounds.are_exceeded(self._tracer.has_ended):
            self._cut_step_off()

    def _before_backward(self, roots: object) -> None:
        """A pass that leaves more events than may be recorded is not entered: nothing could end it."""
        if self._tape.running is None or in_backward_pass() or not self.hears():
            return
        with self._allowance.spending(), pause_marked():
            most = self._events_left() // 2  # half is for what went before it
            is_too_large = is_larger(roots, max(most, _FEW_EVENTS))
        if not is_too_large:
            return
        if self._schedule.phase is not Phase.OPENING:
            self._work(self._cut_step_off)
        else:
            self._work(self._opening.end)
            self.signals.listen_to_forwards()

    def _cut_step_off(self) -> None:
        self.notes.append("a step was so long that the recording was ended in the middle of it")
        self._stop_tracing()
        if self._schedule.recorded:
            self._tape.drop_opening()
        else:
            self._files.set(is_part=self._tape.keep_part())
        self._end()

    def _call_between(self) -> None:
        between, self._between = self._between, None
        if between is not None:
            between()

    def _stop_tracing(self) -> None:
        self._tracer.stop(sys._getframe())

    def _leave(self) -> None:
        """Remove everything from the program: from here on it runs as if profkit were not there."""
        self.over = True
        self.signals.remove()
        self._calls.stop()
        self._tape.remove()
        self._sampler.stop()
