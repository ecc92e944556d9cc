"""What every signal of a step becomes on its way from the program to the recorder."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident

from msgspec import Struct


class StepBoundary(Struct, frozen=True):
    """A step of the program may have ended: the ``signal`` (a value of `profkit.plan.SIGNALS`), the ``thread`` and the
    time (``time.perf_counter_ns``). ``between`` is to be called before the next step begins."""

    signal: str
    thread: int
    time_ns: int
    between: Callable[[], None] | None = None

    @classmethod
    def here(cls, signal: str, between: Callable[[], None] | None = None) -> StepBoundary:
        """On this thread, now."""
        return cls(signal, get_ident(), time.perf_counter_ns(), between)
