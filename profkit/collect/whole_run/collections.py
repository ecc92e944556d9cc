"""How long Python's garbage collections took on the watched thread.

A look has to wait for the end of a collection, which holds Python's lock, and then meets whatever line comes next. The
collector itself says when it begins and ends.
"""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from typing import Any

from profkit.collect.program.clocks import time


class Collections:
    """From `install` to `remove`, adds up the collections of this thread but for the youngest objects' own: those take
    less than a millisecond, and come a thousand times a second in some programs."""

    def __init__(self, thread: int) -> None:
        self._thread, self._begun_ns, self._took_ns = thread, 0, 0

    def install(self) -> None:
        if self._on_phase not in gc.callbacks:
            gc.callbacks.append(self._on_phase)

    def remove(self) -> None:
        with suppress(ValueError):  # the program may have cleared the list
            gc.callbacks.remove(self._on_phase)

    def take_ns(self) -> int:
        """What they took since the last call."""
        took_ns, self._took_ns = self._took_ns, 0
        return took_ns

    def _on_phase(self, phase: str, info: dict[str, Any]) -> None:
        if not info["generation"] or threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._begun_ns = time.monotonic_ns()
        elif self._begun_ns:
            self._took_ns += time.monotonic_ns() - self._begun_ns
            self._begun_ns = 0
