"""The rows that a file's containers make, in columns that grow while it is read."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from profkit.trace.events import Bools, Int64s
from profkit.trace.snapshot.opcodes import Malformed
from profkit.trace.snapshot.tokens import Tokens

MOST_ROWS = 2**31 - 1
_ROW_BYTES = 50
_FRAME_BYTES = 200
"""The cost of a frame in its table, including the row that it becomes."""


class Shape(IntEnum):
    """What a container is, judged by its contents."""

    UNKNOWN = 0
    FRAME = 1
    STACK = 2
    PAIR = 3
    """Two integers: the name of a pool."""
    ENTRY = 4
    BLOCK = 5
    SEGMENT = 6
    ALLOCATION = 7
    """What PyTorch 2.0 kept of an allocation besides its entry; its row is that of its stack."""
    OTHER = 8


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length, by their names."""

    columns: Mapping[str, array[int]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The column, to read or write in place. Do not keep it: a table cannot grow while a view on it exists."""
        column = self.columns[name]
        return np.frombuffer(column, column.typecode)

    def add(self, **columns: ArrayLike) -> None:
        for name, column in self.columns.items():
            column.frombytes(np.ascontiguousarray(columns[name], column.typecode).tobytes())

    def keep(self, rows: Int64s) -> None:
        """Drop all other rows."""
        for name, column in self.columns.items():
            kept = self[name][rows].tobytes()
            del column[:]
            column.frombytes(kept)


def table(**typecodes: str) -> Table:
    return Table({name: array(typecode) for name, typecode in typecodes.items()})


@dataclass(frozen=True, slots=True)
class Tables:
    """Everything that is kept of a file while it is read. ``owner`` is the list around a row and ``container`` the
    dictionary that made it; both are rows of ``containers``."""

    containers: Table = field(default_factory=lambda: table(shape="B", row="i"))
    frames: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Codes of file, function and line."""
    stacks: dict[bytes, int] = field(default_factory=lambda: {b"": 0})
    """Codes of stacks; a stack is the 32-bit codes of its frames."""
    referred: dict[bytes, int] = field(default_factory=dict)
    """The stack that a list of references makes, by their bytes in the file; `NONE` if it is no stack."""
    stack_bytes: array[int] = field(default_factory=lambda: array("q", [0]))
    pairs: dict[tuple[int, int], int] = field(default_factory=lambda: {(0, 0): 0})
    entries: Table = field(
        default_factory=lambda: table(
            container="i", owner="i", action="B", address="q", size="q", stream="q", time="q", stack="i"
        )
    )
    blocks: Table = field(
        default_factory=lambda: table(owner="i", address="q", size="q", requested="q", state="B", stack="i")
    )
    segments: Table = field(
        default_factory=lambda: table(
            owner="i",
            blocks="i",
            device="i",
            address="q",
            size="q",
            stream="q",
            pool="i",
            is_large="B",
            is_expandable="B",
        )
    )
    lists: Table = field(default_factory=lambda: table(owner="i", item="i"))
    """Lists inside lists."""
    others: Table = field(default_factory=lambda: table(owner="i", key="i", kind="B", value="q"))
    """The values of other dictionaries by the codes of their keys."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many of each kind could not be used."""

    @property
    def taken_bytes(self) -> int:
        """The memory that the tables take. Segments and blocks count twice, as they are sorted at the end."""
        rows = 2 * _ROW_BYTES * (len(self.blocks) + len(self.segments)) + _ROW_BYTES * len(self.entries)
        return rows + 5 * len(self.containers) + _FRAME_BYTES * len(self.frames) + self.stack_bytes[0]

    def leave_out(self, what: str, count: int) -> None:
        if count:
            self.left_out[what] = self.left_out.get(what, 0) + count

    def set_shape(self, containers: Int64s, shape: Shape, rows: ArrayLike) -> None:
        self.containers["shape"][containers] = shape
        self.containers["row"][containers] = rows

    def shapes_of(self, tokens: Tokens, of_kind: Bools) -> NDArray[np.uint8]:
        """The shape of each token that is a container ``of_kind``, `Shape.UNKNOWN` for the others."""
        found = np.full(len(tokens), Shape.UNKNOWN, np.uint8)
        found[of_kind] = self.containers["shape"][tokens.number[of_kind]]
        return found

    def rows_of(self, containers: Int64s, shape: Shape, default: int) -> Int64s:
        """The rows of the containers that have the shape, ``default`` for the others."""
        rows = self.containers["row"][containers].astype(np.int64)
        return np.where(self.containers["shape"][containers] == shape, rows, default)

    def add_containers(self, count: int) -> None:
        if len(self.containers) + count > MOST_ROWS:
            raise Malformed("has too many containers")
        zeros = np.zeros(count, np.int32)
        self.containers.add(shape=zeros, row=zeros)

    def keep_newest_entries(self, most: int) -> None:
        """Drop the oldest entries of the history, so that at most this many are left."""
        container, time = self.entries["container"].copy(), self.entries["time"]
        kept = np.sort(np.argsort(time, kind="stable")[max(0, len(time) - most) :])
        del time
        self.set_shape(container, Shape.UNKNOWN, 0)
        self.set_shape(container[kept], Shape.ENTRY, np.arange(len(kept)))
        self.entries.keep(kept)
