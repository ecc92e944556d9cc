"""Long work tells on stderr where it is, now and then, terminal or not."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from types import TracebackType

EVERY_S = 10.0
"""Who waits as long for a line suspects that nothing happens any more (Nielsen, Usability Engineering, 1993, chapter
5)."""


class Teller:
    """A context manager: every ten seconds a line with what was last told to `at`, from a thread of its own."""

    def __init__(self, what: str, every_s: float = EVERY_S) -> None:
        self._what, self._every_s = what, every_s
        self._places = deque(["starting"], maxlen=1)
        self._over = threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._tell, name="profkit-teller", daemon=True)

    def __enter__(self) -> Teller:
        self._thread.start()
        return self

    def at(self, place: str) -> None:
        """Say where the work is."""
        self._places.append(place)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._over.wait(self._every_s):
            passed_s = time.monotonic() - self._begun
            try:
                sys.stderr.write(f"profkit: {self._what}: {self._places[0]}, {passed_s:.0f} s so far\n")
                sys.stderr.flush()
            except (OSError, ValueError):  # nobody reads it any more
                return
