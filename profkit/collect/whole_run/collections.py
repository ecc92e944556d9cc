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
        if self.note_collection not in gc.callbacks:
            gc.callbacks.append(self.note_collection)

    def remove(self) -> None:
        with suppress(ValueError):  # the program may have cleared the list
            gc.callbacks.remove(self.note_collection)

    def take_ns(self) -> int:
        """What they took since the last call, one that goes on or has just ended as well."""
        if self._begun_ns:
            now_ns = time.monotonic_ns()
            self._took_ns += now_ns - self._begun_ns
            self._begun_ns = now_ns
        took_ns, self._took_ns = self._took_ns, 0
        return took_ns

    def note_collection(self, phase: str, info: dict[str, Any]) -> None:
        """A callback of the collector."""
        if not info["generation"] or threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._begun_ns = time.monotonic_ns()
        elif self._begun_ns:
            self._took_ns += time.monotonic_ns() - self._begun_ns
            self._begun_ns = 0
