"""What is recorded before the first step ends: all there is of a program that never ends one.

A recording costs memory by the operator (about 8 kB when it is stopped), and nothing counts operators while it runs.
So the prologue is looked at when the tracer's budget is spent or the process has grown: with enough recorded it is
over, else a new part begins; the fullest part is kept.

A program that still has not ended a step goes on to something else, as a rule: the data are there, the chains burnt in.
So it is recorded again for a moment, when it has run for twice as long, four and eight times; the last part that
holds about as much is kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.bounds import Imports, bytes_of, give_memory_back
from profkit.collect.sessions.host_marks import free_cycles
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings

GROWTH_BYTES = 8 << 20
"""By which the process may grow in one part: 18,000 to 70,000 events. A program whose steps turn out later needs none
of these; twice as many took all that may be spent in the first minute."""
_LINES = 10_000
"""Lines marked at first; a line of arithmetic leaves a dozen events, a line without PyTorch none."""
_AGAIN = (2.0, 4.0, 8.0)
"""Times what the program had run when its prologue was over: when it is recorded again. No more often, as each time
costs a second or two in which every line is marked."""
_LEAST_WAIT_S, _AGAIN_S = 2.0, 2.0
"""No sooner after the prologue, and no longer."""
MANY_EVENTS = 9_000
"""Half of what it takes to make the process grow so much, at 460 bytes each."""


class Prologue:
    """The parts of the prologue. ``events`` is the size of the last part, for an estimate of what a step holds;
    ``was_full`` says that the recording ended before the first step did, and ``was_renewed`` that what is kept is of a
    later time."""

    def __init__(
        self,
        recordings: Recordings,
        tracer: LineTracer,
        limit_s: float,
        measure_rss_bytes: Callable[[], int],
        allowance: Allowance | None = None,
    ) -> None:
        self.events = 0
        self.was_full = self.was_renewed = False
        self._recordings, self._tracer, self._limit_s, self._measure = recordings, tracer, limit_s, measure_rss_bytes
        self._allowance = allowance or Allowance()
        self._is_on = False
        self._begun = self._end = 0.0
        self._full_bytes = self._begun_bytes = 0
        self._imports = Imports()
        self._again_at: list[float] = []

    def begin(self) -> None:
        self._is_on = True
        self._begun = time.monotonic()
        self._end = self._begun + self._limit_s
        self._begin_part()

    def close(self) -> None:
        """The first step ended, or the program."""
        self._again_at = []
        self._tracer.stop(sys._getframe())
        if self._is_on:
            self._is_on = False
            self.events = self._recordings.keep_prologue()

    def is_due(self) -> bool:
        """Whether the prologue must be looked at; called on another thread."""
        if not self._is_on:
            return bool(self._again_at) and time.monotonic() > self._again_at[0]
        return self._is_over or self._tracer.has_ended or self._has_grown

    def look_at(self) -> bool:
        """Locate lines for longer, or be done, which is said, or begin again. A call at no time for it does nothing.

        The recording itself is never stopped and begun anew here: what was open at the stop would end in the new one,
        which crashes the process.
        """
        if not self._is_on:
            if self.is_due():
                self._begin_again()
            return self.was_full
        self._tracer.stop(sys._getframe())
        if self._is_over or self._has_grown:
            self._finish()
        else:
            self._tracer.notes.clear()
            twice = 2 * self._tracer.max_lines
            # The frame has no name here: one that held itself would hold the program's, and their tensors.
            self._tracer.start(sys._getframe(), twice)
        return self.was_full

    def end(self) -> None:
        """Be done, where it is on."""
        if self._is_on:
            self._finish()

    def break_off(self) -> None:
        """Stop for a moment; `go_on` begins a new part."""
        if self._is_on:
            self._tracer.pause()
            self.events = self._recordings.keep_prologue()

    def go_on(self, cuda: bool | None = None) -> None:
        if self._is_on and self._recordings.cut_operators_off:
            self._finish()
        elif self._is_on:
            self._recordings.start(cuda)
            self._may_grow_from_here()
            self._tracer.resume(sys._getframe())

    def record_cuda(self) -> None:
        """The program is about to initialise CUDA: what was recorded so far was before any kernel."""
        self.break_off()
        self._recordings.drop_prologue()
        self.go_on(cuda=True)

    def _finish(self) -> None:
        """The process has grown, or the next part would begin inside an operator whose end it must not see."""
        self._tracer.stop(sys._getframe())
        is_first, over = not self.was_full, time.monotonic()
        self._is_on, self.was_full = False, True
        if self._recordings.running is not None:
            free_cycles()
            before, grown_bytes = self._recordings.prologue, self._measure() - self._begun_bytes
            self.events = self._recordings.keep_prologue()
            self._allowance.note_size(self.events, grown_bytes)
            self.was_renewed |= before not in (None, self._recordings.prologue)
        if is_first:  # the time that it took to stop and to write was not the program's
            waited, kept_s = max(_LEAST_WAIT_S, over - self._begun), time.monotonic() - over
            self._again_at = [self._begun + times * waited + kept_s for times in _AGAIN]
        if self._recordings.cut_operators_off:
            self._again_at = []

    def _begin_again(self) -> None:
        """Where the program is now; what is open was open before, and nobody recorded it."""
        self._again_at.pop(0)
        if self._recordings.running is None and self._allowance.events_left >= max(MANY_EVENTS, self.events):
            self._end = time.monotonic() + min(self._limit_s, _AGAIN_S)
            give_memory_back()  # in what the last stop left a million events found room, unseen
            self._begin_part()
            self._is_on = True

    def _begin_part(self) -> None:
        self._tracer.notes.clear()
        self._recordings.start()
        self._may_grow_from_here()
        self._tracer.start(sys._getframe(), _LINES)

    def _may_grow_from_here(self) -> None:
        self._imports = Imports()
        self._begun_bytes, allowance = self._measure(), self._allowance
        most = bytes_of(allowance.events_left, allowance.event_bytes)
        self._full_bytes = self._begun_bytes + min(GROWTH_BYTES, most)

    @property
    def _has_grown(self) -> bool:
        """By its events or the program's tensors: what modules take that are imported meanwhile does not count."""
        if self._measure() <= self._full_bytes:
            return False
        if self._imports.are_many:
            self._may_grow_from_here()
            return False
        return True

    @property
    def was_filled_by_events(self) -> bool:
        """Whether it was the recording that made the process grow so much, and not the program's own first tensors."""
        return self.was_full and self.events >= MANY_EVENTS

    @property
    def _is_over(self) -> bool:
        return time.monotonic() > self._end
