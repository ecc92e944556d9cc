"""The patch, and writing it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.fixing.patches import line_after, refuse_dirty, unified_diff, write_files

NAME = Path("src/train.py")


@pytest.mark.parametrize("before", [b"a\nb\nc\n", b"a\r\nb\r\nc\r\n", b"a\nb\nc", b"\xe9\nb\nc\n"])
def test_git_applies_the_patch(tmp_path, before):
    (tmp_path / "src").mkdir()
    (tmp_path / NAME).write_bytes(before)
    after = before.replace(b"c", b"d")
    patch = unified_diff(tmp_path, {NAME: after})
    assert patch.startswith(b"--- a/src/train.py\n+++ b/src/train.py\n@@ -1,3 +1,3 @@\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, check=True)
    assert (tmp_path / NAME).read_bytes() == after


def test_nothing_changed_is_no_patch(tmp_path):
    assert unified_diff(tmp_path, {}) == b""


def test_a_line_is_found_again_behind_other_changes():
    before, after = b"a\nb\nc\nd\n", b"a\nnew\nb\nd\n"
    assert [line_after(before, after, line) for line in (1, 2, 3, 4)] == [1, 3, None, 4]


def test_all_files_are_written_or_none(tmp_path):
    one, other = Path("a.py"), Path("b.py")
    for name in (one, other):
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / one).chmod(0o755)
    (tmp_path / other).write_bytes(b"edited meanwhile")
    after = {one: b"new", other: b"new"}
    with pytest.raises(UsageError, match=r"b\.py: changed while profkit was measuring; nothing was written"):
        write_files(tmp_path, {one: b"old", other: b"old"}, after)
    assert (tmp_path / one).read_bytes() == b"old"
    write_files(tmp_path, {one: b"old", other: b"edited meanwhile"}, after)
    assert [(tmp_path / name).read_bytes() for name in (one, other)] == [b"new", b"new"]
    assert (tmp_path / one).stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_what_was_written_goes_back_if_the_rest_cannot_be(tmp_path, monkeypatch):
    before = {Path(name): b"old" for name in ("a.py", "b.py", "c.py")}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    replaced, real = [], os.replace

    def interrupted(source: Path, target: Path) -> None:
        replaced.append(target)
        if len(replaced) == 2:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files(tmp_path, before, dict.fromkeys(before, b"new"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("a.py", "b.py", "c.py"), b"old"
    )


def test_a_file_that_is_read_only_stays(tmp_path):
    name = Path("a.py")
    (tmp_path / name).write_bytes(b"old")
    (tmp_path / name).chmod(0o444)
    with pytest.raises(UsageError, match=r"a\.py: is read-only; nothing was written"):
        write_files(tmp_path, {name: b"old"}, {name: b"new"})
    assert (tmp_path / name).read_bytes() == b"old"
    (tmp_path / name).chmod(0o644)
    write_files(tmp_path, {name: b"old"}, {name: b"new"})
    assert (tmp_path / name).read_bytes() == b"new"


def test_a_repository_with_uncommitted_changes_is_refused(tmp_path):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    refuse_dirty(tmp_path)
    git("init")
    (tmp_path / "a.py").write_text("1")
    git("add", "a.py")
    git("commit", "-m", "a")
    refuse_dirty(tmp_path)
    (tmp_path / "a.py").write_text("2")
    with pytest.raises(UsageError, match=r"a\.py: changed and not committed"):
        refuse_dirty(tmp_path)
