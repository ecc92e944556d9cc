"""What was recorded is written before SIGTERM ends the program: that of ``timeout``, of a scheduler, of a launcher.

The signal's default ends a process between two instructions. While a recording is on a handler of Python's stands in
its place, which runs between two bytecodes of the main thread, writes, and then lets the default do the rest: the exit
status is the same, and nothing of the program's runs that would not have run. A second signal ends it at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from profkit.collect.program.guard import Guard
from profkit.collect.recorder.early_end import is_programs_own

STATUS = 128 + signal.SIGTERM
"""As shells report it."""
NOTE = "the program was ended by SIGTERM"
_SOON_S = 0.02
_PATIENCE = 250
"""Times that the handler tries again, where it came amid work of profkit's own."""


class Termination:
    """Between `install` and `remove`; ``finish`` is called on the main thread. A program that sets a handler of its own
    is left alone: ours, if it is called by that, does nothing, as the default did nothing there."""

    def __init__(self, guard: Guard, finish: Callable[[], None]) -> None:
        self._guard, self._finish = guard, finish
        self._tries = 0

    def install(self) -> None:
        """Set the handler, from the main thread only and where the signal has none."""
        if threading.current_thread() is threading.main_thread() and _handler() is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)

    def remove(self) -> None:
        """The default is back, unless the program has set a handler meanwhile."""
        with suppress(ValueError):  # on another thread
            if _handler() == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if _handler() != self._on_signal:
            return
        self._tries += 1
        if not is_programs_own(frame) and self._tries <= _PATIENCE:
            again = threading.Timer(_SOON_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        self.remove()
        self._guard(self._finish)
        os.kill(os.getpid(), number)


def _handler() -> object:
    return signal.getsignal(signal.SIGTERM)
