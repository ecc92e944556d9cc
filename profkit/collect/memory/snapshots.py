"""Writing a snapshot of the allocator into the run directory, as the pickle that `torch.cuda.memory._dump_snapshot`
writes, but bounded in size."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import IO

from profkit.core.files.writing import replacing
from profkit.core.units import format_bytes
from profkit.run.directory import SNAPSHOT_FILE

MOST_BYTES = 256 << 20
"""An entry of the history takes about 1 kB, because each stack is written only once."""
_PROTOCOL = 4
"""The protocol of PyTorch's own snapshots on every Python but the newest."""


def save_snapshot(directory: Path, snapshot: object, most_bytes: int = MOST_BYTES) -> None:
    """Write it completely or not at all. Raises `OSError`."""
    with replacing(directory, SNAPSHOT_FILE) as file:
        pickle.Pickler(_Bounded(file, most_bytes), protocol=_PROTOCOL).dump(snapshot)


class _Bounded:
    """A file that accepts only so many bytes."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file, self._left = file, most_bytes
        self._most_bytes = most_bytes

    def write(self, content: bytes) -> int:
        self._left -= len(content)
        if self._left < 0:
            raise OSError(errno.EFBIG, f"it is larger than {format_bytes(self._most_bytes)}")
        return self._file.write(content)
