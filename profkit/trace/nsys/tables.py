"""Tables of an untrusted SQLite file, as columns.

The file is opened read-only and never locked or written beside. Only real tables and stored columns are read: a view or
a generated column could compute without end. The cost of a file is bounded: rows, characters of names, and the steps of
SQLite's machine, by the file's size.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from profkit.core.errors import UnreadableInput
from profkit.core.units import format_count
from profkit.trace.events import NONE, Int32s, Int64s

MISSING = -(2**63)
"""Stands for an integer that is missing or not an integer."""
MOST_ROWS = 20_000_000
"""Rows to read of one table; each takes about 85 bytes of a trace."""
MOST_NAME_CHARACTERS = 4096
"""Characters to keep of one name; names of kernels reach 2000."""
MOST_TEXT_CHARACTERS = 64 << 20
"""Characters to keep of all names together."""

_CHUNK_ROWS = 16_384
_MOST_VALUE_BYTES = 16 << 20
_STEPS_PER_BYTE, _FREE_STEPS, _STEPS_AT_A_TIME = 50, 20_000_000, 1_000_000
"""A row of eight numbers takes some 30 bytes of a file and 100 steps to read."""
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""`UnicodeDecodeError` if SQLite's message quotes bytes that it found in place of a schema."""


class Names:
    """Gives each new name the next code while all of them fit."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self._characters = 0

    def code(self, name: str) -> int:
        found = self.codes.get(name)
        if found is None:
            self._characters += len(name)
            if self._characters > MOST_TEXT_CHARACTERS:
                return self.codes.setdefault("(one of too many names)", len(self.codes))
            found = self.codes[name] = len(self.codes)
        return found


class Tables:
    """The tables of one file. ``notes`` says what could not be read."""

    def __init__(self, path: Path, before_ns: int | None = None) -> None:
        """Of rows that have a start only those ``before_ns`` are read. Raises `UnreadableInput` where the file is no
        database."""
        self.path = path
        self._before_ns = before_ns
        self.notes: list[str] = []
        self._steps_left = 0
        try:
            self._steps_left = _FREE_STEPS + _STEPS_PER_BYTE * path.stat().st_size
            self._connection = _open(path)
            self._connection.set_progress_handler(self._tick, _STEPS_AT_A_TIME)
            self._columns = self._find_columns()
        except FileNotFoundError:
            raise UnreadableInput(path, "no such file") from None
        except OSError as error:
            raise UnreadableInput(path, f"cannot be read: {error.strerror or error}") from error
        except _DAMAGE as error:
            raise UnreadableInput(path, f"is a damaged SQLite file: {_cause(error)}") from error

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __contains__(self, table: str) -> bool:
        return table in self._columns

    def has(self, table: str, column: str) -> bool:
        return column in self._columns.get(table, ())

    def read(self, table: str, integers: Sequence[str]) -> dict[str, Int64s]:
        """These columns of a table, with `MISSING` for a value that is absent or not a number."""
        there = {column: f'"{column}"' for column in integers if self.has(table, column)}
        columns, _ = self.select(table, f'"{table}"', there or {integers[0]: str(MISSING)})
        rows = len(next(iter(columns.values())))
        return {column: columns.get(column, np.full(rows, MISSING, dtype=np.int64)) for column in integers}

    def select(
        self, table: str, source: str, numbers: Mapping[str, str], text: str = "NULL", names: Names | None = None
    ) -> tuple[dict[str, Int64s], Int32s]:
        """Columns of numbers and the codes of a text; each is an SQL expression on the rows of an SQL source. Empty
        without the table."""
        parts: list[list[Int64s]] = [[np.zeros(0, dtype=np.int64)] for _ in numbers]
        codes = [np.zeros(0, dtype=np.int32)]
        is_cut = self._before_ns is not None and self.has(table, "start")
        rows_of = f'{source} WHERE "start" < {self._before_ns}' if is_cut else source
        query = f"SELECT {', '.join([*numbers.values(), text])} FROM {rows_of} LIMIT {MOST_ROWS + 1}"  # noqa: S608  # this package spells all of it out
        for rows in self._chunks(table, query) if table in self else ():
            *values, texts = zip(*rows, strict=True)
            for part, column in zip(parts, values, strict=True):
                part.append(_integers(column))
            codes.append(_codes(names or Names(), texts))
        columns = {name: np.concatenate(part) for name, part in zip(numbers, parts, strict=True)}
        return columns, np.concatenate(codes)

    def texts(self, table: str, column: str) -> dict[int, str]:
        """The names that a column of a table refers to. The others, among which are the program's environment and
        output, stay unread."""
        if not (self.has("StringIds", "id") and self.has("StringIds", "value") and self.has(table, column)):
            return {}
        query = (
            f"SELECT id, substr(value, 1, {MOST_NAME_CHARACTERS}) FROM StringIds "  # noqa: S608  # see above
            f'WHERE typeof(value) = \'text\' AND id IN (SELECT DISTINCT "{column}" FROM "{table}")'
        )
        return {number: text for rows in self._chunks("StringIds", query) for number, text in rows}

    def labels(self, table: str) -> dict[int, str]:
        """The labels of an enumeration's numbers, if the file has them."""
        if not (self.has(table, "id") and self.has(table, "label")):
            return {}
        query = f"SELECT id, substr(label, 1, 99) FROM \"{table}\" WHERE typeof(label) = 'text' LIMIT 99"  # noqa: S608  # see above
        return {number: text for rows in self._chunks(table, query) for number, text in rows}

    def _chunks(self, table: str, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query; if the table is damaged, those before the damage."""
        count = 0
        rows: list[tuple[Any, ...]] = []
        try:
            with contextlib.closing(self._connection.execute(query)) as cursor:
                while True:
                    rows = []
                    rows.extend(islice(cursor, _CHUNK_ROWS))
                    if not rows:
                        return
                    count += len(rows)
                    if count > MOST_ROWS:
                        self.notes.append(f"only the first {MOST_ROWS:,} rows of {table} were read")
                        yield rows[: len(rows) - (count - MOST_ROWS)]
                        return
                    yield rows
        except _DAMAGE as error:
            cause = "it would take too long" if self._steps_left < 0 else _cause(error)
            kept = format_count(count + len(rows), "row")
            self.notes.append(f"the table {table} cannot be read whole ({cause}): {kept} of it could be")
            if rows:
                yield rows

    def _find_columns(self) -> dict[str, set[str]]:
        """The columns stored in real tables, not computed by virtual ones."""
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND typeof(name) = 'text' LIMIT 10000"
        tables = [
            name
            for name, sql in self._connection.execute(query).fetchall()
            if isinstance(sql, str) and not sql.lstrip().upper().startswith("CREATE VIRTUAL")
        ]
        wanted = "SELECT name FROM pragma_table_info(?) LIMIT 1000"
        return {table: {name for (name,) in self._connection.execute(wanted, (table,))} for table in tables}

    def _tick(self) -> int:
        self._steps_left -= _STEPS_AT_A_TIME
        return int(self._steps_left < 0)


def _open(path: Path) -> sqlite3.Connection:
    """Open the file without locks, journals, extensions, or functions that a schema could call."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
    return connection


def _cause(error: Exception) -> str:
    """SQLite's message on one line, without text that it quotes from the file."""
    return "its schema cannot be read" if isinstance(error, UnicodeDecodeError) else str(error).partition("\n")[0][:200]


def _integers(values: Sequence[Any]) -> Int64s:
    """Integers, with `MISSING` for anything else: SQLite lets a column hold values of any type."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], dtype=np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return MISSING
    return number if -(2**63) <= number < 2**63 else MISSING


def _codes(names: Names, texts: Sequence[str | None]) -> Int32s:
    """The code of each text, `NONE` if there is none."""
    return np.array([NONE if text is None else names.code(text) for text in texts], dtype=np.int32)
