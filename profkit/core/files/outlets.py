"""profkit's own stdout and stderr, whose readers may leave: ``profkit diagnose trace.json | head``.

click would end with status 1, which means that `--fail-on` was reached, and Python with 120. Here what nobody reads is
dropped, and the command ends with the status that it would have had. A program that profkit runs has a process of its
own, and its output is not touched.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, cast

from profkit.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # only type checkers know it before Python 3.12


class _Outlet(io.FileIO):
    """The bytes of a stream; nothing more is written once its reader has left, or once a write has failed."""

    def __init__(self, descriptor: int, must_arrive: bool, *, closefd: bool) -> None:
        super().__init__(descriptor, "wb", closefd=closefd)
        self._must_arrive = must_arrive
        self._is_lost = False

    def write(self, content: Buffer, /) -> int | None:  # type: ignore[override]
        size = len(memoryview(content))
        if self._is_lost or not size:  # click tries a stream with nothing, and swallows what that raises
            return size
        try:
            return super().write(content)
        except BlockingIOError:
            raise
        except OSError as error:
            self._is_lost = True
            if self._must_arrive and not isinstance(error, BrokenPipeError):
                raise UsageError(f"the standard output cannot be written: {error.strerror or error}") from error
        return size


@contextmanager
def outlets() -> Iterator[None]:
    """Within the block ``sys.stdout`` and ``sys.stderr`` let their readers leave, unless they have been replaced. A
    stream that is closed drops everything.

    A full disk behind stdout raises `UsageError`.
    """
    before = sys.stdout, sys.stderr
    sys.stdout = _outlet_for(sys.stdout, sys.__stdout__, must_arrive=True)
    sys.stderr = _outlet_for(sys.stderr, sys.__stderr__, must_arrive=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, UsageError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _outlet_for(stream: TextIO | None, original: TextIO | None, must_arrive: bool) -> TextIO:
    if stream is None:
        nowhere = _Outlet(os.open(os.devnull, os.O_WRONLY), must_arrive, closefd=True)
        return io.TextIOWrapper(io.BufferedWriter(nowhere), encoding="utf-8", errors="backslashreplace")
    if sys.platform == "win32" or stream is not original or not isinstance(stream, io.TextIOWrapper):
        return stream  # a console of Windows, which takes no bytes; a stream that somebody has replaced
    stream.flush()
    outlet = _Outlet(stream.fileno(), must_arrive, closefd=False)
    return io.TextIOWrapper(
        cast("io.BufferedWriter", outlet) if stream.write_through else io.BufferedWriter(outlet),  # python -u
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
