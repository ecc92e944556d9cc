"""Recordings packed into few files of bounded size, each at once, and unpacked again as input that nobody trusts.

An archive is a tar file in gzip members, one for each recording, without the blocks that end it: so a recording is
added by appending, and if the run is ended in the midst, all recordings but the last are whole. A large recording goes
in at once only while half of the room is left. Otherwise it waits until the end, smallest first: small ones are many.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

ARCHIVES, ARCHIVE_BYTES = 4, 15_500_000
"""With three other files seven, under 16 MB each, together under 64 MiB."""
_LARGE_BYTES = 2_000_000
_NAME = "recordings-{}.tar.gz"
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_HOST = rb'(?:(?<="host": ")|(?<="host_name": "))HOST(?=")|(?<![\w-])HOST(?=_\d+\.\d+\.)'
_NO_HOST = b"gpu"
"""A trace's file name begins with the host's name too. Elsewhere the name may be any word."""
_NEVER = re.compile(rb"(?!)")
_TEXTS = (".json", ".html")
_PICKLE_PROTOCOL = 4
"""PyTorch's own."""
_MOST_DEEP = 8

MOST_FILES, MOST_FILE_BYTES, MOST_BYTES = 5_000, 64 << 20, 256 << 20
"""What unpacking reads at most."""


class Archives:
    """The archives in ``directory``. ``rewritten`` are paths of this machine and what stands for them elsewhere;
    ``host`` is its name, for which ``gpu`` stands."""

    def __init__(
        self,
        directory: Path,
        rewritten: Mapping[str, str],
        host: str = "",
        count: int = ARCHIVES,
        size_bytes: int = ARCHIVE_BYTES,
    ) -> None:
        self._paths = [directory / _NAME.format(number + 1) for number in range(count)]
        self._size_bytes = size_bytes
        self._rewritten = {_as_json(old): _as_json(new) for old, new in rewritten.items() if len(old) > 1}
        found = b"|".join(map(re.escape, sorted(self._rewritten, key=len, reverse=True)))
        self._paths_here = re.compile(rb"(?<![\w./-])(?:" + found + rb")(?![\w.-])") if found else _NEVER
        self._host = re.compile(_HOST.replace(b"HOST", re.escape(host.encode()))) if host else _NEVER
        self._waiting: list[tuple[str, bytes]] = []

    def add(self, name: str, path: Path) -> bool:
        """Pack a file or a folder, which is then deleted. False if there is no room for it."""
        packed = self._pack(name, path)
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        if len(packed) > _LARGE_BYTES and 2 * self._room_bytes() < self._size_bytes * len(self._paths):
            self._waiting.append((name, packed))
            return True
        return self._append(packed)

    def add_waiting(self) -> tuple[str, ...]:
        """Pack the large ones that wait, and return the names of those that find no room."""
        waiting = sorted(self._waiting, key=lambda pair: len(pair[1]))
        self._waiting.clear()
        return tuple(name for name, packed in waiting if not self._append(packed))

    def _append(self, packed: bytes) -> bool:
        for path in self._paths:
            if _size_of(path) + len(packed) <= self._size_bytes:
                with path.open("ab") as archive:
                    archive.write(packed)
                    archive.flush()
                    os.fsync(archive.fileno())
                return True
        return False

    def _room_bytes(self) -> int:
        return sum(self._size_bytes - _size_of(path) for path in self._paths)

    def _pack(self, name: str, path: Path) -> bytes:
        """A recording as a gzip member."""
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        blocks = io.BytesIO()
        for file in files:
            place = PurePosixPath(name, *file.relative_to(path).parts) if path.is_dir() else PurePosixPath(name)
            content = self._rewrite(file)
            entry = tarfile.TarInfo(self._host.sub(_NO_HOST, str(place).encode()).decode())
            entry.size = len(content)
            blocks.write(entry.tobuf(tarfile.GNU_FORMAT))
            blocks.write(content)
            blocks.write(bytes(-len(content) % tarfile.BLOCKSIZE))
        return gzip.compress(blocks.getvalue(), 6)

    def _rewrite(self, file: Path) -> bytes:
        content = file.read_bytes()
        if file.suffix == ".pickle":
            return self._rewrite_pickle(content)
        if file.name.endswith(".json.gz"):
            return gzip.compress(self._rewrite_text(gzip.decompress(content)), 9)
        return self._rewrite_text(content) if file.suffix in _TEXTS else content

    def _rewrite_text(self, content: bytes) -> bytes:
        content = self._paths_here.sub(lambda found: self._rewritten[found[0]], content)
        return self._host.sub(_NO_HOST, content)

    def _rewrite_pickle(self, content: bytes) -> bytes:
        """A memory snapshot, in which the same stack is one object wherever it stands."""
        known: dict[int, Any] = {}

        def rewrite(value: Any) -> Any:
            if id(value) not in known:
                known[id(value)] = rewritten(value)
            return known[id(value)]

        def rewritten(value: Any) -> Any:
            if isinstance(value, str):
                return self._rewrite_text(value.encode()).decode()
            if isinstance(value, dict):
                return {rewrite(key): rewrite(item) for key, item in value.items()}
            return type(value)(map(rewrite, value)) if type(value) in (list, tuple) else value

        snapshot = _PlainValues(io.BytesIO(content)).load()
        return pickle.dumps(rewrite(snapshot), protocol=_PICKLE_PROTOCOL)


