"""Recordings go into archives of bounded size and come out again; nothing hostile does."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from tests.gpu import archives as packing
from tests.gpu.archives import ARCHIVE_BYTES, ARCHIVES, Archives, unpack


def noise(count: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(count)


def recording(folder: Path, content: bytes, name: str = "data.bin") -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)
    return folder


def hostile(file: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with gzip.open(file, "wb") as plain, tarfile.open(fileobj=plain, mode="w") as archive:
        for entry, content in members:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file


def test_what_goes_in_comes_out_and_is_deleted_here(tmp_path):
    archives = Archives(tmp_path, {})
    folder = recording(tmp_path / "a", b"one")
    (folder / "workers").mkdir()
    (folder / "workers" / "loader-0.json").write_bytes(b"{}")
    assert archives.add("gpu/scenario/pitfall", folder)
    assert archives.add("snapshots/b.pickle", recording(tmp_path / "b", b"two") / "data.bin")
    assert not folder.exists()
    taken = unpack(tmp_path / "recordings-1.tar.gz", tmp_path / "out")
    assert taken.problems == ()
    assert {str(place): (tmp_path / "out" / place).read_bytes() for place in taken.files} == {
        "gpu/scenario/pitfall/data.bin": b"one",
        "gpu/scenario/pitfall/workers/loader-0.json": b"{}",
        "snapshots/b.pickle": b"two",
    }


def test_all_archives_together_fit_the_limits():
    assert ARCHIVE_BYTES < 16_000_000
    assert ARCHIVES * ARCHIVE_BYTES < 64 << 20
    assert ARCHIVES + 3 <= 8


def test_an_archive_is_never_larger_than_its_limit_and_what_finds_no_room_is_told(tmp_path):
    archives = Archives(tmp_path, {}, count=2, size_bytes=10_000)
    added = [archives.add(f"g/s{n}/fix", recording(tmp_path / f"s{n}", noise(4_000, n))) for n in range(5)]
    assert added == [True, True, True, True, False]
    assert [path.stat().st_size <= 10_000 for path in sorted(tmp_path.glob("*.gz"))] == [True, True]


def test_large_recordings_wait_for_small_ones_once_half_of_the_room_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_LARGE_BYTES", 3_000)
    archives = Archives(tmp_path, {}, count=1, size_bytes=20_000)
    for number, size in enumerate((12_000, 5_000, 4_000, 2_500)):  # the third and the second wait
        assert archives.add(f"g/s{number}/fix", recording(tmp_path / f"s{number}", noise(size, number)))
    held = [str(place) for place in unpack(tmp_path / "recordings-1.tar.gz", tmp_path / "before").files]
    assert held == ["g/s0/fix/data.bin", "g/s3/fix/data.bin"]
    assert archives.add_waiting() == ("g/s1/fix",)
    held = [str(place) for place in unpack(tmp_path / "recordings-1.tar.gz", tmp_path / "after").files]
    assert held == ["g/s0/fix/data.bin", "g/s3/fix/data.bin", "g/s2/fix/data.bin"]


def test_paths_and_the_name_of_the_machine_are_rewritten_in_texts(tmp_path):
    here = {"/srv/site": "/home/user/site-packages", "/srv/site/lib": "/home/user/lib", "/srv": "/home/user"}
    folder = recording(tmp_path / "r", b"/srv/x.py stays in what is no text")
    trace = {"name": "/srv/site/lib/a.py(3): f", "host_name": "box", "what": "box", "like": "/srv2/a /x/srv/b"}
    (folder / "box_7.12.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    (folder / "run.json").write_text('{"trace": "box_7.12.pt.trace.json.gz", "file": "/srv/site/m.py"}')
    Archives(tmp_path, here, "box").add("g/s/fix", folder)
    unpack(tmp_path / "recordings-1.tar.gz", tmp_path / "out")
    out = tmp_path / "out/g/s/fix"
    assert sorted(path.name for path in out.iterdir()) == ["data.bin", "gpu_7.12.pt.trace.json.gz", "run.json"]
    assert json.loads((out / "run.json").read_text()) == {
        "trace": "gpu_7.12.pt.trace.json.gz",
        "file": "/home/user/site-packages/m.py",
    }
    assert json.loads(gzip.decompress((out / "gpu_7.12.pt.trace.json.gz").read_bytes())) == {
        "name": "/home/user/lib/a.py(3): f",
        "host_name": "gpu",
        "what": "box",
        "like": "/srv2/a /x/srv/b",
    }
    assert (out / "data.bin").read_bytes() == b"/srv/x.py stays in what is no text"


def test_paths_in_a_snapshot_are_rewritten_and_shared_stacks_stay_shared(tmp_path):
    stack = [{"filename": "/srv/x.py", "line": 3}]
    (tmp_path / "s.pickle").write_bytes(pickle.dumps({"a": stack, "b": stack, "c": (1, None, "/srvx")}))
    Archives(tmp_path, {"/srv": "/home/user"}).add("snapshots/s.pickle", tmp_path / "s.pickle")
    unpack(tmp_path / "recordings-1.tar.gz", tmp_path / "out")
    told = pickle.loads((tmp_path / "out/snapshots/s.pickle").read_bytes())
    stack = [{"filename": "/home/user/x.py", "line": 3}]
    assert told == {"a": stack, "b": stack, "c": (1, None, "/srvx")}
    assert told["a"] is told["b"]


@pytest.mark.parametrize("kept", [0.4, 0.9, 0.999])
def test_of_an_archive_that_is_cut_short_the_earlier_recordings_are_whole(tmp_path, kept):
    archives = Archives(tmp_path, {})
    archives.add("g/first/fix", recording(tmp_path / "a", noise(2_000)))
    first = (tmp_path / "recordings-1.tar.gz").stat().st_size
    archives.add("g/second/fix", recording(tmp_path / "b", noise(9_000)))
    file = tmp_path / "recordings-1.tar.gz"
    content = file.read_bytes()
    file.write_bytes(content[: first + int(kept * (len(content) - first))])
    taken = unpack(file, tmp_path / "out")
    assert taken.files == (PurePosixPath("g/first/fix/data.bin"),)
    assert (tmp_path / "out/g/first/fix/data.bin").read_bytes() == noise(2_000)
    assert len(taken.problems) == 1
    assert "ends early or is damaged" in taken.problems[0]


@pytest.mark.parametrize(
    "name",
    ["../out", "/etc/x", "a/../../x", "a//b", ".hidden", "a/.git/config", "a\\b", "x" * 200, "/".join("a" * 9), ""],
)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    file = hostile(tmp_path / "h.tar.gz", [(tarfile.TarInfo(name), b"evil"), (tarfile.TarInfo("good.json"), b"{}")])
    taken = unpack(file, tmp_path / "deep" / "out")
    assert [str(place) for place in taken.files] == ["good.json"]
    assert "is no plain file with a plain name" in taken.problems[0]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["good.json", "h.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_only_plain_files_are_taken(tmp_path, kind):
    entry = tarfile.TarInfo("link")
    entry.type, entry.linkname = kind, "/etc/passwd"
    taken = unpack(hostile(tmp_path / "h.tar.gz", [(entry, b"")]), tmp_path / "out")
    assert taken.files == ()
    assert len(taken.problems) == 1


def test_a_file_that_comes_twice_ends_the_unpacking(tmp_path):
    file = hostile(tmp_path / "h.tar.gz", [(tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a"), b"2")])
    taken = unpack(file, tmp_path / "out")
    assert (tmp_path / "out/a").read_bytes() == b"1"
    assert "comes twice" in taken.problems[0]


def test_a_file_in_the_place_of_a_folder_ends_the_unpacking(tmp_path):
    file = hostile(tmp_path / "h.tar.gz", [(tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a/b"), b"2")])
    assert len(unpack(file, tmp_path / "out").problems) == 1


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 3), ("MOST_BYTES", 2_000), ("MOST_FILE_BYTES", 9)])
def test_no_archive_fills_the_disk(tmp_path, monkeypatch, limit, value):
    monkeypatch.setattr(packing, limit, value)
    file = hostile(tmp_path / "h.tar.gz", [(tarfile.TarInfo(f"f{n}"), b"0123456789") for n in range(10)])
    taken = unpack(file, tmp_path / "out")
    assert len(taken.files) < 4
    assert "holds more than a run packs" in taken.problems[0]


# The time in gzip's header would be part of the tests' names, and the workers must agree on these.
@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no tar file" * 100, mtime=0), gzip.compress(b"", mtime=0)],
    ids=["empty", "text", "gzip of text", "gzip of nothing"],
)
def test_what_is_no_archive_is_told(tmp_path, content):
    (tmp_path / "x.tar.gz").write_bytes(content)
    assert unpack(tmp_path / "x.tar.gz", tmp_path / "out").files == ()
