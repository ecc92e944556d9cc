"""What watching the calls of PyTorch may cost, and why the watch ended.

The budget is a promise of cost, so it counts CPU time: on a crowded machine a call takes many times as long on the
wall. It is that of the watching thread (`time.thread_time_ns`), as the program's other threads compute meanwhile.
Reading it is a call of the system: 0.4 µs, four times for each watched call, which takes 10 to 20 µs.
"""

from __future__ import annotations

from collections.abc import Callable

from profkit.collect.program.clocks import time
from profkit.collect.program.guard import describe
from profkit.collect.sessions.allowance import WATCH_S

MOST_CALLS = 20_000
"""In the two steps together; each takes 10 to 20 µs."""
MOST_TENSORS = 2 * MOST_CALLS
MOST_NS = int(WATCH_S * 1e9)
_FEWER = "record a step with fewer (--at-step N)"
NOTICED = (
    "repeated calls were not looked for, as the program would notice: it uses compiled code, several processes, a mode "
    "or PyTorch's attention layers"
)


class CallBudget:
    """`begin` returns the time at which some watching begins; `spend` charges it and says whether the watch may go on.
    What other work interrupts it is left out.

    ``clock`` is the CPU time of the calling thread. ``seen`` counts the calls, ``all_ns`` is what was charged for them.
    """

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock = clock
        self.all_ns = self._spent_ns = self._charged_ns = self._left_out_ns = self.seen = 0
        self._used = self._why = ""

    def begin(self) -> int:
        return self._clock() - self._left_out_ns

    def leave_out(self, begun_ns: int) -> None:
        """What ran since then was not watching, though it may have interrupted it."""
        self._left_out_ns += self.begin() - begun_ns

    def spend(self, begun_ns: int, calls: int, tensors: int) -> bool:
        """``calls`` and ``tensors`` are kept so far."""
        if not self.pass_by(self.begin() - begun_ns):
            return False
        if calls >= MOST_CALLS:
            self._used = f"its room for {MOST_CALLS:,} calls"
        elif tensors >= MOST_TENSORS:
            self._used = f"its room for {MOST_TENSORS:,} tensors"
        return not self._used

    def pass_by(self, took_ns: int) -> bool:
        """Charge what a call took that was not looked at."""
        self._spent_ns += took_ns
        self.all_ns += took_ns
        if self.all_ns > MOST_NS:
            self._used = f"its {MOST_NS // 1_000_000} ms of CPU time"
        return not self._used

    def end(self, why: str) -> None:
        """The watch ends, or does not begin, for another reason, a sentence."""
        self._why = self._why or why

    def fail(self, error: Exception) -> None:
        """A call could not be looked at."""
        self.end(f"watching for repeated calls failed: {describe(error)}")

    def take_spent_ns(self) -> int:
        """The time spent since the last call of this."""
        spent, self._spent_ns = self._spent_ns, 0
        return spent

    @property
    def uncharged_s(self) -> float:
        """The seconds that `take_uncharged_s` would return; any thread may ask."""
        return (self.all_ns - self._charged_ns) / 1e9

    def take_uncharged_s(self) -> float:
        """The seconds that no earlier call of this returned."""
        taken_s, self._charged_ns = self.uncharged_s, self.all_ns
        return taken_s

    @property
    def ended(self) -> str:
        """What stopped the watch and what to do, in a sentence; empty if it saw all that it was to see."""
        if not self._used:
            return self._why
        return f"watching for repeated calls used {self._used} after {self.seen:,} calls: {_FEWER}"
