"""The torch.profiler recordings of one run: the prologue (kept in case no step is ever recorded), the located steps and
the measured steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import torch
from msgspec import Struct

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.machine.heap import give_back
from profkit.collect.program.clocks import time
from profkit.collect.sessions.allowance import MANY_EVENTS, Allowance
from profkit.collect.sessions.collectives import reduce_to_collectives
from profkit.collect.sessions.counting import Counted, count_events
from profkit.collect.sessions.exporting import export, write_plain
from profkit.collect.sessions.host_marks import CollectorMarks, SaveMarks
from profkit.collect.sessions.ranges import OpenRanges
from profkit.collect.sessions.session import ProfilerSession, ProfilerWatch, another_profiler_runs

_ABOUT_AS_MUCH = 0.5
"""A later part replaces an earlier one from this share of its events on, as it says more about the program."""


class _Written(Struct, frozen=True, eq=False):
    """A recording that was stopped: its file and what it holds."""

    file: IO[bytes]
    counted: Counted


class Recordings:
    """At most one runs at a time; earlier ones, ``prologue`` and ``located``, are already written to ``directory``.
    ``yield_to_program`` is called when the program starts a profiler.

    ``cut_operators_off``: the last stop came inside an operator, which must end before the next recording begins (see
    `profkit.collect.sessions.ranges`). A run that ``is_light`` writes only what `profkit.collect.sessions.collectives`
    keeps.
    """

    def __init__(
        self, directory: Path, yield_to_program: Callable[[], None], allowance: Allowance, is_light: bool = False
    ) -> None:
        self.prologue: IO[bytes] | None = None
        self._aside: IO[bytes] | None = None
        self.located: IO[bytes] | None = None
        self.running: ProfilerSession | None = None
        self.cut_operators_off = False
        self.located_events = self.measured_events = self._kept_events = 0
        self._begun = self._ran_s = 0.0, 0.0
        self._directory, self._allowance, self._is_light = directory, allowance, is_light
        self._watch = ProfilerWatch(yield_to_program)
        self._collections = CollectorMarks()
        self._saves = SaveMarks()
        self._ranges = OpenRanges()

    def install(self) -> bool:
        """Watch for the program's own profilers. Returns False if one runs already."""
        if another_profiler_runs():
            return False
        self._watch.install()
        return True

    def remove(self) -> None:
        self._watch.remove()
        self._let_go_of_files()
        self.stop()

    def start(self, cuda: bool | None = None, *, trees: bool = False) -> ProfilerSession:
        """Start a recording. By default it includes the GPU if the program already uses it. It includes shapes unless
        it follows located steps, because recording shapes changes how memory is reused. Its events can be read as
        ``trees`` if so wanted."""
        with_cuda, shapes = cuda_is_used() if cuda is None else cuda, self.located is None
        recording = ProfilerSession(with_cuda, shapes, memory=not self._is_light, trees=trees)
        with self._watch:
            recording.start()
        self.running, self._begun = recording, _read_clocks()
        self._ranges.install()
        self._collections.install()
        self._saves.install()
        return recording

    def stop(self) -> ProfilerSession | None:
        """Stop the running recording and return it."""
        self._collections.remove()
        self._saves.remove()
        running, self.running = self.running, None
        if running is not None:
            now, begun = _read_clocks(), self._begun
            self._ran_s = now[0] - begun[0], now[1] - begun[1]
            running.end_step()
            self._ranges.close_off()
            running.stop()
        return running

    def drop(self) -> None:
        """Stop the running recording and discard it; what it held is charged."""
        with self._ending():
            pass

    def keep_prologue(self) -> int:
        """Stop the running recording and return its number of events. It becomes the prologue, unless the present one
        holds far more."""
        with self._ending() as written:
            if written is None:
                return 0
            events = written.counted.events
            is_kept = self.prologue is None or events >= _ABOUT_AS_MUCH * self._kept_events
            self._allowance.count_as_opening(events, is_kept)
            if is_kept:
                self.drop_prologue()
                self.prologue, self._kept_events = written.file, events
            return events

    def keep_part(self) -> bool:
        """Stop the running recording of a part of a step; keep it unless it is small and the prologue, or the part that
        was put aside, holds more. Returns whether it was kept."""
        with self._ending() as written:
            if written is None:
                return False
            events = written.counted.events
            enough = min(MANY_EVENTS, _ABOUT_AS_MUCH * self._kept_events)
            if (self.prologue is not None or self._aside is not None) and events < enough:
                return False
            self.drop_prologue()
            self._drop_aside()
            self._kept_events = events
            self.located, self.located_events = written.file, events
            return True

    def put_aside(self) -> int:
        """Keep a part of a step as `keep_part` does, until a whole step is located; return its number of events."""
        before = self._allowance.events_held
        if self.keep_part():
            self._aside, self.located = self.located, None
        self.located_events = 0
        return self._allowance.events_held - before

    def take_part_back(self) -> bool:
        """No step was located after all: the part that was put aside counts. Return whether there is one."""
        if self._aside is None or self.located is not None:
            return False
        self.located, self._aside = self._aside, None
        return True

    def _drop_aside(self) -> None:
        if self._aside is not None:
            self._aside.close()
            self._aside = None

    def drop_prologue(self) -> None:
        if self.prologue is not None:
            self.prologue.close()
            self.prologue = None

    def keep_located(self, read: Callable[[ProfilerSession, Counted], None] = lambda *_: None) -> None:
        """Stop the running recording, pass it to ``read`` with what it holds, and keep it for the export."""
        with self._ending(read) as written:
            if written is not None:
                self.located, self.located_events = written.file, written.counted.events

    @contextmanager
    def _ending(self, read: Callable[[ProfilerSession, Counted], None] = lambda *_: None) -> Iterator[_Written | None]:
        """Stop the running recording, write it, count what it holds, and release it; in the end close the file unless
        it was kept. Charges the time this takes, and gives the freed memory back to the system, or the program would
        keep it."""
        with self._allowance.spending(), ExitStack() as closing:
            stopped, written = self.stop(), None
            if stopped is not None:
                closing.callback(stopped.let_go)
                file = write_plain(stopped, self._directory)
                closing.callback(self._close_unless_kept, file)
                written = _Written(file, self._count(file))
                read(stopped, written.counted)
                stopped.let_go()  # before the file is packed, which takes memory too
            yield written
            give_back()

    def _close_unless_kept(self, file: IO[bytes]) -> None:
        if file not in (self.prologue, self._aside, self.located):
            file.close()

    def _count(self, file: IO[bytes]) -> Counted:
        counted = count_events(file)
        self.cut_operators_off = counted.cut_off > 0
        self._allowance.count(counted.events)
        self._allowance.note_pace(counted.events, *self._ran_s)
        return counted

    def disown(self) -> None:
        """In a child process: leave the recording to the parent, and remove what the fork copied.

        The child's copy of the profiler would go on collecting. Stopping it takes longer the more was recorded; keeping
        PyTorch from calling it takes no time.
        """
        enable = getattr(torch.autograd, "_enable_record_function", None)
        if self.running is not None and enable is not None:
            enable(False)
        self.lose()
        self.remove()

    def lose(self) -> None:
        """Abandon the running recording: only the thread that started it could stop it."""
        self._ranges.close_off()
        self.running = None

    def export(self, unfinished_step: int | None = None) -> str | None:
        """Write the prologue if it is still kept, else the steps. Returns the file's name, None if there is nothing."""
        with self._ending() as last:
            if last is not None:
                self.measured_events = last.counted.events
            steps = [trace for trace in (self.located, last.file if last else None) if trace is not None]
            chosen = [self.prologue] if self.prologue else steps
            try:
                return self._write(chosen, unfinished_step) if chosen else None
            finally:
                self._let_go_of_files()

    def _write(self, traces: list[IO[bytes]], unfinished_step: int | None) -> str:
        if not self._is_light:
            return export(traces, self._directory, unfinished_step)
        with ExitStack() as stack:
            reduced = [stack.enter_context(reduce_to_collectives(trace, self._directory)) for trace in traces]
            return export(reduced, self._directory, unfinished_step)

    def _let_go_of_files(self) -> None:
        self.drop_prologue()
        self._drop_aside()
        if self.located is not None:
            self.located.close()
            self.located = None


def _read_clocks() -> tuple[float, float]:
    """On the wall, and the CPU time of all threads: any of them may run what is recorded."""
    return time.monotonic(), time.process_time()
