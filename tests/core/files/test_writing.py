"""Files of a run are whole or absent, and no link leads a write out of the directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profkit.core.files.writing import create, make_folder, replacing, write_file


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_file(tmp_path, "a.json", b"1")
    write_file(tmp_path, "a.json", b"22")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"22")]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_file(tmp_path, "a.json", b"old")
    with pytest.raises(KeyError), replacing(tmp_path, "a.json") as file:
        file.write(b"half")
        raise KeyError
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"old")]


def test_a_file_gets_the_age_that_is_asked_for(tmp_path: Path) -> None:
    with replacing(tmp_path, "a", age_ns=10**18) as file:
        file.write(b"x")
    assert (tmp_path / "a").stat().st_mtime_ns == 10**18


def test_another_name_of_the_file_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "run").mkdir()
    os.link(tmp_path / "precious", tmp_path / "run" / "a")
    write_file(tmp_path / "run", "a", b"new")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "run" / "a").read_bytes() == b"new"


@pytest.mark.parametrize("target", ["precious", "absent", "run/inside"])
def test_a_link_in_place_of_a_file_is_refused(tmp_path: Path, target: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "inside").write_bytes(b"precious")
    (tmp_path / "precious").write_bytes(b"precious")
    (run / "a").symlink_to(tmp_path / target)
    with pytest.raises(OSError, match="a is a link, which is not replaced"):
        write_file(run, "a", b"new")
    assert sorted(path.name for path in run.iterdir()) == ["a", "inside"]
    assert (tmp_path / "precious").read_bytes() == (run / "inside").read_bytes() == b"precious"
    assert not (tmp_path / "absent").exists()


def test_a_pipe_or_a_folder_in_place_of_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="pipe is a named pipe"):
        write_file(tmp_path, "pipe", b"")
    with pytest.raises(OSError, match="folder is a directory"):
        write_file(tmp_path, "folder", b"")


def test_a_link_in_place_of_a_folder_is_refused_but_the_directory_itself_may_be_one(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "workers").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="workers is a link, not a folder"):
        write_file(tmp_path / "run", "workers/a.json", b"")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "mine").symlink_to(tmp_path / "elsewhere")
    write_file(tmp_path / "mine", "workers/a.json", b"1")
    assert (tmp_path / "elsewhere" / "workers" / "a.json").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["../a", "b/../../a", "/a"])
def test_a_name_outside_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(OSError, match="outside"):
        make_folder(tmp_path / "run", name)


def test_a_new_file_takes_no_name_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "absent")
    with pytest.raises(FileExistsError):
        create(tmp_path / "a")
    assert not (tmp_path / "absent").exists()
