"""Only whole recordings of known scenarios come into the tree."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from tests.gpu import bring as bringing
from tests.gpu.archives import Archives
from tests.gpu.bring import bring, main

TRACE = gzip.compress(b'{"traceEvents": []}')


@pytest.fixture
def archives(tmp_path) -> Archives:
    (tmp_path / "run").mkdir()
    return Archives(tmp_path / "run", {})


def pack(archives: Archives, tmp_path: Path, name: str, *, size: int = 0, has_run: bool = True) -> None:
    folder = tmp_path / "recording"
    folder.mkdir()
    if has_run:
        (folder / "run.json").write_text(json.dumps({"trace": "gpu_1.2.pt.trace.json.gz"}))
    (folder / "gpu_1.2.pt.trace.json.gz").write_bytes(TRACE)
    (folder / "samples.json").write_bytes(bytes(size))
    archives.add(name, folder)


def test_both_variants_replace_what_was_there(archives, tmp_path):
    for variant in ("pitfall", "fix"):
        pack(archives, tmp_path, f"nvidia-h200/cat-in-loop/{variant}")
    old = tmp_path / "recorded/nvidia-h200/cat-in-loop/pitfall/old.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    brought = bring(tmp_path / "run", tmp_path / "recorded")
    assert (brought.scenarios, brought.problems) == (("nvidia-h200/cat-in-loop",), ())
    found = {str(path.relative_to(tmp_path / "recorded")) for path in (tmp_path / "recorded").rglob("*.gz")}
    assert found == {f"nvidia-h200/cat-in-loop/{one}/gpu_1.2.pt.trace.json.gz" for one in ("pitfall", "fix")}
    assert not old.exists()


@pytest.mark.parametrize(
    ("names", "settings", "reason"),
    [
        (("gpu/cat-in-loop/fix",), {}, "it is not its two variants"),
        (("gpu/unheard-of/fix", "gpu/unheard-of/pitfall"), {}, "no scenario has this name"),
        (("gpu/cat-in-loop/fix", "gpu/cat-in-loop/pitfall"), {"size": 600_000}, "it has 1.2 MB"),
        (("gpu/cat-in-loop/fix", "gpu/cat-in-loop/pitfall"), {"has_run": False}, "run.json"),
    ],
)
def test_anything_else_is_left_out_with_the_reason(archives, tmp_path, names, settings, reason):
    for name in names:
        pack(archives, tmp_path, name, **settings)
    brought = bring(tmp_path / "run", tmp_path / "recorded")
    assert brought.scenarios == ()
    assert len(brought.problems) == 1
    assert reason in brought.problems[0]
    assert not (tmp_path / "recorded").exists()


def test_others_go_where_it_is_told(archives, tmp_path):
    snapshot = tmp_path / "a.pickle"
    snapshot.write_bytes(pickle.dumps("x"))
    archives.add("snapshots/a.pickle", snapshot)
    assert bring(tmp_path / "run", tmp_path / "recorded", tmp_path / "others").scenarios == ()
    assert (tmp_path / "others/snapshots/a.pickle").is_file()
    assert not (tmp_path / "recorded").exists()


def test_the_command_names_what_it_brought_and_what_not(archives, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bringing, "scenario_names", lambda: ["a"])
    for name in ("gpu/a/fix", "gpu/a/pitfall", "gpu/b/fix"):
        pack(archives, tmp_path, name)
    assert main([str(tmp_path / "run"), "--into", str(tmp_path / "recorded")]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("gpu/a\n", "gpu/b: left out: no scenario has this name\n")
