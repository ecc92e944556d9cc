"""Damaged or hostile exports give one clear line or a health note, nothing else, within limited time."""

from __future__ import annotations

import contextlib
import sqlite3
import time
import tracemalloc
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.core.errors import ProfkitError, UnreadableInput
from profkit.derive.facts import Facts
from profkit.patterns.time.shares import time_shares
from profkit.trace.nsys import tables as nsys_tables
from profkit.trace.reading import read_trace
from tests.trace.exports import PROCESS, Table, calls, export_of, kernels, ranges, strings, write_export
from tests.trace.test_nsys import KERNEL, MEMCPY, NAMES, RUNTIME, WHOLE, listed

LAUNCHED = {"StringIds": NAMES, KERNEL: kernels((10, 20, 1, 2)), RUNTIME: calls((0, 5, 1, 1))}


def refusal(path: Path) -> str:
    with pytest.raises(UnreadableInput) as caught:
        read_trace(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def run_sql(path: Path, *statements: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def test_other_databases_and_empty_exports_are_refused(tmp_path):
    other = write_export(tmp_path / "mail.db", {"messages": ("body TEXT", [("hello",)])})
    assert refusal(other) == "is an SQLite file but not an Nsight Systems export"
    assert refusal(write_export(tmp_path / "empty.sqlite", {KERNEL: kernels()})) == "holds no events"
    timeless = write_export(tmp_path / "timeless.sqlite", {KERNEL: ("start TEXT, end TEXT", [("soon", "later")])})
    assert refusal(timeless) == "holds no event with a time"


def test_a_file_that_only_begins_like_an_sqlite_database_is_refused(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert refusal(path).startswith("is a damaged SQLite file: ")


def test_a_report_that_was_never_exported_is_refused_with_the_command_that_exports_it(tmp_path):
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"\x01\x02\x03")
    assert "nsys export --type sqlite" in refusal(path)


@pytest.mark.parametrize("name", ["export.sqlite", "trace.json.gz", "trace", "a file?mode=rwc#1.sqlite"])
def test_an_export_is_recognised_by_its_bytes_and_not_by_its_name(name):
    assert len(export_of(LAUNCHED, name).events) == 2


def test_reading_writes_nothing_and_needs_no_write_permission(tmp_path):
    path = write_export(tmp_path / "export.sqlite", WHOLE)
    before = path.read_bytes()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        read_trace(path)
    finally:
        tmp_path.chmod(0o700)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["export.sqlite"]


def test_an_export_with_a_journal_is_read_without_touching_it(tmp_path):
    path = write_export(tmp_path / "export.sqlite", WHOLE)
    run_sql(path, "PRAGMA journal_mode = WAL", "CREATE TABLE other (a INTEGER)")
    left = sorted(found.name for found in tmp_path.iterdir())
    assert len(read_trace(path).events) == 6
    assert sorted(found.name for found in tmp_path.iterdir()) == left


@pytest.mark.parametrize("table", [table for table in WHOLE if table != "StringIds"])
def test_any_table_may_be_missing(table):
    left = {name: rows for name, rows in WHOLE.items() if name != table}
    assert len(export_of(left).events) == len(export_of(WHOLE).events) - len(list(WHOLE[table][1]))


def test_names_may_be_missing():
    trace = export_of({name: rows for name, rows in WHOLE.items() if name != "StringIds"})
    assert [name for name, _, _ in listed(trace)].count("(nameless)") == 3
    assert {"training", "Memset (Device)"} <= set(trace.names)


def _without(table: Table, column: str) -> Table:
    declared = table[0].split(", ")
    at = next(i for i, part in enumerate(declared) if part.split()[0] == column)
    return ", ".join(declared[:at] + declared[at + 1 :]), [row[:at] + row[at + 1 :] for row in table[1]]


@pytest.mark.parametrize("table", [table for table in WHOLE if table != "StringIds"])
def test_any_column_may_be_missing_or_contain_anything(table):
    for column in [part.split()[0] for part in WHOLE[table][0].split(", ")]:
        time_shares(Facts(export_of({**WHOLE, table: _without(WHOLE[table], column)})))  # computed once
        declared = WHOLE[table][0].split(", ")
        at = next(i for i, part in enumerate(declared) if part.split()[0] == column)
        values = (None, "text", b"\xff\x00", 1.5, 1e300, 2**63 - 1, -(2**63), 2**62, -1, float("inf"))
        rows = [(*row[:at], value, *row[at + 1 :]) for row in WHOLE[table][1] for value in values]
        time_shares(Facts(export_of({**WHOLE, table: (", ".join(part.split()[0] for part in declared), rows)})))


def test_rows_without_a_time_are_counted_and_impossible_lengths_become_instants():
    rows = kernels((10, 20, 1, 2), (30, 25, 2, 2), (40, 2**62, 3, 2), (50, 60, 4, 2))
    broken = (rows[0], [*rows[1], (None, 70, PROCESS, 5, 0, 1, 7, 2, 2), ("soon", 70, PROCESS, 5, 0, 1, 7, 2, 2)])
    trace = export_of({"StringIds": NAMES, KERNEL: broken})
    assert [(start, duration) for _, start, duration in listed(trace)] == [(0, 10), (20, 0), (30, 0), (40, 10)]
    assert trace.health == (
        "left out, because unreadable or without a usable time: 2 events",
        "read as instants, because of an impossible duration: 2 events",
    )


def test_text_that_is_not_utf8_is_replaced(tmp_path):
    path = write_export(tmp_path / "export.sqlite", LAUNCHED)
    run_sql(path, "UPDATE StringIds SET value = CAST(x'61ff62' AS TEXT) WHERE id = 2")
    assert "a\ufffdb" in read_trace(path).names


def test_long_names_are_cut_and_too_many_become_one():
    long = "k" * 9000
    trace = export_of({"StringIds": strings(**{long: 2}), KERNEL: kernels((10, 20, 1, 2))})
    assert trace.names == (long[:4096],)
    with patch.object(nsys_tables, "MOST_TEXT_CHARACTERS", 10):
        trace = export_of({"NVTX_EVENTS": ranges(*((10 * n, 10 * n + 5, f"range{n}") for n in range(9)))})
    assert trace.names == ("range0", "(one of too many names)")


def test_no_more_rows_are_read_than_allowed():
    with patch.object(nsys_tables, "MOST_ROWS", 10):
        trace = export_of({"StringIds": NAMES, KERNEL: kernels(*((10 * n, 10 * n + 5, n, 2) for n in range(30)))})
    assert len(trace.events) == 10
    assert trace.health == (f"only the first 10 rows of {KERNEL} were read",)


def test_views_generated_columns_and_virtual_tables_are_never_evaluated(tmp_path):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
    path = run_sql(
        write_export(tmp_path / "view.sqlite", {RUNTIME: calls((0, 5, 1, 1))}),
        f"CREATE VIEW {KERNEL} AS {endless}",
        f"CREATE TABLE {MEMCPY} (start INTEGER, end INTEGER, bytes AS (length(zeroblob(1 << 24))))",
        f"INSERT INTO {MEMCPY} VALUES (1, 2)",
        "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, end, text)",
    )
    tracemalloc.start()
    trace = read_trace(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sorted(duration for _, _, duration in listed(trace)) == [1, 5]
    assert trace.events.size_bytes.max() == 0
    assert peak_bytes < 8 << 20


def test_a_slow_lookup_without_an_index_is_given_up(tmp_path):
    """Without a key the text of each range is searched for among all strings: with many of both that takes minutes."""
    path = write_export(
        tmp_path / "slow.sqlite",
        {
            KERNEL: kernels((0, 10, 1, 2)),
            "StringIds": ("id INTEGER, value TEXT", ((n, "x") for n in range(20_000))),
            "NVTX_EVENTS": ("start INTEGER, end INTEGER, textId INTEGER", ((n, n + 1, -n) for n in range(20_000))),
        },
    )
    began = time.process_time()
    trace = read_trace(path)
    assert time.process_time() - began < 10
    assert any("NVTX_EVENTS cannot be read whole (it would take too long)" in note for note in trace.health)


def test_a_schema_that_is_not_text_is_refused_in_one_line(tmp_path):
    path = write_export(tmp_path / "export.sqlite", LAUNCHED)
    content = path.read_bytes()
    for old, new in ((b"CREATE TABLE StringIds", b"CREATE TABLE \xe0tring\n("), (b"CREATE TABLE", b"CREA\xff\n TABLE")):
        path.write_bytes(content.replace(old, new))
        assert refusal(path).startswith("is a damaged SQLite file: ")


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    """An export of several pages."""
    tables = {
        **WHOLE,
        KERNEL: kernels(*((100 * n, 100 * n + 50, n + 1, 2) for n in range(400))),
        RUNTIME: calls(*((100 * n, 100 * n + 9, n + 1, 1) for n in range(400))),
    }
    return write_export(tmp_path_factory.mktemp("export") / "export.sqlite", tables).read_bytes()


def _read_and_derive(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        facts = Facts(read_trace(path))
    except ProfkitError as error:
        assert "\n" not in str(error)  # noqa: PT017  # any mutation may be readable
        return
    assert sum(time_ns for _, time_ns in time_shares(facts)) >= 0


def test_a_damaged_page_loses_its_rows_with_a_note(tmp_path, content):
    path = tmp_path / "export.sqlite"
    page = int.from_bytes(content[16:18], "big")
    kept = []
    for at in range(page, len(content), page):
        path.write_bytes(content[:at] + b"\xff" * 8 + content[at + 8 :])
        trace = read_trace(path)
        note = trace.health[0]
        assert note.startswith("the table ")
        assert "cannot be read whole (database disk image is malformed): " in note
        kept.append(len(trace.events))
    assert len(kept) > 8
    assert min(kept) > 400
    assert sorted(kept)[len(kept) // 2] < 804


@given(share=st.floats(0, 1))
def test_a_trace_cut_off_anywhere_is_read_or_refused(tmp_path_factory, content, share):
    _read_and_derive(tmp_path_factory.mktemp("cut") / "export.sqlite", content[: int(share * len(content))])
