"""Only plain files are opened, and only those of the directory that was named."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from profkit.core.errors import UnreadableInput
from profkit.core.files.kinds import is_own_file
from profkit.core.files.reading import open_file, read_file


def test_a_plain_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_file(tmp_path / "a", 5, tmp_path) == b"12345"
    with pytest.raises(UnreadableInput, match="is larger than"):
        read_file(tmp_path / "a", 4)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "absent", 4, tmp_path)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, kind in (
            ("pipe", "a named pipe (FIFO)"),
            ("link", "a named pipe (FIFO)"),
            ("socket", "a socket"),
            ("/dev/zero", "a device"),
        ):
            with pytest.raises(UnreadableInput) as refused:
                read_file(tmp_path / name, 10)
            assert refused.value.cause.startswith(f"is {kind}, and only a file can be read"), name
            assert not is_own_file(tmp_path / name, tmp_path)
    with pytest.raises(UnreadableInput, match="cannot be read: Is a directory"):
        read_file(tmp_path / "folder", 10)
    assert not is_own_file(tmp_path / "folder", tmp_path)


def test_a_link_is_followed_within_the_directory_and_not_out_of_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "outside").write_bytes(b"secret")
    (run / "inside").write_bytes(b"own")
    (run / "own").symlink_to("inside")
    (run / "out").symlink_to("../outside")
    (run / "parent").symlink_to(tmp_path)
    assert read_file(run / "own", 10, run) == b"own"
    assert is_own_file(run / "own", run)
    for name in ("out", "parent/outside"):
        with pytest.raises(UnreadableInput, match="is a link out of"):
            read_file(run / name, 10, run)
        assert not is_own_file(run / name, run)
    assert read_file(run / "out", 10) == b"secret"  # named by the user


def test_links_in_a_circle_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_file(tmp_path / "a", 10, tmp_path)


def test_the_directory_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to("run")
    with open_file(tmp_path / "link" / "a", tmp_path / "link") as file:
        assert file.read() == b"1"
