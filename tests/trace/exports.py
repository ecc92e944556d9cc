"""Tiny handwritten Nsight Systems exports: tables in, a `Trace` of the real reader out."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from profkit.trace.events import Trace
from profkit.trace.reading import read_trace

Table = tuple[str, Iterable[tuple[Any, ...]]]
"""The columns as SQL declares them, and the rows."""

PROCESS = 281_476_838_981_632
"""A global process id: hardware, virtual machine and process 111 in one number."""
THREAD = PROCESS | 112

_DEVICE = ", ".join(
    f"{column} INTEGER"
    for column in ("start", "end", "globalPid", "correlationId", "deviceId", "contextId", "streamId")
)


def kernels(*rows: tuple[int, int, int | None, int], process: int | None = PROCESS, device: int = 0) -> Table:
    """Start, end, correlation and name of each."""
    return (
        f"{_DEVICE}, demangledName INTEGER, shortName INTEGER",
        [(a, b, process, c, device, 1, 7, name, name) for a, b, c, name in rows],
    )


def copies(*rows: tuple[int, int, int | None, int, int, int, int]) -> Table:
    """Start, end, correlation, bytes, direction, source and target of each."""
    return (
        f"{_DEVICE}, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
        [(a, b, PROCESS, c, 0, 1, 7, *rest) for a, b, c, *rest in rows],
    )


def calls(*rows: tuple[int, int, int | None, int], thread: int | None = THREAD) -> Table:
    """Start, end, correlation and name of each."""
    return (
        "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER",
        [(a, b, thread, c, name) for a, b, c, name in rows],
    )


def ranges(*rows: tuple[int, int | None, str | None], thread: int = THREAD, event_type: int = 59) -> Table:
    """Start, end and text of each."""
    return (
        "start INTEGER, end INTEGER, globalTid INTEGER, eventType INTEGER, text TEXT, textId INTEGER",
        [(a, b, thread, event_type, text, None) for a, b, text in rows],
    )


def strings(**names: int) -> Table:
    return "id INTEGER PRIMARY KEY, value TEXT", [(number, name) for name, number in names.items()]


def write_export(path: Path, tables: Mapping[str, Table]) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for name, (columns, rows) in tables.items():
            declared = ", ".join(f'"{part.split()[0]}" {" ".join(part.split()[1:])}' for part in columns.split(", "))
            connection.execute(f"CREATE TABLE {name} ({declared})")
            places = ", ".join("?" for _ in columns.split(", "))
            connection.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
        connection.commit()
    return path


def export_of(tables: Mapping[str, Table], name: str = "export.sqlite") -> Trace:
    """The trace of an export with these tables."""
    with tempfile.TemporaryDirectory() as directory:
        return read_trace(write_export(Path(directory, name), tables))
