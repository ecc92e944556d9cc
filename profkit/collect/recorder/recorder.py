"""One recording of a program, from its start to its files: what each step boundary means, and what follows from it.

Everything here may raise; `profkit.collect.recorder.profiler` guards the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import median
from threading import current_thread, main_thread
from typing import Any

from msgspec.structs import replace
from psutil import Process  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.boundaries.choice import SignalChoice, StepBoundary, Verdict
from profkit.collect.boundaries.cycles import CycleWatch
from profkit.collect.boundaries.loop_rounds import Loop
from profkit.collect.boundaries.recorded_thread import CUT_OFF, MISSED, RecordedThread
from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.boundaries.signals import LoaderWatches, StepSignals
from profkit.collect.census.names import Census
from profkit.collect.functions.watch import FunctionWatch
from profkit.collect.loaders.feeding import FeedingWatch
from profkit.collect.loaders.sites import LoaderSites
from profkit.collect.loaders.worker_watch import WorkerWatch
from profkit.collect.machine.page_faults import count_crowded_ns, count_faults
from profkit.collect.machine.sampler import Sampler, rss_bytes_of
from profkit.collect.memory.watch import MemoryWatch
from profkit.collect.program.children import ProcessorTime
from profkit.collect.program.clocks import time
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.archive import Archive, Parts, RunFile
from profkit.collect.recorder.phase_recordings import PhaseRecordings
from profkit.collect.recorder.prologue import Prologue
from profkit.collect.recorder.watchdog import Watchdog
from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.bounds import Bounds
from profkit.collect.sessions.device_moments import read_clocks, take_moment
from profkit.collect.sessions.held_memory import HeldMemory
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.sessions.session import is_capturing, when_cuda_starts
from profkit.collect.stacks.requests import StackRequests
from profkit.collect.tensors.denormals import DenormalWatch
from profkit.collect.tensors.gradients import GradientWatch
from profkit.collect.tensors.padding import PaddingWatch
from profkit.collect.tensors.recomputation import CallWatch
from profkit.run.plan import ROUND, Plan, Subject
from profkit.source.growth import GrowthLines
from profkit.source.user_code import UserFiles

Progress = Callable[[str, int, int], None]
_LAST = 30
"""Steps that tell how long one takes: all that are kept of a program before its recording."""
_NEVER_STEPPED = "the optimizer did not step for a minute after the recording: its steps were not recorded"


class Recorder:
    """Call `start`, then `step` where the program announces the end of a step, then `finish`: all on one thread.

    Every step signal arrives in `take` as a `StepBoundary`. The recorder decides whether to hear it, whether it ends a
    step, and what the next step is; `PhaseRecordings` decides what to record of each step. The parts are made in the
    order of their dependencies. Events in a part that come at any time (a thread ends, lines run out, CUDA starts) call
    a method of the recorder.

    When ``over``, only `finish` is left to do; ``on_over`` is called then. ``replaces`` is the trace of an earlier
    recording, which stays until enough of this one is measured; both share one ``allowance``. ``is_awaited`` says
    whether another recording is due. ``wake`` interrupts a waiting main thread. ``notes`` are the first of the run.
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
        replaces: Path | None,
        notes: Iterable[str],
    ) -> None:
        self.over = self._busy = False
        self._plan, self._guard, self._on_progress, self._on_over = plan, guard, on_progress, on_over
        self._notes, self._file, self._processor_time = list(notes), RunFile(subject), ProcessorTime()
        self._file.set(window=plan.window, signals_per_step=plan.every, is_light=plan.is_light)
        self._file.set(one_in=plan.one_in, share_of_time=plan.share_of_time, interlude=plan.interlude, **plan.earlier)
        is_user, limits = UserFiles(subject.roots), (plan.limit_s, HeldMemory(partial(rss_bytes_of, Process())))

        self._schedule = schedule = Schedule(plan, take_moment)
        self.choice = SignalChoice(plan.chosen_signal, not plan.prologue, plan.every, plan.is_second, plan.ended_by)
        self.thread = RecordedThread(lambda: schedule.phase is Phase.PROLOGUE, partial(guard, self._leave_thread), wake)
        gives_way = partial(guard, self._yield_to_program)
        self._recordings = recordings = Recordings(directory, gives_way, allowance, plan.is_light)
        self._tracer = tracer = self._make_tracer(is_user)
        self.cycles = CycleWatch(plan, schedule, recordings, lambda: allowance.events_left, is_awaited)
        self._calls = calls = CallWatch()
        gradients, self._padding = GradientWatch(calls.aside), PaddingWatch(calls.aside, is_user, guard)
        self._prologue = prologue = Prologue(recordings, tracer, *limits, allowance, denormals := DenormalWatch())
        self._on_cuda = partial(guard, self._when_cuda_starts)
        self._bounds = bounds = Bounds(*limits, allowance, partial(guard, self._look), self._watched_s, calls.seen)
        act = self.hears, partial(self._work, self._cut_off), self._move_on
        self._watchdog = Watchdog(prologue, bounds, tracer, self.thread, guard, *act)
        self._sampler = Sampler(self._file.cpus, self._look, prologue.is_recorded)
        self.signals = self._make_signals(directory, gradients, is_user)
        self._stacks = StackRequests(directory, plan.samples_stacks, schedule, self._use_workers)
        self._memory = memory = MemoryWatch(directory, is_user)
        census = Census(is_user, GrowthLines(tracer.was_executed), subject.generators)
        seen = recordings, prologue, tracer, census, self._sampler, memory, calls, FunctionWatch(is_user)
        parts = Parts(schedule, self.choice, self.signals, *seen, gradients, self._padding, denormals)
        self._archive = Archive(directory, self._file, parts, is_user, self._notes, replaces)
        self._phases = PhaseRecordings(plan, allowance, bounds, parts, self._archive, self._file, self._notes)

    def _watched_s(self) -> float:
        return self._phases.watched_s

    def _make_tracer(self, is_user: UserFiles) -> LineTracer:
        return LineTracer(
            is_user,
            self._plan.max_lines,
            self._plan.limit_s,
            on_end=lambda: self._guard(self._watchdog.lines_ended),  # made later
            on_backward=lambda roots: self._guard(partial(self._before_backward, roots)),
        )

    def _make_signals(self, directory: Path, gradients: GradientWatch, is_user: UserFiles) -> StepSignals:
        recordings, guard = self._recordings, self._guard
        return StepSignals(
            self.take,
            guard,
            self.choice.chosen,
            self.pass_by,
            gradients,
            LoaderWatches(
                WorkerWatch(directory, is_user, guard),
                LoaderSites(is_user, guard),
                FeedingWatch(lambda: recordings.running is None),
                self._padding.note_batch,
            ),
            self._plan.ended_by,
        )

    def start(self) -> None:
        """Begin the prologue or, if the plan has none, the first step."""
        if not self._recordings.install():
            self._notes.append("the program runs its own profiler: nothing was recorded")
            self.over = True
            return
        self.signals.install()
        if self._plan.interlude is None:  # else the recording of the steps still watches them
            self._memory.failures.begin()
        if self._plan.prologue:
            if current_thread() is main_thread():  # on another thread nothing could end it
                self._prologue.begin(is_recorded=not self._plan.is_light)
            when_cuda_starts(self._on_cuda)
            if not self._plan.is_light:
                self._padding.begin(with_modules=False)
        else:
            self._phases.enter()
        self._sampler.start()
        self._begin_step()

    def step(self, boundary: StepBoundary) -> None:
        """The program announces the end of a step."""
        verdict = self.take(boundary)
        if verdict is Verdict.FIRST:
            self.signals.skip_none()
        if verdict not in (Verdict.FIRST, Verdict.ENDS) and boundary.between is not None:
            boundary.between()

    def hear(self, boundary: StepBoundary) -> None:
        """The end of a step, which may end the recording."""
        self.take(boundary)

    def take(self, boundary: StepBoundary) -> Verdict:
        """A signal came: decide what it means and act on it."""
        verdict = self._judge(boundary)
        if verdict is Verdict.OUTDONE:
            self._outdo()
        elif verdict is Verdict.FIRST or (verdict is Verdict.ENDS and (boundary.between or not self._passes())):
            ended_ns = boundary.time_ns - self._calls.take_spent_ns()
            self._work(lambda: self._turn(boundary, (ended_ns, count_faults()), verdict is Verdict.FIRST))
        return verdict

    def pass_by(self) -> int:
        """A shortcut for unrecorded optimizer steps, which must not be slowed down. Return how many steps it counted:
        this one, and possibly some of the next, which need no call. 0 means that this step must go through `take`."""
        return self._passes(True) if self.choice.is_each_update and self.thread.is_current else 0

    def begin_pause(self) -> None:
        """The work up to `end_pause` belongs to no step."""
        if self.hears():
            self._phases.pause()

    def end_pause(self) -> None:
        if self._phases.is_paused:
            self._phases.resume()
            self._begin_step()

    def finish(
        self,
        exit_status: int | None = None,
        notes: Iterable[str] = (),
        was_stopped: bool = False,
        error: BaseException | None = None,
    ) -> None:
        """Keep what was recorded so far and write all files. ``error`` ended the program."""
        self._notes += notes
        if not self.over:
            self._end()
        self._archive.conclude()
        was_outdone = was_stopped and self.choice.awaits_optimizer
        self._notes += [_NEVER_STEPPED] if was_outdone else []
        self._memory.end()
        own_ns, childrens_ns = self._processor_time.measure()
        self._file.set(
            exit_status=exit_status,
            was_stopped=was_stopped,
            was_outdone=was_outdone,
            out_of_memory=self._memory.failures.conclude(error),
            own_cpu_ns=own_ns,
            children_cpu_ns=childrens_ns,
        )
        self._archive.write()

    def take_back(self, note: str) -> None:
        """Leave out a note that a later one tells better."""
        self._notes[:] = [one for one in self._notes if one != note]

    def abandon(self, note: str) -> None:
        """After an error, in whatever state: remove everything from the program and write what there is."""
        self._notes.append(note)
        with suppress(Exception):
            self._phases.stop_tracing()
        self._memory.end()
        self._leave(suppress(Exception))
        self._archive.write()

    def disown(self) -> None:
        """In the child of a fork: remove everything and leave the recording to the parent."""
        self._tracer.pause()
        self._phases.disown()
        self._memory.failures.end()
        self._recordings.disown()
        self._leave()

    @property
    def timed_behind(self) -> tuple[list[int], int, int]:
        """How long each of the steps behind the recorded ones took, when the last of them ended, and how many signals
        ended one."""
        return self._schedule.after_ns, self._schedule.timed_until_ns, self._file.run.signals_per_step

    @property
    def pace(self) -> tuple[int, int]:
        """When the last step ended, by the performance counter, and how long one takes, in nanoseconds; any thread may
        ask. Both are 0 until steps are recorded."""
        took_ns = self._schedule.reference_step_ns[-_LAST:]
        return (self._schedule.begun_ns, int(median(took_ns))) if took_ns and self.has_steps else (0, 0)

    @property
    def records_single_steps(self) -> bool:
        """Whether each end of a step is one in the recording, so that no step holds what passes between others."""
        return self._file.run.signals_per_step == 1 and self._file.run.one_in == 1

    @property
    def is_timing(self) -> bool:
        """Whether the steps are recorded, and those behind them are being timed; any thread may ask."""
        return self._schedule.phase is Phase.AFTER

    def end_here(self) -> None:
        """End the recording, of which what there is by now is kept."""
        if not self.over:
            self._end()

    def step_by_rounds(self, loop: Loop, on_round: Callable[[], None]) -> None:
        """Rounds of the loop end the steps, not what the plan says. ``on_round`` is called in them while lines are
        located; the caller tells of the ends."""
        self.choice.choose(ROUND)
        self._tracer.await_line(loop.code, loop.line, on_round)

    @property
    def locates(self) -> bool:
        """Whether lines are being located."""
        return self._tracer.active

    def suspend(self) -> None:
        """Hear of no step that ends up to `resume`: what passes meanwhile belongs to the current one."""
        if not self.over:
            self.signals.remove()
            self._recordings.remove()
            self._sampler.suspend()

    def resume(self, ended: StepBoundary | None) -> None:
        """Go on; the current step ``ended`` there if it did."""
        if not self.over:
            self.signals.install()
            self._sampler.resume()
            if not self._recordings.install():
                self._yield_to_program()
            elif ended is not None:
                self.take(ended)

    def note_interlude(self, time_ns: int) -> None:
        """How long what was recorded between the steps went on in all."""
        if self._plan.interlude is not None:
            self._file.set(interlude=replace(self._plan.interlude, time_ns=time_ns))

    @property
    def has_steps(self) -> bool:
        """Whether steps were recorded."""
        return self._schedule.recorded > 0

    @property
    def is_part(self) -> bool:
        """Whether a part of a step was recorded."""
        return self._file.run.is_part

    def hears(self) -> bool:
        """Whether a boundary here and now counts: on the recorded thread, outside profkit's own work and pauses."""
        return not (self.over or self._busy or self._phases.is_paused or not self.thread.is_current or is_capturing())

    def before_fork(self) -> None:
        """Stop the sampling thread and pause the prologue: a child that inherited it would record for all its life."""
        self._sampler.suspend()
        self._bounds.before_fork()
        self._prologue.break_off()

    def after_fork(self) -> None:
        """In the parent: go on."""
        self._prologue.go_on()
        self._sampler.resume()

    def _judge(self, boundary: StepBoundary) -> Verdict:
        is_committed = self._schedule.recorded > 0
        if not self.choice.counts(boundary, is_committed):
            return Verdict.NOTHING
        if not self.hears():
            if self.thread.misses(boundary):
                self._watchdog.look()
            return Verdict.NOTHING
        if boundary.is_successor and not self._may_be_succeeded:
            boundary = replace(boundary, is_successor=False)
        return self.choice.judge(boundary, is_committed)

    @property
    def _may_be_succeeded(self) -> bool:
        """Whether the steps of another optimizer may count instead: the recording is not complete, another may begin,
        and ranks need not record the same steps."""
        is_complete = self._schedule.phase in (Phase.AFTER, Phase.DONE)
        return not is_complete and self.cycles.may_begin and not self.cycles.plan.is_rank

    def _passes(self, may_skip: bool = False) -> int:
        if self.over or self._busy or self._phases.is_paused or in_backward_pass():
            return 0
        at, phase = (time.perf_counter_ns(), count_faults), self._schedule.phase
        if phase is Phase.AFTER:  # there is no progress to show, and thousands of these steps follow
            return self.cycles.pass_by(*at)
        may_skip = may_skip and self._on_progress is None  # it hears of every step
        passed = self._schedule.pass_by(*at, may_skip)
        if passed and self._on_progress is not None:
            self._on_progress(phase.value, *self._schedule.progress)
        return passed

    def _work(self, action: Callable[[], None]) -> None:
        """Run ``action`` without hearing any boundary."""
        self._busy = True
        try:
            with self._calls.aside():
                action()
        finally:
            self._busy = False
        if self.over:
            self._on_over()

    def _turn(self, boundary: StepBoundary, at: tuple[int, int], is_first: bool) -> None:
        """Move from the end of one step to the beginning of the next."""
        ended = self._schedule.phase
        crowded_ns = count_crowded_ns() if ended.recorded else None
        moment = self._phases.end_step(boundary.between)
        if is_first:
            self._phases.restart()
        else:
            self._phases.advance(*at, moment, crowded_ns)
        if ended is Phase.AFTER:
            self.cycles.look(self.choice.name)
        if self._on_progress is not None:
            self._on_progress(ended.value, *self._schedule.progress)
        self._phases.enter()
        self._begin_step()

    def _look(self) -> None:
        self._watchdog.look()
        self._guard(self._stacks.look)

    def _use_workers(self) -> bool:
        return any(loader.workers for loader in self.signals.loaders)

    def _begin_step(self) -> None:
        if self._schedule.phase is Phase.DONE:
            self._leave()
        else:
            self._stacks.enter()
        self._schedule.begin(*read_clocks(self._recordings.running is not None))

    def _outdo(self) -> None:
        """End the recording here; another is to replace it."""
        if not self.over:
            self._end()
            self._on_over()

    def _end(self) -> None:
        if self._recordings.running is None or self.thread.is_current:
            if self._schedule.phase is Phase.PROLOGUE and self.thread.others_step:
                self._notes.append(MISSED)
            self._phases.conclude()
        else:
            self._notes.append(CUT_OFF)
            self._recordings.lose()
        self._leave()

    def _leave(self, each: AbstractContextManager[None] | None = None) -> None:
        """Remove everything from the program, which from here on runs as if profkit were not there."""
        self.over = True
        for remove in (
            self.signals.remove,
            self._calls.stop,
            self._padding.stop,
            self._bounds.end,
            self._recordings.remove,
            self._sampler.stop,
            self._stacks.end,
        ):
            with each or nullcontext():
                remove()

    def _leave_thread(self) -> None:
        """The recorded thread ended. If nothing of it was recorded, record the next thread that ends a step."""
        if self._recordings.running is None and not self._schedule.recorded:
            self.choice.begin_again()
            self.signals.forget_first()
            self.thread.release()
        else:
            self._outdo()

    def _move_on(self) -> None:
        """The recorded thread only waits: record the thread on which the next step ends."""
        if self.thread.is_waiting():
            self._work(self._prologue.close)
            self.thread.release()
            if not self.thread.others_step:
                self._listen_to_forwards()

    def _yield_to_program(self) -> None:
        """The program is about to start its own profiler, which would not work beside a second one."""
        if not self.over:
            self._notes.append("the program started its own profiler: the recording ended there")
            self._outdo()

    def _when_cuda_starts(self) -> None:
        self._memory.failures.begin(cuda_starts=True)
        self._prologue.record_cuda()

    def _before_backward(self, roots: Any) -> None:
        """End the recording before a backward pass that would take too many events, as nothing can interrupt it."""
        if self._recordings.running is None or in_backward_pass() or not self.hears():
            return
        foreseen = self._phases.foresee_too_much(roots)
        if not foreseen:
            return
        if self._schedule.phase is not Phase.PROLOGUE:
            self._work(partial(self._cut_step_off, foreseen))
        else:
            self._work(self._prologue.end)
            self._listen_to_forwards()

    def _cut_off(self) -> None:
        """End the recording if it has grown too large within a step."""
        if self._schedule.phase is not Phase.PROLOGUE:
            if self._bounds.are_exceeded(self._tracer.has_spent_most):
                self._cut_step_off()
        elif self._prologue.look_at():
            self._listen_to_forwards()

    def _cut_step_off(self, foreseen: int = 0) -> None:
        if not (self._phases.put_off(foreseen) or self._phases.leave_step_out()):
            self._phases.cut_step_off()
            self._end()

    def _listen_to_forwards(self) -> None:
        """Make calls of the model signals, as nothing better has come for a long time."""
        if self.choice.is_open:
            self.signals.listen_to_forwards()
