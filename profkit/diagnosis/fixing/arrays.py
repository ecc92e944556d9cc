"""The numbers in a file of arrays that a program wrote: NumPy's ``.npy`` and ``.npz``, and what ``torch.save`` makes.

What is pickled in the last is read without making any object of it: its classes are only names here.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
_MOST_BYTES = 256 << 20
"""They are held for each run of the program, some dozen times."""
_NPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"
_STORED = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
}
"""What PyTorch's storages hold; others are compared by their bytes."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of a file by name, and all else in it as text."""

    arrays: Mapping[str, Values]
    text: str = ""


def read_arrays(path: Path) -> Arrays | None:
    """What a file holds; None if it is none of these, or too large."""
    with path.open("rb") as file:
        start = file.read(len(_NPY))
    if path.stat().st_size > _MOST_BYTES or not start.startswith((_NPY, _ZIP)):
        return None
    try:
        if start == _NPY:
            return Arrays({"": np.load(path, allow_pickle=False)})
        with zipfile.ZipFile(path) as archive:
            pickled = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
            return _of_numpy(archive) if pickled is None else _of_torch(archive, pickled)
    except Exception:  # a damaged or unknown file: its bytes are all that is compared
        return None


def _of_numpy(archive: zipfile.ZipFile) -> Arrays | None:
    if not all(name.endswith(".npy") for name in archive.namelist()):
        return None
    read = {name: np.load(io.BytesIO(archive.read(name)), allow_pickle=False) for name in archive.namelist()}
    return Arrays(read)


def _of_torch(archive: zipfile.ZipFile, pickled: str) -> Arrays:
    reader = _Names(io.BytesIO(archive.read(pickled)))
    text = repr(reader.load())
    folder = pickled.removesuffix("data.pkl") + "data/"
    arrays = {
        key: np.frombuffer(archive.read(folder + key), _STORED.get(kind, "u1")) for key, kind in reader.kinds.items()
    }
    return Arrays(arrays, text)


class _Named:
    """Stands for what any class or function would make, with its arguments and its state."""

    _parts: list[object]

    def __new__(cls, *parts: object) -> _Named:
        made = super().__new__(cls)
        made._parts = [*parts]
        return made

    def __setstate__(self, state: object) -> None:
        self._parts.append(state)

    def __setitem__(self, key: object, value: object) -> None:
        self._parts.append((key, value))

    def append(self, value: object) -> None:
        self._parts.append(value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}{tuple(self._parts)}"


class _Names(pickle.Unpickler):
    """Reads a pickle in which every class is a `_Named`. ``kinds`` are the storages that it refers to."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.kinds: dict[str, str] = {}

    def find_class(self, module: str, name: str) -> type[_Named]:
        return type(f"{module}.{name}", (_Named,), {})

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, kind, key, place, _ = pid
        self.kinds[key] = kind.__name__.rpartition(".")[2]
        return key, place
