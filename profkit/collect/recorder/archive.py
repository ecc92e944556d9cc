"""The files of a recording: its trace, the files beside it, and notes on what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profkit.collect.boundaries.choice import SignalChoice
from profkit.collect.boundaries.schedule import Schedule
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.census.names import Census
from profkit.collect.functions.watch import FunctionWatch
from profkit.collect.machine import environment
from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.machine.page_faults import measure_fault_ns
from profkit.collect.machine.rates import read_rates
from profkit.collect.machine.sampler import Sampler
from profkit.collect.memory.watch import MemoryWatch
from profkit.collect.program.clocks import time
from profkit.collect.program.compiled import read_compiled, read_generated_code
from profkit.collect.ranks.identity import RankWatch
from profkit.collect.recorder.prologue import Prologue
from profkit.collect.sessions.detaching import STAYS_ATTACHED, stays_attached
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.tensors.denormals import DenormalWatch
from profkit.collect.tensors.gradients import GradientWatch
from profkit.collect.tensors.padding import PaddingWatch
from profkit.collect.tensors.recomputation import CallWatch
from profkit.core.units import format_count, pick_form
from profkit.run.directory import (
    CALLSITES_FILE,
    DEVICE_MEMORY_FILE,
    LIVE_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    SOURCES_FILE,
    Run,
    Unwatched,
    Watch,
    save,
)
from profkit.run.plan import Subject
from profkit.source.code import lines_around
from profkit.source.index import forget_source_files
from profkit.source.remarks import review_sources, user_sources

_LONG = "fewer steps were recorded than planned, because they are long"
_DEAR = "fewer steps were recorded than planned, so that recording adds at most 5 s or a tenth to the program's time"


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a recording whose state the archive writes."""

    schedule: Schedule
    choice: SignalChoice
    signals: StepSignals
    recordings: Recordings
    prologue: Prologue
    tracer: LineTracer
    census: Census
    sampler: Sampler
    memory: MemoryWatch
    calls: CallWatch
    functions: FunctionWatch
    gradients: GradientWatch
    padding: PaddingWatch
    denormals: DenormalWatch


class RunFile:
    """``run`` is the content of ``run.json`` when it is next written."""

    def __init__(self, subject: Subject) -> None:
        run = environment.describe_run(subject.command, subject.target, subject.variant)
        self.run: Run = replace(run, rates=read_rates("cpu"))

    @property
    def cpus(self) -> int:
        """Of the machine; 1 if nothing is known of it."""
        return self.run.host.cpus if self.run.host else 1

    def set(self, **fields: Any) -> None:
        """Set fields of the run."""
        self.run = replace(self.run, **fields)


