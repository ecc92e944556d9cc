"""The cached columns of a large trace: used only if they belong to this trace and are consistent, else replaced."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import zipfile
from dataclasses import fields
from unittest.mock import patch

import numpy as np
import pytest

from profkit.trace import cache
from profkit.trace.cache import CACHE
from profkit.trace.events import Events
from profkit.trace.kineto.reader import read_kineto
from profkit.trace.limits import DEFAULT_LIMIT_BYTES
from profkit.trace.reading import read_trace
from tests.traces import json_of, kernel, mark, memory, op, runtime, step, thread_name

EVENTS = [
    step(3, 0, 100),
    mark(2, 5, 80),
    thread_name(1, "main"),
    op("aten::mul", 10, 20.5, dims="[[4],[4]]", types='["float","float"]', sequence=5, external=7),
    op("aten::größer", 40, 5, concrete='["", "2"]'),
    runtime("cudaLaunchKernel", 12, 2, correlation=9),
    memory(15, 512, 1 << 40),
    kernel("multiply", 22, 6, correlation=9, external=7),
]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "FEWEST_EVENTS", 1)
    monkeypatch.setattr(cache, "SMALLEST_BYTES", 1)
    found = tmp_path / "traces" / "trace.json.gz"
    found.parent.mkdir()
    found.write_bytes(gzip.compress(json_of(EVENTS, deviceProperties=[{"name": "A100"}])))
    return found


def kept(path):
    """The file of cached columns; there is at most one."""
    found = kept_files(path)
    assert len(found) == 1
    return found[0]


def kept_files(path):
    return sorted((path.parents[1] / "cache").glob("*"))


def same(one, other):
    tables = ("names", "lanes", "texts", "base_ns", "recording", "health")
    return [getattr(one, key) for key in tables] == [getattr(other, key) for key in tables] and all(
        np.array_equal(getattr(one.events, column.name), getattr(other.events, column.name))
        for column in fields(Events)
    )


def is_decoded(path, limit_bytes=DEFAULT_LIMIT_BYTES):
    """Whether reading the trace decodes it instead of using the cache."""
    with patch("profkit.trace.kineto.reader.ColumnBuilder", side_effect=InterruptedError):
        try:
            read_trace(path, limit_bytes=limit_bytes)
        except InterruptedError:
            return True
    return False


def test_the_second_reading_gives_the_same_trace_without_decoding(path):
    whole = read_kineto(path)
    assert same(read_trace(path), whole)
    assert not is_decoded(path)
    assert same(read_trace(path), whole)


def test_a_small_trace_is_not_cached(path, monkeypatch):
    monkeypatch.setattr(cache, "FEWEST_EVENTS", 8)
    assert len(read_trace(path).events) == 7
    assert kept_files(path) == []


def test_nothing_is_left_beside_the_trace(path):
    read_trace(path)
    assert os.listdir(path.parent) == [path.name]
    assert len(kept_files(path)) == 1


def test_the_cache_can_be_switched_off(path, monkeypatch):
    folder = os.environ[CACHE]
    monkeypatch.setenv(CACHE, "0")
    read_trace(path)
    assert kept_files(path) == []
    monkeypatch.setenv(CACHE, folder)
    read_trace(path)
    assert not is_decoded(path)
    monkeypatch.setenv(CACHE, "0")
    assert is_decoded(path)


def test_the_cache_lies_in_the_cache_folder_of_the_user(path, tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE)
    with patch("platformdirs.user_cache_path", return_value=tmp_path / "home"):
        read_trace(path)
        assert not is_decoded(path)
    assert len(list((tmp_path / "home" / "columns").iterdir())) == 1


def test_the_least_recently_used_files_are_removed_first(path, monkeypatch):
    second = path.with_name("second.json.gz")
    second.write_bytes(path.read_bytes())
    read_trace(path)
    first_kept = kept(path)
    os.utime(first_kept, ns=(1, 1))
    monkeypatch.setattr(cache, "MOST_BYTES", 3 * first_kept.stat().st_size // 2)
    read_trace(second)
    assert not first_kept.exists()
    assert len(kept_files(path)) == 1
    assert not is_decoded(second)


def test_using_a_file_makes_it_recent(path):
    read_trace(path)
    os.utime(kept(path), ns=(1, 1))
    read_trace(path)
    assert kept(path).stat().st_mtime_ns > 1


def test_a_changed_trace_limit_or_version_replaces_the_cached_columns(path):
    read_trace(path)
    content, status = path.read_bytes(), path.stat()
    path.write_bytes(content + b"\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert is_decoded(path)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not is_decoded(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert is_decoded(path)
    path.write_bytes(content[:4] + b"1234" + content[8:])  # when it was packed
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert is_decoded(path)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert is_decoded(path, limit_bytes=10**9)
    with patch.object(cache, "FORMAT", cache.FORMAT + 1):
        assert is_decoded(path)
    assert not is_decoded(path)


def test_without_permission_to_write_the_cache_the_trace_is_still_read(path):
    with patch("tempfile.mkstemp", side_effect=PermissionError):
        assert len(read_trace(path).events) == 7
    with patch("os.replace", side_effect=OSError), patch("numpy.savez", side_effect=OSError("disk full")):
        assert len(read_trace(path).events) == 7
    assert kept_files(path) == []


def test_without_a_cache_folder_the_trace_is_still_read(path, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file" / "cache"))
    assert len(read_trace(path).events) == 7


def test_without_a_home_directory_the_trace_is_still_read(path, monkeypatch):
    monkeypatch.delenv(CACHE)
    with patch("platformdirs.user_cache_path", side_effect=RuntimeError("no home directory")):
        assert len(read_trace(path).events) == 7


def rewrite(path, **changed):
    """Rewrite the file with other arrays, or with other bytes for one of them."""
    with zipfile.ZipFile(kept(path)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, value in changed.items():
        if isinstance(value, np.ndarray):
            file = io.BytesIO()
            np.save(file, value)
            value = file.getvalue()  # noqa: PLW2901  # as bytes
        members[f"{name}.npy"] = value
    with zipfile.ZipFile(kept(path), "w") as archive:
        for name, value in members.items():
            if value is not None:
                archive.writestr(name, value)


def pickled():
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}] * 7, dtype=object), allow_pickle=True)
    return file.getvalue()


def claiming(length):
    """The array of start times with a header that claims another length."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (length,)})
    return file.getvalue() + bytes(56)


