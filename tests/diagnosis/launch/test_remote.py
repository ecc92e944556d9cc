"""Traces on another file system: fsspec's in-memory one, and an object store on this machine."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli._launching import names_recording
from profkit.cli.diagnose import command
from profkit.core.errors import UnreadableInput, UsageError
from profkit.diagnosis.launch import remote
from profkit.diagnosis.launch.launching import read_rank
from profkit.diagnosis.launch.remote import Reached, RemoteFile, find_remote, is_url, path_of, within_reach
from profkit.trace import cache
from profkit.trace.kineto import reader
from tests.traces import json_of, op, step

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's file system in memory, with the run directory of one rank and a single trace."""
    system = fsspec.filesystem("memory")
    system.pipe("/launch/rank0/a.pt.trace.json.gz", b"trace")
    system.pipe("/launch/rank0/run.json", b"{}")
    system.pipe("/launch/rank0/snapshot.pickle", b"large")
    system.pipe("/other/rank-1.json.gz", b"other trace")
    yield system
    system.rm("/", recursive=True)


def test_urls_and_paths_are_distinguished() -> None:
    assert [is_url(place) for place in ("s3://bucket/a", "HDFS://host/a", "traces/a", "C:\\traces\\a", "a://b")] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("traces/a", Path("traces/a")),
        ("file:///tmp/a%20b", Path("/tmp/a b")),
        ("s3://bucket/a", None),
        ("file://host/a", None),
    ],
)
def test_a_url_of_this_machine_is_read_without_copying(place: str, path: Path | None) -> None:
    assert path_of(place) == path


def test_all_files_of_a_place_are_found_with_their_sizes(memory: Any) -> None:
    assert find_remote("memory://launch") == [
        RemoteFile("memory:///launch/rank0/a.pt.trace.json.gz", 5),
        RemoteFile("memory:///launch/rank0/run.json", 2),
        RemoteFile("memory:///launch/rank0/snapshot.pickle", 5),
    ]
    assert find_remote("memory://other/rank-1.json.gz") == [RemoteFile("memory:///other/rank-1.json.gz", 11)]


def test_a_single_trace_is_copied_and_the_copy_is_removed(memory: Any) -> None:
    with within_reach("memory://other/rank-1.json.gz") as copy:
        path = copy.path
        assert path.name == "rank-1.json.gz"
        assert path.read_bytes() == b"other trace"
    assert not path.exists()
    assert not path.parent.exists()


def test_a_run_directory_is_copied_with_its_small_files_only(memory: Any) -> None:
    with within_reach("memory://launch/rank0/a.pt.trace.json.gz") as copy:
        assert sorted(file.name for file in copy.path.iterdir()) == ["a.pt.trace.json.gz", "run.json"]


def test_an_error_while_reading_the_copy_is_passed_on(memory: Any) -> None:
    with pytest.raises(UnreadableInput, match=r"^x: is no trace$"), within_reach("memory://other/rank-1.json.gz"):
        raise UnreadableInput("x", "is no trace")


def test_an_error_about_the_copy_names_the_original(memory: Any) -> None:
    url = "memory://other/rank-1.json.gz"
    with pytest.raises(UnreadableInput, match=rf"^{url}: is no trace$"), within_reach(url) as copy:
        raise UnreadableInput(copy.path, "is no trace")


def test_a_local_path_is_read_without_copying(tmp_path: Path) -> None:
    for place in (str(tmp_path), tmp_path.as_uri()):
        with within_reach(place) as reached:
            assert reached == Reached(tmp_path)


@pytest.mark.parametrize("url", ["memory://nowhere", "memory://nowhere/a.json"])
def test_an_empty_place_is_refused_by_name(memory: Any, url: str) -> None:
    with pytest.raises(UnreadableInput, match=rf"^{url}: no such file or folder$"):
        find_remote(url)
    with pytest.raises(UnreadableInput, match=rf"^{url}: no such file or folder$"), within_reach(url):
        pass


def test_an_unknown_file_system_is_refused() -> None:
    with pytest.raises(UnreadableInput, match=r"^nosuch://a: cannot be read: Protocol not known: nosuch$"):
        find_remote("nosuch://a")


def test_nested_file_systems_are_refused() -> None:
    with pytest.raises(UsageError, match=r"give the address of the place itself"):
        find_remote("simplecache::memory://launch")


def test_too_many_files_are_refused(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MOST_FILES", 2)
    with pytest.raises(UnreadableInput, match=r"holds more than 2 files: name the folder of one launch"):
        find_remote("memory://launch")


def test_a_trace_larger_than_the_free_disk_space_is_not_copied(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))(1 << 40, 0, (1 << 30) + 10)
    monkeypatch.setattr(remote.shutil, "disk_usage", lambda folder: usage)
    expected = r"^memory://other/rank-1.json.gz: takes 11 B, and 10 B may be used of .* \(TMPDIR names another "
    with pytest.raises(UnreadableInput, match=expected), within_reach("memory://other/rank-1.json.gz"):
        pass