class Archive:
    """Writes the files of one recording into ``directory``, with all ``notes`` so far. If it ``replaces`` the trace of
    an earlier recording, that one stays until enough steps of this one are measured."""

    def __init__(
        self,
        directory: Path,
        file: RunFile,
        parts: Parts,
        is_user: Mapping[str, bool],
        notes: list[str],
        replaces: Path | None,
    ) -> None:
        self.is_second = replaces is not None
        self._rank = RankWatch(directory)
        self._directory, self._file, self._parts = directory, file, parts
        self._is_user, self._notes, self._replaces = is_user, notes, replaces

    def keep(self, unfinished_step: int | None = None) -> None:
        """Export the recording. From here on the files hold a whole run, whatever happens to the program."""
        parts, run = self._parts, self._file.run
        if self._stands_back:
            parts.recordings.drop()
            return
        is_prologue = parts.recordings.prologue is not None
        trace = parts.recordings.export(unfinished_step)
        if parts.schedule.was_cut_short:
            self._notes.append(_LONG if parts.schedule.took_long else _DEAR)
        if cuda_is_used() and stays_attached():
            self._notes.append(STAYS_ATTACHED)
        self._file.set(
            trace=trace,
            device=environment.device_name(),
            rates=(read_rates("cuda") if cuda_is_used() else None) or run.rates,
            flags=run.flags or environment.read_flags(),
            loaders=parts.signals.loaders,
            optimizers=parts.signals.optimizers,
            step_signal=None if is_prologue else parts.choice.name,
            page_fault_ns=measure_fault_ns(),
        )
        self.write()
        if self._replaces is not None:
            self._replaces.unlink(missing_ok=True)

    def note_what_is_missing(self, is_in_prologue: bool) -> None:
        """The program or its recording ended before a step was recorded, during the prologue or after it."""
        parts, prologue = self._parts, self._parts.prologue
        if parts.choice.is_missing:
            self._notes.append(f"no step ended by the requested signal: {parts.choice.chosen}")
        if not is_in_prologue:
            rest = "only a part of a step" if parts.recordings.running or parts.recordings.located else "nothing"
            part = "only the program's beginning" if parts.recordings.prologue else rest
            self._notes.append(f"{_unrecorded(parts.schedule.step)}: {part} was recorded")
        elif prologue.was_full:
            later = "a stretch of the program, and not its beginning,"
            part = later if prologue.was_renewed else "the beginning of the program"
            self._notes.append(f"no step ended for so long that only {part} was recorded")

    def conclude(self) -> None:
        """Wait until the device can report all its times, and add remarks on the user's sources."""
        self._parts.schedule.await_device()
        self._parts.memory.counts.read()
        if not self._file.run.is_light:
            self._file.set(remarks=review_sources(user_sources(self._is_user.__getitem__)))
            forget_source_files()

    def write(self) -> None:
        """Write the files beside the trace as of now, unless the trace is still an earlier recording's."""
        if self._stands_back or (self.is_second and self._file.run.trace is None):
            return
        parts = self._parts
        self._file.set(
            **parts.schedule.counted,
            timed_until_ns=_since_epoch_ns(parts.schedule.timed_until_ns),
            identity=self._rank.identity,
            feeding=parts.signals.feeding,
            unwatched=self._unwatched,
            denormals=parts.denormals.found,
            compiled=read_compiled(self._is_user.__getitem__),
            generated=read_generated_code(),
            notes=tuple(dict.fromkeys((*self._notes, *parts.tracer.notes, *parts.memory.notes))),
        )
        save(self._directory, RUN_FILE, self._file.run)
        save(self._directory, CALLSITES_FILE, parts.tracer.callsites)
        save(self._directory, SOURCES_FILE, lines_around((site.file, site.line) for site in parts.tracer.callsites))
        save(self._directory, LIVE_FILE, parts.census.samples)
        save(self._directory, SAMPLES_FILE, list(parts.sampler.samples))
        if parts.memory.counts.samples:
            save(self._directory, DEVICE_MEMORY_FILE, parts.memory.counts.samples)

    @property
    def _unwatched(self) -> tuple[Unwatched, ...]:
        """What stopped the watches of this recording early."""
        parts = self._parts
        known = {
            Watch.CALLS: parts.calls.budget.ended,
            Watch.FUNCTIONS: parts.functions.ended,
            Watch.GRADIENTS: parts.gradients.ended,
            Watch.PADDING: parts.padding.ended,
            Watch.NAMES: parts.census.ended,
            Watch.LINES: parts.tracer.ended,
            Watch.OPENING: parts.prologue.ended if self._file.run.step_signal is None else "",
            Watch.BATCHES: parts.signals.workers_ended,
        }
        return tuple(Unwatched(watch.value, reason) for watch, reason in known.items() if reason)

    @property
    def _stands_back(self) -> bool:
        is_part_of_long_step = self._file.run.is_part and self._file.run.one_in > 1
        return self.is_second and not (self._parts.schedule.has_enough or is_part_of_long_step)


def _since_epoch_ns(counter_ns: int) -> int:
    """A time of the performance counter as one since the epoch; 0 stays 0."""
    return counter_ns and time.time_ns() - (time.perf_counter_ns() - counter_ns)


def _unrecorded(steps: int) -> str:
    if steps == 0:
        return "no whole step passed"
    return f"only {format_count(steps, 'whole step')} passed, {pick_form(steps, 'unrecorded', 'none of them recorded')}"
