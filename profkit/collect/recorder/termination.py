"""Writing what was recorded before SIGTERM ends the program: ``timeout``, schedulers and launchers send it.

By default the signal ends a process between two instructions. During a recording a handler in Python takes its place,
which runs between two bytecodes of the main thread, writes, and leaves the rest to the default: the exit status is the
same, and no more of the program runs than would have. A second signal ends it at once.
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
"""How often the handler tries again if it interrupted profkit itself."""


class Termination:
    """From `install` to `remove` SIGTERM calls ``finish``, on the main thread. A program with a handler of its own is
    left alone; if that one calls ours, ours does nothing."""

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
