"""Ending the program once it is recorded, if the user asked for that."""

from __future__ import annotations

import os
import threading
from types import FrameType

from profkit.collect.machine.patience import Patience
from profkit.collect.program.clocks import time
from profkit.collect.program.frames import walk_up
from profkit.collect.program.interrupts import has_been_raised, raise_in_main_thread
from profkit.source.code import PROFKIT

STOPPED = 75
"""Exit status of a program that was ended once it was recorded: ``EX_TEMPFAIL`` of sysexits.h, not a real error."""
_INTERVAL_S, _SELDOM_S = 0.001, 0.1
"""Intervals at which the main thread is checked, once the program has to end and before."""
_AROUND = tuple(
    os.path.join(PROFKIT, "collect", *name)
    for name in (
        ("launch", "script.py"),
        ("launch", "main_module.py"),
        ("launch", "scenario.py"),
        ("recorder", "profiler.py"),
    )
)
_AROUND_NAMES = frozenset(("<module>", "main", "run", "run_scenario", "_record", "record_first_call"))
"""Functions in the files above that run the program."""


class RecordingComplete(SystemExit):
    """Raised in the program: its ``finally`` blocks and its functions for ``atexit`` run, as after ``sys.exit``."""

    def __init__(self) -> None:
        super().__init__(STOPPED)
        has_been_raised()


class Stopper:
    """`request` raises `RecordingComplete` soon in the main thread, in the program's own code.

    The end of a step is often noticed in a finalizer, whose exceptions Python ignores. So another thread waits until
    neither profkit nor a finalizer runs in the main thread. ``within_s`` lets the program go on until its important
    steps come; a later `request` resets it. It is `Patience`: waiting for a busy CPU takes none of it.
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None
        self._at, self._patience = 0.0, Patience(0.0)

    def request(self, within_s: float = 0.0) -> None:
        self._at, self._patience = time.monotonic() + within_s, Patience(within_s)
        if self._thread is None and not self._cancelled.is_set():
            self._thread = threading.Thread(target=self._run, name="profkit-stopper", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """The program is ending anyway."""
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()
        has_been_raised()

    def disown(self) -> None:
        """Forget the thread, which does not run in the child of a fork."""
        self._cancelled, self._thread = threading.Event(), None
        self._cancelled.set()

    def _run(self) -> None:
        while not self._cancelled.wait(min(_SELDOM_S, max(_INTERVAL_S, self._at - time.monotonic()))):
            if self._patience.is_over() and raise_in_main_thread(RecordingComplete, is_programs_own):
                return


def is_programs_own(frame: FrameType | None) -> bool:
    """Whether ``frame`` runs the program's own code, or a library that it called."""
    for caller in walk_up(frame):
        code = caller.f_code
        if code.co_filename in _AROUND and code.co_name in _AROUND_NAMES:
            return True
        if code.co_name == "__del__" or code.co_filename.startswith(os.path.join(PROFKIT, "collect", "")):
            return False
    return True
