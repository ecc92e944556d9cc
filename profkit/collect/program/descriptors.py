"""Files that profkit keeps open inside the program.

The program may close every descriptor that it does not know, as daemons do, and open its own files under the same
numbers. So profkit looks whether a number is still its file's before it reads, writes or closes.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import suppress

LOST = "the program closed a file that profkit had open"


class Descriptor:
    """A number of an open file, and which file that is."""

    def __init__(self, number: int) -> None:
        self._number, self._file = number, _file_of(number)

    def number(self) -> int:
        """The number. Raises `OSError` if it is not this file's any more."""
        if not self.is_kept:
            raise OSError(errno.EBADF, LOST)
        return self._number

    @property
    def is_kept(self) -> bool:
        with suppress(OSError):
            return _file_of(self._number) == self._file
        return False

    def close(self) -> None:
        if self.is_kept:
            os.close(self._number)


class KeptFile(io.FileIO):
    """A file that is read later. Raises `OSError` then if the program has closed it, and never closes another."""

    def __init__(self, number: int) -> None:
        self._descriptor = Descriptor(number)
        super().__init__(number, "rb", closefd=False)

    def fileno(self) -> int:
        return self._descriptor.number()

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]  # as it is called here
        self.fileno()
        return super().readinto(buffer)

    def readall(self) -> bytes | None:  # type: ignore[override]  # typeshed has them never return None
        self.fileno()
        return super().readall()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.fileno()
        return super().seek(offset, whence)

    def close(self) -> None:
        if not self.closed:
            self._descriptor.close()
        super().close()


def _file_of(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino
