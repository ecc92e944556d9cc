"""What is shown on a terminal while a program is recorded."""

from __future__ import annotations

import sys
from contextlib import suppress

_LINES = {
    "opening": "found the program's steps; timing some of them without the profiler",
    "located": "recording: step {done} of {total}",
    "active": "recording: step {done} of {total}",
    "after": "recorded; the program goes on",
}


class Announcer:
    """Called with each step's phase and how many of all steps are over. It writes whole lines, each once: a line
    redrawn in place would mix with the program's output. Without a terminal it does nothing."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, phase: str, done: int, total: int) -> None:
        line = _LINES.get(phase, "").format(done=done, total=total)
        if line and line not in self._said:
            self._said.add(line)
            _write(line)


def _write(line: str) -> None:
    stream = sys.__stderr__
    with suppress(OSError, ValueError):  # the program may have closed it
        if stream is not None and stream.isatty():
            stream.write(f"profkit: {line}\n")
            stream.flush()
