"""What a recording leaves on the disk: its trace, the files beside it, and notes on what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from profkit.collect.boundaries.schedule import Schedule
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.census.names import Census
from profkit.collect.machine import environment
from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.machine.page_faults import measure_fault_ns
from profkit.collect.machine.rates import read_rates
from profkit.collect.machine.sampler import Sampler
from profkit.collect.machine.tensor_passing import measure_handing_over
from profkit.collect.recorder.side_files import SideFiles
from profkit.collect.sessions.detaching import STAYS_ATTACHED, stays_attached
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.source.remarks import review_sources, user_sources
from profkit.units import format_count


class Archive:
    """``notes`` are written with whatever is written next. ``replaces`` is the trace of an earlier recording in the
    directory, in whose place this one comes once enough of its steps were measured, and not before."""

    def __init__(
        self,
        files: SideFiles,
        schedule: Schedule,
        signals: StepSignals,
        recordings: Recordings,
        tracer: LineTracer,
        census: Census,
        sampler: Sampler,
    ) -> None:
        self.notes: list[str] = []
        self.replaces: Path | None = None
        self._files = files
        self._schedule, self._signals, self._recordings = schedule, signals, recordings
        self._tracer, self._census, self._sampler = tracer, census, sampler

    def keep(self, unfinished_step: int | None = None, more_notes: Iterable[str] = ()) -> None:
        """Export the recording; from here on the files hold a whole run, whatever happens to the program."""
        if self._stands_back:
            self._recordings.drop()
            return
        is_prologue = self._recordings.prologue is not None
        trace = self._recordings.export(unfinished_step)
        if self._schedule.was_cut_short:
            self.notes.append("fewer steps were recorded than planned, because they are long")
        if cuda_is_used() and stays_attached():
            self.notes.append(STAYS_ATTACHED)
        self._files.set(
            trace=trace,
            device=environment.device_name(),
            rates=(read_rates("cuda") if cuda_is_used() else None) or self._files.run.rates,
            flags=self._files.run.flags or environment.read_flags(),
            loaders=self._signals.loaders,
            optimizers=self._signals.optimizers,
            step_signal=None if is_prologue else self._signals.name,
            page_fault_ns=measure_fault_ns(),
            handing_over=measure_handing_over() if self._signals.loaders else None,
        )
        self.write(more_notes)
        if self.replaces is not None:
            self.replaces.unlink(missing_ok=True)

    def note_what_is_missing(self, prologue_was_full: bool | None, was_renewed: bool = False) -> None:
        """The program ended, or its recording, before a step was recorded. ``prologue_was_full`` says how the prologue
        ended, in which the program still was, and ``was_renewed`` that it was recorded later; None: it was past that.
        """
        if self._signals.is_missing:
            self.notes.append(f"no step ended by the signal that was asked for: {self._signals.chosen}")
        if prologue_was_full is None:
            passed = f"only {format_count(self._schedule.step, 'whole step')} passed, none of them recorded"
            rest = "a part of one" if self._recordings.running or self._recordings.located else "nothing"
            part = "the program's beginning" if self._recordings.prologue else rest
            self.notes.append(f"{passed}: {part} is all there is")
        elif prologue_was_full:
            part = "a stretch of the program, and not its beginning," if was_renewed else "the beginning of the program"
            self.notes.append(f"no step ended for so long that only {part} was recorded")

    def conclude(self, is_user: Mapping[str, bool]) -> None:
        """Set down what the user's sources say, recorded or not, and wait until a device can tell all its times."""
        self._schedule.await_device()
        self._files.set(remarks=review_sources(user_sources(is_user.__getitem__)))

    def write(self, more_notes: Iterable[str] = ()) -> None:
        """Write the side files as of now."""
        if self._stands_back:
            return
        notes = tuple(dict.fromkeys((*self.notes, *self._tracer.notes, *more_notes)))
        self._files.set(**self._schedule.counted, feeding=self._signals.feeding, notes=notes)
        self._files.write(self._tracer.callsites, self._census.samples, self._sampler.samples)

    @property
    def _stands_back(self) -> bool:
        return self.replaces is not None and not self._schedule.has_enough
