"""The recording before the first step ends, which is all there is of a program that never ends a step.

A recording costs memory per operator (about 8 kB when it stops), and nothing counts operators while it runs. So profkit
checks the prologue when the tracer has used up its lines or the process has grown: with enough recorded it ends the
prologue, else it marks more lines.

A program that has ended no step by then usually moves on to other work: it has loaded its data or burnt in its chains.
So profkit records it again for a moment when it has run two, four and eight times as long, and keeps the last part of
about the same size. Each time at least half of what may still be recorded stays for steps: a data set that was filled
element by element for twenty seconds had used up all of it in three parts, and none of the steps after it was recorded.

Numbers that have decayed to nearly zero slow a program down late in its run (`profkit.collect.tensors.denormals`). So
as long as no step ends, profkit looks for them now and then, and records again once they cost twice as much as in the
recording.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from math import inf

from profkit.collect.machine.heap import give_back
from profkit.collect.machine.patience import Patience
from profkit.collect.program.clocks import time
from profkit.collect.program.inductor import inductor_is_being_imported
from profkit.collect.sessions.allowance import MANY_EVENTS, Allowance
from profkit.collect.sessions.bounds import Imports
from profkit.collect.sessions.held_memory import HeldMemory
from profkit.collect.sessions.host_marks import free_cycles
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.sessions.session import pause_marked
from profkit.collect.tensors.denormals import DenormalWatch

GROWTH_BYTES = 8 << 20
"""How much the process may grow in one part: 18,000 to 70,000 events. Twice as many took the whole allowance of the
first minute, and were useless for a program whose steps come later."""
_LINES = 10_000
"""Lines to mark at first: a line of arithmetic leaves a dozen events, a line without PyTorch none."""
_FEW_LINES = 1_000
"""They leave less than `GROWTH_BYTES` of events, unless one of them runs a large backward pass."""
_LOOKS = 4
"""If few lines ran, so many looks in a row must find the process larger: 0.2 s. Events stay, while large results that a
line makes are dropped again a few lines later."""
_LOOK_S = 0.04
"""CPU time of the process between two looks that count: on a crowded machine a line keeps its large results for longer,
but makes no more events. Alone a program of one thread computes for 0.05 s from look to look."""
_AGAIN = (2.0, 4.0, 8.0)
"""When to record again, in multiples of the prologue's length. Each time costs a second or two in which every line is
marked, so there are no more."""
_OF_WHAT_IS_LEFT = 2
"""One part in so many of the events that may still be recorded is a later part of the prologue. If denormal numbers
slow the program down, it is worth all of them."""
_LEAST_WAIT_S, _AGAIN_S = 2.0, 2.0
"""The least length that the prologue counts as, and the longest that a later part may last. This is patience, as is the
limit of the first part: a program that waits ends no step either."""
_FIRST_LOOK_S, _RARER = 2.0, 1.6
"""When to look for denormal numbers first, and again each time that the program has run so many times as long. A look
takes 40 to 80 ms, as it walks through all objects: 8 come in the first minute, and 9 more in an hour."""

_SAY_STEPS = "call step() after each, or choose --steps-from"


class Prologue:
    """The parts of the prologue. ``events`` is the size of the last one, which serves to estimate the size of a step.
    ``was_full`` says that the prologue ended before the first step, ``ended`` in a sentence why and what to do, and
    ``was_renewed`` that a later part is kept."""

    def __init__(
        self,
        recordings: Recordings,
        tracer: LineTracer,
        limit_s: float,
        memory: HeldMemory,
        allowance: Allowance,
        denormals: DenormalWatch,
    ) -> None:
        self.events = 0
        self.was_full = self.was_renewed = False
        self.ended = ""
        self._recordings, self._tracer, self._limit_s, self._memory = recordings, tracer, limit_s, memory
        self._allowance, self._denormals = allowance, denormals
        self._is_on, self._records = False, True
        self._denormals_at = inf
        self._begun, self._patience = 0.0, Patience(limit_s)
        self._full_bytes = self._begun_bytes = 0
        self._spent_lines = self._looks = 0
        self._looked_s = 0.0
        self._imports = Imports()
        self._again_at: list[float] = []

    def begin(self, is_recorded: bool = True) -> None:
        """Begin; if it is not recorded, it ends when a step should have ended by now."""
        self._is_on, self._records = True, is_recorded
        self._begun = time.monotonic()
        self._denormals_at = self._begun + _FIRST_LOOK_S if is_recorded else inf
        self._patience = Patience(self._limit_s if is_recorded else _LEAST_WAIT_S)
        self._full_bytes = sys.maxsize
        if is_recorded:
            self._begin_part()

    def close(self) -> None:
        """The first step or the program ended."""
        self._again_at, self._denormals_at = [], inf
        self._tracer.stop(sys._getframe())
        if self._is_on:
            self._is_on = False
            self.events = self._recordings.keep_prologue()

    def is_recorded(self) -> bool:
        """Whether a part of it is being recorded; any thread may ask."""
        return self._is_on and self._records

    def is_due(self) -> bool:
        """Whether it is time for `look_at`; called on another thread."""
        if time.monotonic() > self._denormals_at:
            return True
        if not self._is_on:
            return self._is_again_due
        computed_s = time.process_time()
        if computed_s - self._looked_s >= _LOOK_S:
            self._looked_s = computed_s
            self._looks = self._looks + 1 if self._is_larger() else 0
        return self._is_over or self._tracer.has_ended or self._looks >= self._least_looks

    def look_at(self) -> bool:
        """If due, mark more lines, end, or begin again. Return whether the prologue was full.

        This never stops a recording and begins another at once: operators open at the stop would end in the new
        recording, which crashes the process.
        """
        is_slower = self._look_for_denormals()
        if not self._is_on:
            if (is_slower or self._is_again_due) and not inductor_is_being_imported():  # else the next look
                self._begin_again(is_slower)
            return self.was_full
        self._tracer.stop(sys._getframe())
        has_grown = max(1, self._looks) >= self._least_looks and self._is_larger()
        if self._is_over or has_grown:
            full = f"it held {GROWTH_BYTES >> 20} MB of events"
            self._finish(full if has_grown else f"{self._limit_s:.0f} s had passed")
        else:
            self._spent_lines += self._tracer.spent_lines
            self._tracer.notes.clear()
            twice = 2 * self._tracer.max_lines
            # No variable may hold this frame: the cycle would keep the program's frames and their tensors alive.
            self._tracer.start(sys._getframe(), twice)
        return self.was_full

    def end(self) -> None:
        """End the prologue if it is on: the coming backward pass would not fit into it."""
        if self._is_on:
            self._finish("a backward pass came that was too large for it")

    def break_off(self) -> None:
        """Stop for a moment; `go_on` begins a new part."""
        if self._is_on:
            self._tracer.pause()
            self.events = self._recordings.keep_prologue()

    def go_on(self, cuda: bool | None = None) -> None:
        if self._is_on and self._recordings.cut_operators_off:
            self._finish("it was interrupted within an operator")
        elif self._is_on and self._records:
            self._recordings.start(cuda)
            self._may_grow_from_here()
            self._tracer.resume(sys._getframe())

    def record_cuda(self) -> None:
        """The program is about to initialise CUDA: begin a new part, as the one so far cannot hold kernels."""
        self.break_off()
        self._recordings.drop_prologue()
        self.go_on(cuda=True)

    def _finish(self, why: str) -> None:
        """End: enough was recorded, or the next part would begin inside an operator whose end it must not see."""
        self._tracer.stop(sys._getframe())
        is_first, over = not self.was_full, time.monotonic()
        self._is_on, self.was_full = False, True
        self.ended = self.ended or f"the opening was recorded until {why}, before any step ended: {_SAY_STEPS}"
        if self._recordings.running is not None:
            with self._allowance.spending():
                free_cycles()
            before, grown_bytes = self._recordings.prologue, self._memory.measure() - self._begun_bytes
            self.events = self._recordings.keep_prologue()
            self._allowance.note_size(self.events, grown_bytes)
            self.was_renewed |= before not in (None, self._recordings.prologue)
            with self._allowance.spending():
                self._denormals.look()
            self._denormals.keep_more()
        if is_first:  # leave out the time that stopping and writing took
            waited, kept_s = max(_LEAST_WAIT_S, over - self._begun), time.monotonic() - over
            self._again_at = [self._begun + times * waited + kept_s for times in _AGAIN]
        if self._recordings.cut_operators_off or not self._records:
            self._again_at, self._denormals_at = [], inf

    def _look_for_denormals(self) -> bool:
        """If due. Returns whether they slow the program down far more than when the recording began. One that goes on
        is of a program that has them."""
        now = time.monotonic()
        if now <= self._denormals_at:
            return False
        self._denormals_at = self._begun + _RARER * (now - self._begun)
        with self._allowance.spending(), pause_marked() if self._is_on else nullcontext():
            is_slower = self._denormals.look()
            if self._is_on:
                self._denormals.keep_more()
        return is_slower

    @property
    def _is_again_due(self) -> bool:
        return bool(self._again_at) and time.monotonic() > self._again_at[0]

    def _begin_again(self, is_slower: bool) -> None:
        """Record where the program is now, which denormal numbers may have made slower. Operators that are open now
        began unrecorded, so their ends do no harm."""
        if self._is_again_due:
            self._again_at.pop(0)
        least = (1 if is_slower else _OF_WHAT_IS_LEFT) * max(MANY_EVENTS, self.events)
        if self._recordings.running is None and self._allowance.events_left >= least:
            self._patience = Patience(min(self._limit_s, _AGAIN_S))
            give_back()  # else a million events would fit unseen into the heap that the last stop freed
            if not is_slower:
                self._denormals.look()
            self._denormals.keep()
            self._begin_part()
            self._is_on = True

    def _begin_part(self) -> None:
        self._tracer.notes.clear()
        self._recordings.start()
        self._may_grow_from_here()
        self._spent_lines = 0
        self._tracer.start(sys._getframe(), _LINES)

    def _may_grow_from_here(self) -> None:
        self._imports, self._looks = Imports(), 0
        self._begun_bytes = self._memory.begin()
        self._full_bytes = self._begun_bytes + GROWTH_BYTES

    @property
    def _least_looks(self) -> int:
        """How often in a row the process must be larger: once if so many lines ran that their events can be why."""
        return 1 if self._spent_lines + self._tracer.spent_lines >= _FEW_LINES else _LOOKS

    def _is_larger(self) -> bool:
        """Whether events or the program's tensors make the process larger than it may grow; newly imported modules do
        not count."""
        held = self._memory.measure()
        if held <= self._full_bytes:
            return False
        if held > self._full_bytes + self._imports.held_bytes:
            return True
        give_back()  # what importing has freed would take up events unseen
        self._may_grow_from_here()
        return False

    @property
    def was_filled_by_events(self) -> bool:
        """Whether events made the process grow, and not the program's own first tensors."""
        return self.was_full and self.events >= MANY_EVENTS

    @property
    def _is_over(self) -> bool:
        return self._patience.is_over()
