"""Several processes decode one trace and always give the same result as a single process."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.core.errors import UnreadableInput
from profkit.trace import containers
from profkit.trace.events import Trace
from profkit.trace.kineto import decoding, event_text
from profkit.trace.kineto.chunks import Chunk
from profkit.trace.kineto.columns import ColumnBuilder, TooMuch
from profkit.trace.kineto.reader import read_kineto
from profkit.trace.limits import DEFAULT_LIMIT_BYTES
from tests.traces import json_of, memory, op, step, thread_name

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="other processes decode on Linux alone"),
    # The runner of the tests has threads; the children touch nothing that these could hold.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few events each, decoded by other processes from the first one on."""
    monkeypatch.setattr(containers, "PIECE_BYTES", 4096)
    monkeypatch.setattr(decoding, "_PLACE_BYTES", 16384)
    monkeypatch.setattr(event_text, "_ALONE_BYTES", 0)


def read(path: Path, processes: int, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_text, "processes_at_hand", lambda: processes)
        return read_kineto(path, limit_bytes)


def assert_same(one: Trace, other: Trace) -> None:
    for column in fields(one.events):
        mine, others = getattr(one.events, column.name), getattr(other.events, column.name)
        assert mine.dtype == others.dtype, column.name
        assert np.array_equal(mine, others), column.name
    for part in ("names", "lanes", "texts", "base_ns", "recording", "health"):
        assert getattr(one, part) == getattr(other, part), part


def events(count: int = 1500) -> list[dict[str, Any]]:
    """Repeated and new names and shapes, on several threads."""
    return [
        thread_name(7, "loader"),
        *(step(i, i * 1000, 900) for i in range(count // 100)),
        *(op(f"aten::op{i % 37}", i * 10, 5, dims=[[i % 101, 3], []], tid=1 + i % 3) for i in range(count)),
        *(op(f"aten::late{i}", i * 10 + 1, 2, tid=9) for i in range(count // 10)),
        *(memory(i * 10 + 2, 64 * i, 4096 + i) for i in range(count // 10)),
    ]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_text(found: list[dict[str, Any]]) -> str:
    return json_of(found, displayTimeUnit="ms").decode()


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_give_the_same_trace_and_codes(tmp_path: Path, processes: int) -> None:
    path = write(tmp_path / "trace.json", as_text(events()))
    assert_same(read(path, 1), read(path, processes))


def test_other_processes_decode_most_of_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = decoding._Other.ask
    monkeypatch.setattr(decoding._Other, "ask", lambda *given: asked.append(given) or ask(*given))
    path = write(tmp_path / "trace.json", as_text(events()))
    read(path, 3)
    assert len(asked) > 10


@pytest.mark.usefixtures("_leaves_no_process")
def test_no_process_is_left_behind(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", as_text(events()))
    read(path, 3)


@pytest.mark.parametrize(
    "damage",
    [
        b'"name": "aten::op\x01"',
        b'"name": "aten::op},\n  {"',
        b'"name": aten',
        b'"ts": 1e999, "name": "x"',
        b'"na',
    ],
)
def test_damage_in_the_middle_is_read_as_by_one_process(tmp_path: Path, damage: bytes) -> None:
    text = as_text(events()).encode()
    middle = text.index(b'"name": "aten::op5"', len(text) // 2)
    path = write(tmp_path / "trace.json", text[:middle] + damage + text[middle + len('"name": "aten::op5"') :])
    assert_same(read(path, 1), read(path, 3))


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_cut_off_file_is_read_as_by_one_process(tmp_path: Path, share: float) -> None:
    text = as_text(events())
    path = write(tmp_path / "trace.json", text[: int(len(text) * share)])
    assert_same(read(path, 1), read(path, 2))


def test_the_same_steps_of_a_too_large_trace_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", as_text(events(6000)))
    limit_bytes = 101 * 10**6
    one, other = read(path, 1, limit_bytes), read(path, 3, limit_bytes)
    assert any("were kept" in note for note in one.health)
    assert any("were kept" in note for note in other.health)
    assert other.events.start_ns.max() <= one.events.start_ns.max() * 1.2


def test_numbers_too_large_for_another_process_are_still_read(tmp_path: Path) -> None:
    found = events()
    found[700]["tid"] = 2**80
    path = write(tmp_path / "trace.json", as_text(found))
    assert_same(read(path, 1), read(path, 3))


def test_if_the_other_processes_die_the_reader_goes_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "trace.json", as_text(events()))
    alone = read(path, 1)
    monkeypatch.setattr(decoding, "_serve", lambda *_: os._exit(9))
    assert_same(alone, read(path, 3))


def test_if_no_process_can_be_started_the_reader_goes_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "trace.json", as_text(events()))
    alone = read(path, 1)
    monkeypatch.setattr(os, "fork", refuse)
    assert_same(alone, read(path, 3))


def refuse() -> int:
    raise BlockingIOError("no more processes")


@pytest.mark.usefixtures("_leaves_no_process")
def test_an_error_of_the_reader_ends_the_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "trace.json", as_text(events()))
    monkeypatch.setattr(ColumnBuilder, "append", too_much)
    with pytest.raises(UnreadableInput, match="memory limit"):
        read(path, 3)


@settings(max_examples=settings().max_examples // 6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=4))
def test_mutated_text_reads_the_same(tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[float, int]]) -> None:
    text = bytearray(as_text(events(300)).encode())
    for at, value in flips:
        text[int(at * len(text))] = value
    path = write(tmp_path_factory.mktemp("mutated") / "trace.json", bytes(text))
    one, other = (outcome(path, processes) for processes in (1, 2))
    if isinstance(one, Trace) and isinstance(other, Trace):
        assert_same(one, other)
    else:
        assert str(one) == str(other)


def outcome(path: Path, processes: int) -> Trace | UnreadableInput:
    try:
        return read(path, processes)
    except UnreadableInput as error:
        return error


def too_much(builder: ColumnBuilder, chunk: Chunk) -> None:
    builder.rows += chunk.rows
    if builder.rows > 500:
        raise TooMuch