@pytest.fixture
def decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that get decoded. The cache also keeps the columns of small files."""
    read, found = reader.read_kineto, []
    monkeypatch.setenv(cache.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "FEWEST_EVENTS", 1)
    monkeypatch.setattr(cache, "SMALLEST_BYTES", 1)
    monkeypatch.setattr(reader, "read_kineto", lambda path, **how: found.append(path) or read(path, **how))
    return found


def trace_of(at: int) -> bytes:
    return json_of([step(0, 0, 100), op("aten::mm", at, 10)])


def test_an_unchanged_remote_trace_is_not_decoded_again(memory: Any, decoded: list[Path], tmp_path: Path) -> None:
    """A trace is read again only after a change, even if its size and both ends stay the same."""
    url = "memory://other/rank-1.json"
    memory.pipe("/other/rank-1.json", trace_of(20))
    tables = [read_rank(url) for _ in range(3)]
    assert len(decoded) == 1
    assert [one.source for one in tables] == [url] * 3
    memory.pipe("/other/rank-1.json", trace_of(20))
    read_rank(url)
    assert len(decoded) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_file_without_a_version_is_not_cached(
    memory: Any, decoded: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/other/rank-1.json", trace_of(20))
    monkeypatch.setattr(remote, "_VERSIONS", ())
    for _ in range(2):
        read_rank("memory://other/rank-1.json")
    assert len(decoded) == 2
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command changes the memory settings of its process, but this process goes on."""
    for name in ("stop_collecting_garbage", "reuse_memory_for_columns", "reuse_memory_for_rules"):
        monkeypatch.setattr(f"profkit.core.memory_reuse.{name}", lambda: None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_this_process")
def test_a_single_remote_recording_is_decoded_only_once(memory: Any, decoded: list[Path], tmp_path: Path) -> None:
    memory.pipe("/one/rank-3.json", trace_of(20))
    for _ in range(2):
        CliRunner().invoke(command, ["memory://one/rank-3.json"], catch_exceptions=False)
    assert len(decoded) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.usefixtures("in_this_process")
def test_the_url_of_a_file_is_a_recording_and_that_of_a_folder_a_launch(memory: Any, tmp_path: Path) -> None:
    steps = [event for at in range(4) for event in (step(at, 100 * at, 100), op("aten::mm", 100 * at, 90))]
    memory.pipe("/one/rank-3.json", json_of(steps))
    result = CliRunner().invoke(command, ["memory://one/rank-3.json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "The ranks" not in result.stdout
    (report,) = tmp_path.glob("traces/rank-3.json/*/diagnosis.json")
    assert profkit.load(report).launch is None
    with pytest.raises(UnreadableInput, match="holds no recordings of several ranks"):
        CliRunner().invoke(command, ["memory://one"], catch_exceptions=False)


def test_a_file_url_of_this_machine_is_diagnosed_without_copying(tmp_path: Path) -> None:
    assert names_recording((tmp_path / "rank-3.json.gz").as_uri())
    assert not names_recording(tmp_path.as_uri())
    assert not names_recording(str(tmp_path / "rank-3.json.gz"))


class Bucket(NamedTuple):
    url: str
    client: Any


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """A bucket of an object store in this process, on the loopback interface."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    import boto3

    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="traces")
        yield Bucket("s3://traces", client)
    store.stop()


def test_an_object_store_is_listed_and_read_block_by_block(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 4096
    bucket.client.put_object(Bucket="traces", Key="launch/rank-0.json.gz", Body=content)
    monkeypatch.setattr(remote, "_BLOCK_BYTES", 100_000)
    assert find_remote(f"{bucket.url}/launch") == [RemoteFile("s3://traces/launch/rank-0.json.gz", len(content))]
    with within_reach("s3://traces/launch/rank-0.json.gz") as copy:
        assert copy.path.read_bytes() == content


def test_an_object_stores_etag_tells_whether_its_copy_is_up_to_date(bucket: Bucket, decoded: list[Path]) -> None:
    for at, times in ((20, 2), (30, 2), (20, 1)):
        bucket.client.put_object(Bucket="traces", Key="kept/rank-0.json", Body=trace_of(at))
        for _ in range(times):
            read_rank("s3://traces/kept/rank-0.json")
    assert len(decoded) == 3


def test_a_bucket_that_does_not_exist_is_refused_by_name(bucket: Bucket) -> None:
    with pytest.raises(UnreadableInput, match=r"^s3://nowhere/launch: "):
        find_remote("s3://nowhere/launch")


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Google's object store, stood in for by an emulator in this process. gcsfs would ask by gRPC what kind of bucket
    it is, which the emulator does not speak."""
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    gcsfs = pytest.importorskip("gcsfs", reason="gcsfs is not installed")
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="gcp-storage-emulator is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="traces")
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    yield gcsfs.GCSFileSystem(token="anon", project="test")
    server.stop()


def test_googles_object_store_is_listed_and_read(google: Any, decoded: list[Path]) -> None:
    google.pipe_file("traces/launch/rank-0.json", trace_of(20))
    assert find_remote("gs://traces/launch") == [RemoteFile("gs://traces/launch/rank-0.json", len(trace_of(20)))]
    for _ in range(2):
        assert read_rank("gs://traces/launch/rank-0.json").identity.rank == 0
    assert len(decoded) == 1
    with pytest.raises(UnreadableInput, match=r"^gs://traces/nowhere: no such file or folder$"):
        find_remote("gs://traces/nowhere")