@pytest.mark.parametrize(
    "changed",
    [
        {"name_code": np.full(7, 99, np.int32)},
        {"name_code": np.full(7, -1, np.int32)},
        {"lane": np.full(7, 5, np.int32)},
        {"category": np.full(7, 200, np.uint8)},
        {"dims_code": np.full(7, 50, np.int32)},
        {"types_code": np.full(7, -2, np.int32)},
        {"site": np.full(7, 2**31 - 1, np.int32)},
        {"start_ns": np.full(7, 2**62)},
        {"start_ns": np.arange(7)[::-1].copy()},
        {"duration_ns": np.full(7, -1)},
        {"start_ns": np.zeros(7)},
        {"start_ns": np.zeros((7, 1), np.int64)},
        {"start_ns": np.zeros(6, np.int64)},
        {"start_ns": np.zeros(0, np.int64)},
        {"start_ns": pickled()},
        {"start_ns": pickle.dumps([1])},
        {"start_ns": claiming(8)},
        {"start_ns": claiming(10**15)},
        {"start_ns": claiming(-1)},
        {"start_ns": b""},
        {"start_ns": None},
        {"tables": None},
        {"tables": np.frombuffer(b"{}", np.uint8)},
        {"tables": np.frombuffer(b"[" * 100_000, np.uint8)},
        {"tables": np.frombuffer(b"\xff", np.uint8)},
    ],
)
def test_inconsistent_columns_are_replaced(path, changed):
    whole = read_trace(path)
    rewrite(path, **changed)
    assert is_decoded(path)
    assert same(read_trace(path), whole)
    assert not is_decoded(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"x" * 500, json.dumps([1]).encode()])
def test_a_file_other_than_an_archive_is_replaced(path, content):
    read_trace(path)
    kept(path).write_bytes(content)
    assert is_decoded(path)
    read_trace(path)
    assert not is_decoded(path)


def test_a_cut_off_or_compressed_archive_is_replaced(path):
    read_trace(path)
    content = kept(path).read_bytes()
    for end in range(0, len(content), 97):
        kept(path).write_bytes(content[:end])
        assert is_decoded(path)
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(kept(path), "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert is_decoded(path)


def test_any_flipped_byte_is_noticed_or_harmless(path):
    whole = read_trace(path)
    content = bytearray(kept(path).read_bytes())
    for at in range(0, len(content), 13):
        changed = content.copy()
        changed[at] ^= 0x41
        kept(path).write_bytes(changed)
        assert same(read_trace(path), whole)
