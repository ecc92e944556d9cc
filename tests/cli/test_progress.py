"""The progress bar while a large trace is read."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.cli import _progress
from profkit.cli._progress import ReadingBar
from profkit.trace.reading import read_trace
from tests.traces import json_of, op


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    stream = _Terminal()
    monkeypatch.setattr(_progress, "sys", SimpleNamespace(stderr=stream))  # pytest sets the real one anew before a test
    monkeypatch.setattr(_progress, "_PATIENCE_S", 0)
    monkeypatch.setattr(_progress, "_REFRESH_S", 0)
    return stream


def test_the_bar_shows_how_much_is_read_and_how_fast(terminal: _Terminal) -> None:
    with ReadingBar(Path("large.json.gz")) as bar:
        bar.show(250, 1000, 5_000_000)
        bar.show(750, 1000, 15_000_000)
    first, second = [line for line in terminal.getvalue().split("\r") if "large.json.gz" in line]
    assert re.search(r"25%.* 5\.00 MB, [\d.]+ [kMGT]?B/s", first)
    assert re.search(r"75%.* 15\.0 MB, [\d.]+ [kMGT]?B/s", second)


def test_reading_a_trace_moves_the_bar_to_the_end(terminal: _Terminal, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(json_of([op("aten::mul", 10 * i, 5) for i in range(20_000)]))
    with ReadingBar(trace) as bar:
        assert len(read_trace(trace, bar.show).events) == 20_000
    assert "100%" in terminal.getvalue()


def test_reading_a_damaged_file_twice_does_not_move_the_bar_back(terminal: _Terminal) -> None:
    with ReadingBar(Path("twice.gz")) as bar:
        bar.show(800, 1000, 8_000)
        bar.show(100, 1000, 8_000)
        bar.show(900, 1000, 9_000)
    assert [int(share) for share in re.findall(r"(\d+)%", terminal.getvalue())] == [80, 90]


def test_control_characters_in_a_name_are_shown_as_text_and_long_names_are_cut(terminal: _Terminal) -> None:
    with ReadingBar(Path("a\x1b[2J" + "b" * 50)) as bar:
        bar.show(1, 2, 1)
    assert "\x1b[2J" not in terminal.getvalue()
    assert "reading a\\x1b[2J" + "b" * 21 + "... " in terminal.getvalue()


def test_a_file_that_is_read_quickly_gets_no_bar(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "_PATIENCE_S", 60)
    with ReadingBar(Path("small.json")) as bar:
        bar.show(1, 1, 1)
    assert not terminal.getvalue()


def test_without_a_terminal_a_line_tells_now_and_then(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    monkeypatch.setattr(_progress, "EVERY_S", 0)
    with ReadingBar(Path("large.json")) as bar:
        bar.show(1, 4, 1)
    assert re.fullmatch(r"profkit: reading large\.json: 25 %, 1 B, .*/s, 0 s so far\n", terminal.getvalue())


def test_without_a_terminal_no_bar_is_shown(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with ReadingBar(Path("large.json")) as bar:
        bar.show(1, 2, 1)
    assert not terminal.getvalue()
