"""Writing into a run directory: under a new name beside the file, then renamed.

So a reader never sees half a file, and a file's other names (hard links) keep their content. A directory may have been
received as an archive, in which a link would have profkit overwrite what lies elsewhere. So links are refused, both in
place of the file and in place of a folder on the way to it. Only a link that somebody makes between this check and the
write would be missed, and only as a folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from profkit.core.files.kinds import kind_of

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def write_file(directory: Path, name: str, content: bytes) -> None:
    """Write a file of ``directory``, completely or not at all. ``name`` may lie in folders, which are made.

    Raises `OSError`, also for a link or anything else that profkit would not have put there.
    """
    with replacing(directory, name) as file:
        file.write(content)


@contextmanager
def replacing(directory: Path, name: str, age_ns: int | None = None) -> Iterator[BinaryIO]:
    """A new file that becomes ``name`` in ``directory`` when the block ends, and is removed if the block raises.

    With ``age_ns`` it gets that time of change. Raises `OSError` as `write_file` does.
    """
    target = make_folder(directory, os.path.dirname(name)) / os.path.basename(name)
    refuse_links(target)
    unfinished = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    try:
        with create(unfinished) as file:
            yield file
        if age_ns is not None:
            os.utime(unfinished, ns=(age_ns, age_ns))
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def create(path: Path) -> BinaryIO:
    """A file that did not exist. Raises `FileExistsError` if anything has that name, even a link to nowhere."""
    return os.fdopen(os.open(path, _NEW | _BINARY, 0o666), "wb")


def make_folder(directory: Path, name: str) -> Path:
    """A folder of ``directory``, made if absent; ``name`` may have several parts. Raises `OSError` if one is a link."""
    folder = directory
    for part in Path(name).parts:
        if part == os.pardir or os.path.isabs(part):
            raise OSError(errno.EINVAL, f"{name} lies outside the directory")
        folder /= part
        with suppress(FileExistsError):
            folder.mkdir()
        kind = kind_of(folder.lstat().st_mode)
        if kind != "a directory":
            raise OSError(errno.ENOTDIR, f"{part} is {kind or 'a file'}, not a folder")
    return folder


def refuse_links(path: Path) -> None:
    """Raises `OSError` if ``path`` cannot be replaced because it is a link, or anything else but a file."""
    try:
        kind = kind_of(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if kind is not None:
        raise OSError(errno.EEXIST, f"{path.name} is {kind}, which is not replaced")
