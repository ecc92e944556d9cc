"""The line on stderr while steps are recorded, on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


class Progress:
    """A context manager whose `show` replaces the line. Off a terminal it does nothing."""

    def __init__(self) -> None:
        self._status: Status | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("starting")
            self._status.start()
        return self

    def show(self, phase: str, done: int, total: int) -> None:
        """Say that ``done`` of ``total`` steps of a phase are over."""
        if self._status is not None:
            self._status.update(f"{phase}: step {done} of {total}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
