"""What a recording leaves on the disk: its trace, the files beside it, and notes on what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from profkit.collect.boundaries.choice import SignalChoice
from profkit.collect.boundaries.schedule import Schedule
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.census.names import Census
from profkit.collect.machine import environment
from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.machine.page_faults import measure_fault_ns
from profkit.collect.machine.rates import read_rates
from profkit.collect.machine.sampler import Sampler
from profkit.collect.recorder.side_files import SideFiles
from profkit.collect.sessions.detaching import STAYS_ATTACHED, stays_attached
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.source.index import forget_source_files
from profkit.source.remarks import review_sources, user_sources
from profkit.units import format_count


@dataclass(frozen=True, slots=True)
class Parts:
    """What an archive reads what it writes from."""

    schedule: Schedule
    choice: SignalChoice
    signals: StepSignals
    recordings: Recordings
    tracer: LineTracer
    census: Census
    sampler: Sampler


class Archive:
    """``notes``, which grow, are written with whatever is written next. ``replaces`` is the trace of an earlier
    recording in the directory, in whose place this one comes once enough of its steps were measured, and not before."""

    def __init__(self, files: SideFiles, parts: Parts, notes: list[str], replaces: Path | None = None) -> None:
        self._files, self._parts, self._notes, self._replaces = files, parts, notes, replaces

    def keep(self, unfinished_step: int | None = None, more_notes: Iterable[str] = ()) -> None:
        """Export the recording; from here on the files hold a whole run, whatever happens to the program."""
        if self._stands_back:
            self._parts.recordings.drop()
            return
        is_prologue = self._parts.recordings.prologue is not None
        trace = self._parts.recordings.export(unfinished_step)
        if self._parts.schedule.was_cut_short:
            self._notes.append("fewer steps were recorded than planned, because they are long")
        if cuda_is_used() and stays_attached():
            self._notes.append(STAYS_ATTACHED)
        self._files.set(
            trace=trace,
            device=environment.device_name(),
            rates=(read_rates("cuda") if cuda_is_used() else None) or self._files.run.rates,
            flags=self._files.run.flags or environment.read_flags(),
            loaders=self._parts.signals.loaders,
            optimizers=self._parts.signals.optimizers,
            step_signal=None if is_prologue else self._parts.choice.name,
            page_fault_ns=measure_fault_ns(),
        )
        self.write(more_notes)
        if self._replaces is not None:
            self._replaces.unlink(missing_ok=True)

    def note_what_is_missing(self, prologue_was_full: bool | None, was_renewed: bool = False) -> None:
        """The program ended, or its recording, before a step was recorded. ``prologue_was_full`` says how the prologue
        ended, in which the program still was, and ``was_renewed`` that it was recorded later; None: it was past that.
        """
        if self._parts.choice.is_missing:
            self._notes.append(f"no step ended by the signal that was asked for: {self._parts.choice.chosen}")
        if prologue_was_full is None:
            passed = f"only {format_count(self._parts.schedule.step, 'whole step')} passed, none of them recorded"
            rest = "a part of one" if self._parts.recordings.running or self._parts.recordings.located else "nothing"
            part = "the program's beginning" if self._parts.recordings.prologue else rest
            self._notes.append(f"{passed}: {part} is all there is")
        elif prologue_was_full:
            part = "a stretch of the program, and not its beginning," if was_renewed else "the beginning of the program"
            self._notes.append(f"no step ended for so long that only {part} was recorded")

    def conclude(self, is_user: Mapping[str, bool]) -> None:
        """Set down what the user's sources say, recorded or not, and wait until a device can tell all its times."""
        self._parts.schedule.await_device()
        self._files.set(remarks=review_sources(user_sources(is_user.__getitem__)))
        forget_source_files()

    def write(self, more_notes: Iterable[str] = ()) -> None:
        """Write the side files as of now."""
        if self._stands_back:
            return
        notes = tuple(dict.fromkeys((*self._notes, *self._parts.tracer.notes, *more_notes)))
        self._files.set(**self._parts.schedule.counted, feeding=self._parts.signals.feeding, notes=notes)
        self._files.write(self._parts.tracer.callsites, self._parts.census.samples, self._parts.sampler.samples)

    @property
    def _stands_back(self) -> bool:
        return self._replaces is not None and not self._parts.schedule.has_enough
