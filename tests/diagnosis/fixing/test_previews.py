"""Previews of changes: of files that are what their names promise, and of others."""

from __future__ import annotations

import os

import pytest

from profkit.diagnosis.fixing.previews import Piece, preview
from profkit.findings.values import Finding, Kind, Location, Severity


def finding(file: str, line: int = 1) -> Finding:
    place = Location(file, line, "main", "kept.append(x)")
    return Finding("retained-graph", Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", place)


def test_a_piece_is_what_changes_between_equal_lines(tmp_path):
    (tmp_path / "a.py").write_text("y = 1\n" * 3 + "kept.append(x)\n" + "y = 1\n" * 3)
    assert preview(finding("a.py", 4), tmp_path).pieces == (Piece(4, 5, "kept.append(x.detach())\n"),)


@pytest.mark.parametrize("name", ["loop.py", "folder.py", "no\0name.py", "\ud800.py", "x" * 5000 + ".py"])
def test_a_name_that_is_no_file_is_not_read(tmp_path, name):
    (tmp_path / "folder.py").mkdir()
    os.symlink("loop.py", tmp_path / "loop.py")
    assert preview(finding(name), tmp_path).refusal.startswith("the file cannot be read")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    assert preview(finding("pipe.py"), tmp_path).refusal.startswith("the file is a named pipe")


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.py").write_text("kept.append(x)\n")
    os.symlink(outside / "a.py", inside / "a.py")
    os.symlink(outside, inside / "folder")
    for name in ("a.py", "folder/a.py", "../outside/a.py", str(outside / "a.py")):
        assert preview(finding(name), inside).refusal == "the line is not part of the program's own folder"
