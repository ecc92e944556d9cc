"""What stderr shows while profkit works: on a terminal a line while steps are recorded, and a bar while a large trace,
or many, are read; elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from profkit.core.telling import EVERY_S
from profkit.core.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar
    from rich.status import Status

_PATIENCE_S = 0.5
"""A file that is read within this time needs no bar."""
_REFRESH_S = 0.1
_LONGEST_NAME = 32
"""A longer line would wrap and could not be overwritten."""


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


class ReadingBar:
    """A context manager whose `show` moves the bar: how much of the file is read, unpacked size, and speed.

    Unlike rich's it starts no thread. A process with threads does not fork, and would read alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bar: ProgressBar[str] | None = None
        self._begun = self._shown = time.monotonic()
        self._is_wanted = sys.stderr.isatty()

    def __enter__(self) -> ReadingBar:
        return self

    def show(self, read_bytes: int, file_bytes: int, content_bytes: int) -> None:
        """Show how many bytes of the file are read, and how many they are unpacked."""
        rate = content_bytes / max(time.monotonic() - self._begun, 1e-9)
        self._move(read_bytes, file_bytes, f"{format_bytes(content_bytes)}, {format_bytes(rate)}/s")

    def count(self, done: int, total: int) -> None:
        """Show how many recordings are read."""
        self._move(done, total, f"{done:,} of {format_count(total, 'recording')}")

    def _move(self, done: int, total: int, text: str) -> None:
        now = time.monotonic()
        if not self._is_wanted:
            self._tell(done, total, text, now)
            return
        if now < max(self._begun + _PATIENCE_S, self._shown + _REFRESH_S):
            return
        if self._bar is None:
            self._bar = self._make(total)
        self._shown = now
        self._bar.update(max(0, done - self._bar.pos), text)

    def _tell(self, done: int, total: int, text: str, now: float) -> None:
        """Off a terminal a line every ten seconds, as other long work tells where it is."""
        if now - self._shown < EVERY_S:
            return
        self._shown = now
        share = format_share(done / max(total, 1))
        with suppress(OSError, ValueError):  # nobody reads it any more
            sys.stderr.write(f"profkit: {self._label()}: {share}, {text}, {now - self._begun:.0f} s so far\n")
            sys.stderr.flush()

    def _label(self) -> str:
        from profkit.report.wording import printable

        name = printable(self._path.name)
        return f"reading {name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + '...'}"

    def _make(self, total: int) -> ProgressBar[str]:
        return click.progressbar(
            length=max(total, 1), label=self._label(), file=sys.stderr, item_show_func=lambda text: text or ""
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.render_finish()
