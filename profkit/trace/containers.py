"""The content of a file, piece by piece: plain, gzip or zstd, by its first bytes and not its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from isal import igzip_lib

from profkit.core.errors import UnreadableInput
from profkit.core.files.reading import open_file
from profkit.core.units import format_count

MAX_BYTES = 1 << 40
"""The largest uncompressed content that is read. More is no recording but a file that never ends."""
PIECE_BYTES = 512 << 10
"""Content per piece. The events decoded from larger ones would no longer fit the processor's caches."""

_BLOCK_BYTES = 32 << 10
"""Compressed bytes per read. What is left after a member's end is copied, so it should be little."""
_SALVAGED_BYTES = 64
"""Content per piece of a damaged file."""
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


OnProgress = Callable[[int, int, int], None]
"""Called again and again with the bytes of a file read so far, the file's size, and the bytes unpacked so far."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Content:
    """The uncompressed content of a file.

    Iterating reads it once. ``file_bytes`` is the size of the file, ``size_bytes`` the content given out so far. At the
    end, ``damage`` says why that is not everything; None if it is.
    """

    def __init__(self, path: Path, on_progress: OnProgress | None = None) -> None:
        self.path = path
        self._on_progress = on_progress
        self.file_bytes = 0
        self.size_bytes = 0
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        """The pieces, none of them empty. Raises `UnreadableInput` for a file that cannot be read or is too large."""
        try:
            with open_file(self.path) as file:
                self.file_bytes = os.fstat(file.fileno()).st_size
                for piece in self._pieces(file):
                    self.size_bytes += len(piece)
                    if self.size_bytes > MAX_BYTES:
                        raise UnreadableInput(self.path, f"is larger than {MAX_BYTES / 2**30:g} GiB uncompressed")
                    if self._on_progress is not None:
                        self._on_progress(file.tell(), self.file_bytes, self.size_bytes)
                    if piece:
                        yield piece
        except FileNotFoundError:
            raise UnreadableInput(self.path, "no such file") from None
        except OSError as error:
            raise UnreadableInput(self.path, f"cannot be read: {error.strerror or error}") from error

    def _pieces(self, file: BinaryIO) -> Iterator[bytes]:
        head = file.read(_BLOCK_BYTES)
        if head.startswith(_GZIP_MAGIC):
            yield from self._unpack(file, head, _GZIP_MAGIC, "gzip")
        elif head.startswith(_ZSTD_MAGIC):
            yield from self._unpack(file, head, _ZSTD_MAGIC, "zstd")
        else:
            while head:
                yield head
                head = file.read(PIECE_BYTES)

    def _unpack(
        self, file: BinaryIO, block: bytes, magic: bytes, kind: str, known_bytes: int | None = None
    ) -> Iterator[bytes]:
        """All members (frames). Anything else after the last one, such as padding, is ignored.

        A decompressor gives out nothing of a damaged piece. The file is then unpacked again: the ``known_bytes`` that
        were given out before are skipped, and from there on pieces are so small that hardly anything is missing.
        """
        (start, errors), unpacked = _unpacker_of(kind), 0
        while block.startswith(magic):
            member = start()
            while not member.eof:
                if member.needs_input and not block:
                    block = file.read(_BLOCK_BYTES)
                    if not block:
                        self.damage = f"is a {kind} file cut off after {self._given_out()}"
                        return
                again = known_bytes is not None and unpacked >= known_bytes
                try:
                    piece = member.decompress(block, _SALVAGED_BYTES if again else PIECE_BYTES)
                except errors as error:
                    self.damage = f"is a damaged {kind} file: {error}, after {self._given_out()}"
                    if known_bytes is None and file.seekable():
                        file.seek(0)
                        yield from self._unpack(file, file.read(_BLOCK_BYTES), magic, kind, self.size_bytes)
                    return
                block = b""
                unpacked += len(piece)
                if known_bytes is None or again:
                    yield piece
            block = member.unused_data
            if len(block) < len(magic):
                block += file.read(_BLOCK_BYTES)

    def _given_out(self) -> str:
        return f"{format_count(self.size_bytes, 'byte')} of content"


def _unpacker_of(kind: str) -> tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]:
    """The function that makes a decompressor for one member, and the errors for damaged bytes."""
    if kind == "gzip":
        return _start_gzip, (igzip_lib.IsalError,)  # type: ignore[return-value]  # isal's stubs declare the class as a value
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor, (zstd.ZstdError,)


def _start_gzip() -> _Decompressor:
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
