"""Opening files that anybody may have made: only plain files, and only those of the directory that was named.

Opening a named pipe would wait for its writer for ever, and a link could lead to any file of this machine.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from profkit.core.errors import UnreadableInput
from profkit.core.files.kinds import kind_of, leads_out

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def open_file(path: Path, within: Path | None = None) -> BinaryIO:
    """Open a plain file. Given ``within``, a directory above it, links that lead out of that are not followed.

    Raises `UnreadableInput` for anything else, and `FileNotFoundError` or another `OSError` as `open` does.
    """
    refuse_special_file(path, within)
    real = path if within is None else Path(os.path.realpath(path))
    opened = os.open(real, _FLAGS | _BINARY | (0 if within is None else _NO_LINK))
    try:
        kind = kind_of(os.fstat(opened).st_mode)
        if kind == "a directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if kind is not None:  # it was replaced just now
            raise _refusal(path, kind)
        return os.fdopen(opened, "rb")
    except BaseException:
        os.close(opened)
        raise


def read_file(path: Path, most_bytes: int, within: Path | None = None) -> bytes:
    """The content of a plain file, opened as `open_file` does. Raises `FileNotFoundError`, and `UnreadableInput` for
    anything that is no plain file, cannot be read or is larger."""
    try:
        with open_file(path, within) as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableInput(path, f"cannot be read: {error.strerror or error}") from error
    if len(content) > most_bytes:
        raise UnreadableInput(path, f"is larger than {most_bytes >> 20} MiB")
    return content


def refuse_special_file(path: Path, within: Path | None = None) -> None:
    """Raises `UnreadableInput` for anything but a file or a directory, and for a link out of ``within``."""
    if within is not None and leads_out(path, within):
        raise UnreadableInput(path, f"is a link out of {within}, which is not followed")
    try:
        kind = kind_of(path.stat().st_mode)
    except OSError:  # who opens it says what is wrong
        return
    if kind not in (None, "a directory"):
        raise _refusal(path, str(kind))


def _refusal(path: Path, kind: str) -> UnreadableInput:
    return UnreadableInput(path, f"is {kind}, and only a file can be read: copy what comes from it into one")
