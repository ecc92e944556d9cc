"""Writing the recording before SIGTERM ends the program; ``timeout``, schedulers and launchers send it.

By default the signal ends a process between two instructions. During a recording a Python handler runs instead, between
two bytecodes of the main thread: it writes the recording, then lets the default action end the process. So the exit
status is the same, and the program runs no further than without profkit. A second signal ends it at once. The program
does not see the handler (`profkit.collect.program.default_actions`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from profkit.collect.program.default_actions import stand_in, withdraw
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.early_end import is_programs_own

STATUS = 128 + signal.SIGTERM
"""The exit status that shells report."""
NOTE = "the program was ended by SIGTERM"
_SOON_S = 0.02
_PATIENCE = 250
"""How many times the handler tries again after it has interrupted profkit itself."""


class Termination:
    """From `install` to `remove`, SIGTERM calls ``finish`` on the main thread. A program that has its own handler is
    left alone. If such a handler knows this one and calls it, this one does as the default action that it stands for.
    """

    def __init__(self, guard: Guard, finish: Callable[[], None]) -> None:
        self._guard, self._finish = guard, finish
        self._tries = 0

    def install(self) -> None:
        """Set the handler, on the main thread only and if the signal has none."""
        stand_in(signal.SIGTERM, self._on_signal)

    def remove(self) -> None:
        """Restore the default, unless the program has set a handler meanwhile."""
        withdraw(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._tries += 1
        if not is_programs_own(frame) and self._tries <= _PATIENCE:
            again = threading.Timer(_SOON_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        self.remove()
        signal.signal(number, signal.SIG_DFL)
        self._guard(self._finish)
        os.kill(os.getpid(), number)