class _PlainValues(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a snapshot")


def _as_json(text: str) -> bytes:
    return json.dumps(text)[1:-1].encode()


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@dataclass(frozen=True, slots=True)
class Unpacked:
    """``files`` are places within the folder. ``problems`` say in a line each what was not taken, and why."""

    files: tuple[PurePosixPath, ...]
    problems: tuple[str, ...]


class _TooMuch(Exception):
    """An archive holds more than any run packs."""


def unpack(archive: Path, directory: Path) -> Unpacked:
    """Unpack an archive that may be cut short, damaged or hostile. Only plain files with plain names are taken, and
    only out of gzip members that are whole."""
    files: list[PurePosixPath] = []
    problems: list[str] = []
    try:
        for place, content in _files(archive, problems):
            target = directory.joinpath(*place.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
            files.append(place)
    except FileExistsError as error:
        problems.append(f"{archive.name}: {error.filename} comes twice")
    except _TooMuch as error:
        problems.append(f"{archive.name}: {error}")
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        problems.append(f"{archive.name}: ends early or is damaged: {error}")
    return Unpacked(tuple(files), tuple(problems))


def _files(archive: Path, problems: list[str]) -> Iterator[tuple[PurePosixPath, bytes]]:
    count = 0
    for recording in _members(archive):
        with tarfile.open(fileobj=io.BytesIO(recording), mode="r:") as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES or entry.size > MOST_FILE_BYTES:
                    raise _TooMuch("holds more than a run packs")
                parts = entry.name.split("/")
                if not entry.isreg() or len(parts) > _MOST_DEEP or not all(map(_SEGMENT.fullmatch, parts)):
                    problems.append(f"{archive.name}: {entry.name[:100]!r} is no plain file with a plain name")
                    continue
                content = entries.extractfile(entry)
                assert content is not None
                read = content.read(entry.size)
                if len(read) < entry.size:
                    raise EOFError(f"{entry.name!r} is cut short")
                yield PurePosixPath(*parts), read


def _members(archive: Path) -> Iterator[bytes]:
    """What the gzip members hold, each once it is read to its checksum."""
    packed, total_bytes = archive.read_bytes(), 0
    while packed:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        content = unpacker.decompress(packed, MOST_BYTES - total_bytes + 1)
        total_bytes += len(content)
        if total_bytes > MOST_BYTES:
            raise _TooMuch("holds more than a run packs")
        if not unpacker.eof:
            raise EOFError("the last recording is cut short")
        packed = unpacker.unused_data
        yield content
