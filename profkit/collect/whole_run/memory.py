"""How much memory the process holds as the run goes on, in a bounded number of samples."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from profkit.collect.whole_run.kernel_files import read_kernel_file

_PAUSE_NS = 200_000_000
"""Reading takes 4 µs."""
_MOST = 600
"""As many as the columns of a run, halved each time that they are used up."""
_RESIDENT = 1
"""The field of ``/proc/self/statm`` (``proc(5)``), in pages."""


class MemoryCurve:
    """`look` takes a sample when one is due; nothing where Linux does not say."""

    def __init__(self, file: Path = Path("/proc/self/statm")) -> None:
        self._file, self._page = str(file), os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        self._samples: list[tuple[int, int]] = []
        self._due_ns, self._pause_ns = 0, _PAUSE_NS

    def look(self, now_ns: int) -> None:
        """Take a sample if it is time; ``now_ns`` counts from the beginning of the watch."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + self._pause_ns
        with suppress(OSError, ValueError, IndexError):
            pages = int(read_kernel_file(self._file).split()[_RESIDENT])
            self._samples.append((now_ns, pages * self._page))
        if len(self._samples) >= _MOST:
            self._samples = self._samples[1::2]
            self._pause_ns *= 2

    @property
    def latest(self) -> int:
        """The bytes of the last sample; -1 if there is none."""
        return self._samples[-1][1] if self._samples else -1

    def taken(self) -> tuple[tuple[int, int], ...]:
        """Pairs of nanoseconds since the beginning of the watch and bytes."""
        return tuple(self._samples)
