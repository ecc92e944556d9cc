"""Looks at a short recording when it is due, between the looks that are made at regular intervals."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread, current_thread


class Alarm:
    """Calls ``action`` on a thread of its own, again and again, from a certain time on until it is cancelled."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._cancelled = Event()
        self._thread: Thread | None = None

    def set(self, in_s: float, again_s: float) -> None:
        self.cancel()
        self._cancelled = cancelled = Event()
        self._thread = Thread(target=self._run, name="profkit-alarm", args=(cancelled, in_s, again_s), daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """No thread is left when this returns, unless it is called on that thread."""
        thread, self._thread = self._thread, None
        self._cancelled.set()
        if thread is not None and thread is not current_thread():
            thread.join()

    def _run(self, cancelled: Event, in_s: float, again_s: float) -> None:
        wait_s = in_s
        while not cancelled.wait(wait_s):
            self._action()
            wait_s = again_s
