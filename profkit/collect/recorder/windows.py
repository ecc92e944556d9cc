"""Windows: further recordings of a running program, each requested with the signal SIGUSR1.

After a recording only the signal's handler stays in the program, and it only sets a flag. The window begins at the next
end of a step (`profkit.collect.boundaries.next_boundary`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from profkit.collect.boundaries.next_boundary import NextBoundary
from profkit.collect.program.default_actions import stand_in, stands_in, withdraw
from profkit.run.directory import RUN_FILE, load_run, numbered, save
from profkit.run.plan import EXPLICIT

_SIGNAL = getattr(signal, "SIGUSR1", None)
_SCHEDULER = "SLURM_JOB_ID"
"""Slurm sends the signal as a warning before the job ends. Programs set their handlers late, some only if there is
none, so under Slurm profkit leaves it alone."""
_ANNOUNCED_LATE = "the program announced its first step after others were recorded, and too few steps followed"


class WindowRequests:
    """Each signal requests a window, which begins at ``following``, the next end of a step."""

    def __init__(self, following: NextBoundary) -> None:
        self._following = following
        self._is_installed = self._is_waking = False

    def install(self) -> None:
        """Set the handler, on the main thread only and if the signal is neither handled nor ignored."""
        if _SIGNAL is not None and _is_free(_SIGNAL):
            self._is_installed = stand_in(_SIGNAL, self._on_signal)

    def remove(self) -> None:
        """Remove the handler, unless the program has set its own meanwhile."""
        if self._is_installed and _SIGNAL is not None:
            self._is_installed = False
            withdraw(_SIGNAL, self._on_signal)

    def wake(self) -> None:
        """Interrupt the main thread's wait, so that pending calls run, unless the program now handles the signal."""
        if self._is_installed and _SIGNAL is not None and stands_in(_SIGNAL, self._on_signal):
            self._is_waking = True
            signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a handler's signature
        is_waking, self._is_waking = self._is_waking, False
        if not is_waking:
            self._following.want()


def window_directory(first: Path, window: int) -> Path:
    """A free directory beside that of the first recording."""
    return next(path for path in numbered(first.with_name(f"{first.name}-window{window}")) if not path.exists())


def note_window(first: Path, window: Path) -> None:
    """Name the window in the first recording's file."""
    run = load_run(first)
    save(first, RUN_FILE, replace(run, windows=(*run.windows, window.name)))


def note_outdone(signal: str, directory: Path) -> None:
    """Note in the first recording that it came too early, before ``signal``, in case nothing replaces it."""
    run = load_run(directory)
    if signal == EXPLICIT:
        save(directory, RUN_FILE, replace(run, notes=(*run.notes, _ANNOUNCED_LATE)))
    else:
        save(directory, RUN_FILE, replace(run, was_outdone=True))


def complete(directories: Sequence[Path], exit_status: int | None, was_stopped: bool = False) -> None:
    """Note in recordings that ended before the program how it ended, and whether that was because it was recorded."""
    for directory in directories:
        run = load_run(directory)
        if run.exit_status is None and exit_status is not None:
            save(directory, RUN_FILE, replace(run, exit_status=exit_status, was_stopped=was_stopped))


def _is_free(number: int) -> bool:
    """Whether the signal has no handler in C, such as faulthandler's: Python does not know those, but Linux does."""
    if _SCHEDULER in os.environ:
        return False
    with suppress(OSError, IndexError, ValueError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return not int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1
    return True
