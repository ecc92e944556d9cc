"""Nsight Systems exports: tables, columns, types, texts and pages of the database damaged."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from profkit.derive.facts import Facts
from profkit.findings.values import Diagnosis
from profkit.trace.limits import memory_limit
from profkit.trace.reading import read_trace
from tests.fuzzing import traces
from tests.fuzzing.hostile import NUMBERS, TEXTS, damage_bytes, pack
from tests.fuzzing.reports import check_reports
from tests.fuzzing.running import Files, Kind
from tests.trace.exports import PROCESS, Table, calls, copies, kernels, ranges, strings, write_export

_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, _GRAPH, _OVERHEAD, _SYNC = (
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE", "OVERHEAD", "SYNCHRONIZATION")
)
_NAMES = strings(cudaLaunchKernel_v7000=1, sgemm=2, cudaStreamSynchronize_v3020=3, cudaMemcpyAsync_v3020=4, add=5)
_STEPS = range(1000, 5000, 1000)


def _steps() -> dict[str, Table]:
    """Four steps of a kernel, a copy and a wait each, in ranges."""
    return {
        "StringIds": _NAMES,
        _KERNEL: kernels(
            *((at + 200, at + 600, at + 1, 2) for at in _STEPS), *((at + 610, at + 700, at + 2, 5) for at in _STEPS)
        ),
        _MEMCPY: copies(*((at + 710, at + 750, at + 3, 4096, 1 + at // 1000 % 2, 1, 2) for at in _STEPS)),
        _MEMSET: ("start INTEGER, end INTEGER, globalPid INTEGER, bytes INTEGER", [(1760, 1770, PROCESS, 64)]),
        _RUNTIME: calls(
            *((at + 100, at + 150, at + 1, 1) for at in _STEPS),
            *((at + 160, at + 190, at + 2, 1) for at in _STEPS),
            *((at + 200, at + 230, at + 3, 4) for at in _STEPS),
            *((at + 300, at + 800, None, 3) for at in _STEPS),
        ),
        "NVTX_EVENTS": ranges(*((at + 50, at + 950, f"step {at // 1000}") for at in _STEPS)),
    }


@cache
def seeds() -> tuple[bytes, ...]:
    """Whole; with text by number and hardware beside it; with only kernels."""
    whole = _steps()
    by_number: Table = (
        "start INTEGER, end INTEGER, globalTid INTEGER, eventType INTEGER, text TEXT, textId INTEGER",
        [(at + 50, at + 950, PROCESS | 112, 59, None, 5) for at in _STEPS],
    )
    more: dict[str, Table] = {
        "NVTX_EVENTS": by_number,
        "TARGET_INFO_GPU": ("id INTEGER, name TEXT, smCount INTEGER", [(0, "NVIDIA A100", 108)]),
        "ENUM_CUDA_MEMCPY_OPER": (
            "id INTEGER, name TEXT, label TEXT",
            [(1, "H", "Host-to-Device"), (2, "D", "Device-to-Host")],
        ),
        _GRAPH: (
            "start INTEGER, end INTEGER, globalPid INTEGER, correlationId INTEGER, graphId INTEGER",
            [(2200, 2600, PROCESS, 2001, 7)],
        ),
        _OVERHEAD: ("start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER", [(1010, 1020, PROCESS | 112, 5)]),
        _SYNC: (
            "start INTEGER, end INTEGER, globalPid INTEGER, correlationId INTEGER, syncType INTEGER",
            [(1300, 1800, PROCESS, 9, 2)],
        ),
    }
    bare = {"StringIds": _NAMES, _KERNEL: whole[_KERNEL]}
    with tempfile.TemporaryDirectory() as folder:
        paths = [write_export(Path(folder, str(at)), each) for at, each in enumerate((whole, {**whole, **more}, bare))]
        return tuple(_smaller(path) for path in paths)


def _smaller(path: Path) -> bytes:
    """The file with pages of 512 bytes."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    return path.read_bytes()


# The damage: statements that an exporter would not write

_TYPES = ("INTEGER", "TEXT", "REAL", "BLOB", "")
_BLOBS = (b"", b"\xff\x00\xfe", b"[1]")


def _value(rng: random.Random) -> Any:
    value = rng.choice((*NUMBERS, *NUMBERS, *TEXTS, *_BLOBS, None))
    if isinstance(value, str):
        return (
            value.encode("utf-8", "replace").decode() if rng.random() < 0.7 else value.encode("utf-8", "surrogatepass")
        )
    return float(min(value, 2**1000)) if isinstance(value, int) and abs(value) >= 2**63 else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'


