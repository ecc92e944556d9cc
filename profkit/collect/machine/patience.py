"""How long something may last before profkit stops waiting for it.

That is wall time and not CPU time, because a program that sleeps, or waits for its GPU or its workers, keeps its user
waiting as well. But what the watching thread waited for a busy CPU does not count, where the system says how long that
was: other programs on the machine must not decide what is recorded.
"""

from __future__ import annotations

import threading

from profkit.collect.machine.page_faults import count_crowded_ns
from profkit.collect.program.clocks import time


class Patience:
    """Begins now, on the thread that is waited for. Any thread may ask whether it `is_over`."""

    def __init__(self, within_s: float) -> None:
        self._thread = threading.get_native_id()
        self._end, self._crowded_ns = time.monotonic() + within_s, count_crowded_ns(self._thread) or 0

    def is_over(self) -> bool:
        late_s = time.monotonic() - self._end
        return late_s > 0 and late_s * 1e9 > (count_crowded_ns(self._thread) or 0) - self._crowded_ns
