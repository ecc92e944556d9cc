"""What is copied of a program's folder, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.fixing import trees
from profkit.diagnosis.fixing.trees import Tree, copy_tree, snapshot, tree_of, written_since


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_the_repository_around_is_copied_else_the_working_folder_else_the_script_s(tmp_path):
    make(tmp_path, "repo/.git/HEAD", "repo/tools/train.py", "plain/sub/train.py", "other/x")
    repo, plain, other = tmp_path / "repo", tmp_path / "plain", tmp_path / "other"
    assert tree_of(repo / "tools/train.py", repo / "tools") == Tree(repo, repo / "tools")
    assert tree_of(plain / "sub/train.py", plain) == Tree(plain, plain)
    assert tree_of(plain / "sub/train.py", other) == Tree(plain / "sub", plain / "sub")
    assert tree_of(None, other) == Tree(other, other)


def test_a_folder_too_large_to_copy_is_refused(tmp_path, monkeypatch):
    make(tmp_path, "a.py", "data/b", "data/c")
    monkeypatch.setattr(trees, "MOST_FILES", 2)
    with pytest.raises(UsageError, match="--link"):
        tree_of(None, tmp_path)
    assert tree_of(None, tmp_path, (tmp_path / "data",)).linked == (tmp_path / "data",)


def test_a_copy_has_the_changed_files_and_links_where_asked(tmp_path):
    make(tmp_path, "p/a.py", "p/pkg/b.py", "p/data/big", "p/__pycache__/a.pyc", "p/.git/HEAD", "outside")
    (tmp_path / "p" / "inner").symlink_to("pkg/b.py")
    (tmp_path / "p" / "outer").symlink_to("../outside")
    tree = Tree(tmp_path / "p", tmp_path / "p", (tmp_path / "p/data",))
    copy = tmp_path / "copy" / "p"
    copy_tree(tree, copy, {Path("a.py"): b"changed"})
    assert (copy / "a.py").read_bytes() == b"changed"
    assert (copy / "inner").resolve() == copy / "pkg/b.py"
    assert (copy / "outer").resolve() == tmp_path / "outside"
    assert (copy / "data").readlink() == tmp_path / "p/data"
    assert not (copy / "__pycache__").exists()
    assert not (copy / ".git").exists()
    assert (tmp_path / "p/a.py").read_text() == "p/a.py"


def test_no_link_leads_from_the_copy_into_what_was_copied(tmp_path):
    root = tmp_path / "p"
    make(tmp_path, "p/out/a", "p/.venv/b", "outside")
    (root / "absolute").symlink_to(root / "out")
    (root / "missing").symlink_to(root / "none")
    (root / "loop").symlink_to(root / "loop")
    (root / "library").symlink_to(".venv/b")
    (root / "other").symlink_to(tmp_path / "outside")
    copy = tmp_path / "copy" / "p"
    copy_tree(Tree(root, root), copy, {})
    (copy / "absolute" / "a").write_text("written")
    (copy / "missing").write_text("written")
    assert (root / "out/a").read_text() == "p/out/a"
    assert not (root / "none").exists()
    assert (copy / "loop").is_symlink()
    assert (copy / "library").read_text() == "p/.venv/b"
    assert (copy / "other").resolve() == tmp_path / "outside"


def test_a_library_inside_the_folder_is_not_the_program(tmp_path):
    tree = Tree(tmp_path, tmp_path, (tmp_path / "data",))
    assert tree.within(str(tmp_path / "pkg/b.py")) == Path("pkg/b.py")
    assert tree.within(str(tmp_path / ".venv/lib/x.py")) is None
    assert tree.within(str(tmp_path / "data/x.py")) is None
    assert tree.within("/usr/lib/x.py") is None


def test_what_a_program_wrote_is_what_is_new_or_changed(tmp_path):
    make(tmp_path, "old", "kept")
    before = snapshot(tmp_path)
    make(tmp_path, "out/new")
    (tmp_path / "old").write_text("other text")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    found = written_since(tmp_path, before)
    assert sorted(found) == ["binary", "old", "out/new"]
    assert found["old"].text == "other text"
    assert found["binary"].text is None
