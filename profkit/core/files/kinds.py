"""What lies at a path, and whether it lies within a directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str | None:
    """What a file's mode says it is; None for a plain file."""
    if stat.S_ISREG(mode):
        return None
    return next((name for is_it, name in _KINDS if is_it(mode)), "no plain file")


def leads_out(path: Path, directory: Path) -> bool:
    """Whether links on the way to ``path``, which is below ``directory``, lead out of it. The directory itself may be
    reached by a link."""
    real, top = os.path.realpath(path), os.path.realpath(directory)
    try:
        return os.path.commonpath([real, top]) != top
    except ValueError:  # on another drive of Windows
        return True


def is_own_file(path: Path, directory: Path) -> bool:
    """Whether ``path`` is a plain file that lies in ``directory`` or below it, links resolved."""
    return path.is_file() and not leads_out(path, directory)


def links_out(directory: Path) -> str:
    """Why something that somebody sees there does not count, as the end of a message; empty without a link out."""
    linked = linked_out(directory)
    return f"; {linked[0]} is a link out of it, which is not followed" if linked else ""


def linked_out(directory: Path) -> list[str]:
    """The names there that are links out of it, in order."""
    return sorted(path.name for path in directory.iterdir() if path.is_symlink() and leads_out(path, directory))