class _Database:
    """The tables and columns that are left to damage."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def tables(self) -> list[str]:
        return [name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self.connection.execute(f"PRAGMA table_info({_quoted(table)})")]


def _set_value(rng: random.Random, base: _Database, table: str, column: str) -> None:
    some = rng.choice(("", " WHERE rowid % 2", " WHERE rowid = 1", " WHERE rowid > 2"))
    base.connection.execute(f"UPDATE {_quoted(table)} SET {_quoted(column)} = ?{some}", (_value(rng),))


def _set_text(rng: random.Random, base: _Database, table: str, column: str) -> None:
    """Bytes as text, which SQLite does not look at."""
    text = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
    where = rng.choice(("StringIds", "NVTX_EVENTS"))
    if where in base.tables() and (there := [one for one in base.columns(where) if one in ("value", "text")]):
        base.connection.execute(f"UPDATE {where} SET {_quoted(there[0])} = CAST(? AS TEXT)", (text,))


def _compute(rng: random.Random, base: _Database, table: str, column: str) -> None:
    """Times and numbers moved, reversed, stretched or made alike."""
    name = _quoted(column)
    formula = rng.choice(
        (
            f"-{name}",
            f"{name} * 1000000",
            f"{name} / 7",
            f"{name} + 5000",
            "rowid",
            "end",
            "start",
            f"{name} || 'x'",
            f"random() + {name}",
            "9e18",
        )
    )
    base.connection.execute(f"UPDATE {_quoted(table)} SET {name} = {formula}")


def _drop_column(rng: random.Random, base: _Database, table: str, column: str) -> None:
    base.connection.execute(f"ALTER TABLE {_quoted(table)} DROP COLUMN {_quoted(column)}")


def _rename_column(rng: random.Random, base: _Database, table: str, column: str) -> None:
    new = rng.choice((*TEXTS, "start", "END", "text")).encode("utf-8", "replace").decode()
    base.connection.execute(f"ALTER TABLE {_quoted(table)} RENAME COLUMN {_quoted(column)} TO {_quoted(new)}")


def _rename_table(rng: random.Random, base: _Database, table: str, column: str) -> None:
    names = (*TEXTS, "StringIds", _KERNEL.lower(), "sqlite_x", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL; --")
    new = rng.choice(names).encode("utf-8", "replace").decode()
    base.connection.execute(f"ALTER TABLE {_quoted(table)} RENAME TO {_quoted(new)}")


def _drop_table(rng: random.Random, base: _Database, table: str, column: str) -> None:
    base.connection.execute(f"DROP TABLE {_quoted(table)}")
    if rng.random() < 0.4:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
        base.connection.execute(f"CREATE VIEW {_quoted(table)} AS {endless}")


def _retype(rng: random.Random, base: _Database, table: str, column: str) -> None:
    """The table made anew, with other types, and perhaps as a computed or unique column."""
    columns = base.columns(table)
    declared = [f"{_quoted(one)} {rng.choice(_TYPES)}" for one in columns]
    rows = base.connection.execute(f"SELECT * FROM {_quoted(table)}").fetchall()
    base.connection.execute(f"DROP TABLE {_quoted(table)}")
    computed = rng.random() < 0.3
    extra = ', "bytes2" AS (length(zeroblob(1 << 24)))' if computed else ""
    base.connection.execute(f"CREATE TABLE {_quoted(table)} ({', '.join(declared)}{extra})")
    places = ", ".join("?" for _ in columns)
    names = ", ".join(map(_quoted, columns))
    base.connection.executemany(f"INSERT INTO {_quoted(table)} ({names}) VALUES ({places})", rows)


def _repeat(rng: random.Random, base: _Database, table: str, column: str) -> None:
    for _ in range(rng.choice((1, 3))):
        base.connection.execute(f"INSERT INTO {_quoted(table)} SELECT * FROM {_quoted(table)} LIMIT 200")


def _delete(rng: random.Random, base: _Database, table: str, column: str) -> None:
    base.connection.execute(f"DELETE FROM {_quoted(table)}{rng.choice(('', ' WHERE rowid % 2', ' WHERE rowid < 3'))}")


_CHANGES: tuple[Callable[[random.Random, _Database, str, str], None], ...] = (
    *(_set_value, _set_value, _set_value, _set_text, _set_text, _compute, _compute),
    *(_drop_column, _rename_column, _rename_table, _drop_table, _retype, _repeat, _delete),
)


def make(rng: random.Random) -> Files:
    content = rng.choice(seeds())
    if rng.random() < 0.8:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.deserialize(content)
            base = _Database(connection)
            for _ in range(rng.choice((1, 1, 2, 4, 8))):
                table = rng.choice(base.tables() or [""])
                columns = base.columns(table) if table else []
                if columns:
                    with contextlib.suppress(sqlite3.Error):  # keys are unique, and not every change fits every table
                        rng.choice(_CHANGES)(rng, base, table, rng.choice(columns))
            content = connection.serialize()
    if rng.random() < 0.25:
        content = damage_bytes(rng, content)
    content = pack(rng, content) if rng.random() < 0.02 else content
    return {
        rng.choice(("export.sqlite", "export.sqlite", "trace.json.gz", "a?mode=rwc#1.sqlite", "x.nsys-rep")): content
    }


def read(folder: Path) -> Callable[[], Diagnosis]:
    (path,) = folder.iterdir()
    return partial(traces.judge, Facts(read_trace(path, limit_bytes=memory_limit())))


KIND = Kind(
    "nsys",
    100_000,
    make,
    read,
    check_reports,
    judged_each=16,
    rendered_each=3,
    found=("A range called `##[error]…` was a command of GitHub Actions in the report of a terminal.",),
)
