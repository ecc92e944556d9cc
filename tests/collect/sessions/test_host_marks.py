"""Garbage collections and files that torch.save writes are marked during a recording, without any effect on the
program."""

from __future__ import annotations

import gc
import io
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from profkit.collect.sessions import host_marks
from profkit.collect.sessions.host_marks import CollectorMarks, SaveMarks

WRITERS = [torch.serialization._open_zipfile_writer_file, torch.serialization._open_zipfile_writer_buffer]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The marks that were opened and closed, in order."""
    said: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            said.append(f"+{self.name}")

        def __exit__(self, *_: object) -> None:
            said.append(f"-{self.name}")

    monkeypatch.setattr(host_marks, "open_mark", Noted)
    return said


@pytest.fixture
def installed(noted: list[str]):
    saves = SaveMarks()
    saves.install()
    yield saves
    saves.remove()


def test_files_and_buffers_are_marked_and_written_as_usual(tmp_path, noted, installed):
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(3)}, tmp_path / "a.pt")
    assert noted == ["+profkit.save", "-profkit.save"]
    torch.save({"a": torch.ones(3)}, buffer)
    assert noted == ["+profkit.save", "-profkit.save"] * 2
    assert torch.load(tmp_path / "a.pt")["a"].sum() == 3
    assert torch.load(io.BytesIO(buffer.getvalue()))["a"].sum() == 3


BATCH = torch.zeros(1024, 512)
"""Two megabytes."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(BATCH[:4], "profkit.saved#8192.2097152", id="a few rows of a batch"),
        pytest.param(
            {"a": [BATCH[:1]], "b": (BATCH[4:5],)}, "profkit.saved#4096.2097152", id="two views of one storage"
        ),
        pytest.param({"a": BATCH[0], "b": torch.ones(2)}, "profkit.saved#2056.2097160", id="beside its own"),
    ],
)
def test_views_are_told_from_what_is_written_with_them(value, said, tmp_path, noted, installed):
    torch.save(value, tmp_path / "a.pt")
    assert noted == ["+profkit.save", f"+{said}", f"-{said}", "-profkit.save"]
    assert (tmp_path / "a.pt").stat().st_size > BATCH.nbytes


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(BATCH[:4].clone(), id="a copy"),
        pytest.param({"whole": BATCH, "row": BATCH[0]}, id="a view beside the whole"),
        pytest.param([BATCH[:512], BATCH[512:]], id="halves"),
        pytest.param(BATCH[0, :1].expand(1024, 512), id="one number, expanded"),
        pytest.param(torch.zeros(512, 256)[:1], id="half a megabyte"),
        pytest.param(torch.nn.Linear(8, 8), id="an object"),
        pytest.param({"row": BATCH[0], "rest": SimpleNamespace(batch=BATCH)}, id="an object that may hold the rest"),
        pytest.param([0] * 20_000 + [BATCH[0]], id="more parts than are looked at"),
    ],
)
def test_what_shows_its_storages_or_is_small_is_not(value, tmp_path, noted, installed):
    torch.save(value, tmp_path / "a.pt")
    assert noted == ["+profkit.save", "-profkit.save"]


def test_a_failed_save_has_no_frame_of_profkit_in_its_traceback(tmp_path, installed):
    for target, value in ((tmp_path / "absent" / "a.pt", 1), (tmp_path / "a.pt", lambda: None)):
        with pytest.raises(Exception) as failure:  # noqa: PT011  # whatever torch raises
            torch.save(value, target)
        files = [Path(frame.filename).name for frame in traceback.extract_tb(failure.value.__traceback__)]
        assert "host_marks.py" not in files
        assert "serialization.py" in files


def test_a_failed_save_closes_its_mark(tmp_path, noted, installed):
    with pytest.raises(Exception, match="pickle"):
        torch.save(lambda: None, tmp_path / "a.pt")
    assert noted == ["+profkit.save", "-profkit.save"]


def test_an_open_mark_ends_with_the_recording(tmp_path, noted, installed):
    writer = torch.serialization._open_zipfile_writer_file(str(tmp_path / "a.pt"))
    installed.remove()
    assert noted == ["+profkit.save", "-profkit.save"]
    assert writer.name == str(tmp_path / "a.pt")
    with writer:
        pass
    del writer
    assert noted == ["+profkit.save", "-profkit.save"]


def test_another_thread_is_left_alone(tmp_path, noted, installed):
    thread = threading.Thread(target=lambda: torch.save(1, tmp_path / "a.pt"))
    thread.start()
    thread.join()
    assert noted == []
    assert torch.load(tmp_path / "a.pt") == 1


def test_nothing_is_left_behind():
    before = [dict(vars(writer)) for writer in WRITERS]
    saves = SaveMarks()
    saves.install()
    assert [dict(vars(writer)) for writer in WRITERS] != before
    saves.remove()
    saves.remove()
    assert [dict(vars(writer)) for writer in WRITERS] == before


def test_without_the_writers_of_pytorch_nothing_is_marked(tmp_path, noted, monkeypatch):
    monkeypatch.setattr(SaveMarks, "_WRITERS", (("_no_such_class", "name"),))
    saves = SaveMarks()
    saves.install()
    torch.save(1, tmp_path / "a.pt")
    saves.remove()
    assert noted == []


def test_marks_tell_automatic_collections_from_requested_ones(noted):
    """The threshold of the young generation is 10 here, so that 100 lists start collections."""
    collector, before = CollectorMarks(), gc.get_threshold()
    gc.collect()
    collector.install()
    try:
        gc.set_threshold(10, 1000, 1000)
        kept = [[] for _ in range(100)]
        automatic = tuple(noted)
        gc.set_threshold(100_000, 1000, 1000)
        noted.clear()
        gc.collect()
        gc.collect(0)
    finally:
        collector.remove()
        gc.set_threshold(*before)
    assert len(kept) == 100
    assert set(automatic) == {"+profkit.gc#0.automatic", "-profkit.gc#0.automatic"}
    assert noted == ["+profkit.gc#2", "-profkit.gc#2", "+profkit.gc#0", "-profkit.gc#0"]
