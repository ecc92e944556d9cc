"""Copies of traces for TensorBoard: which are made, refreshed and removed."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from profkit.core.errors import RunDirectoryError, UnreadableInput
from profkit.report.tensorboard import copies
from profkit.report.tensorboard.copies import PREPARED_FOLDER, prepare_logdir, rewrite_trace
from tests.report.gpu_trace import gpu_trace

LAUNCH = {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": 1, "ts": 1.0, "dur": 1.0, "args": {}}


def write_trace(path: Path, zipped: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(gpu_trace()).encode()
    path.write_bytes(gzip.compress(text) if zipped else text)
    return path


def categories(path: Path) -> set[str]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.name.endswith(".gz") else data
    return {event["cat"] for event in json.loads(text)["traceEvents"] if "cat" in event}


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.pt.trace.json*"))


def test_a_copy_keeps_the_rest_of_the_document_and_the_trace_stays_as_it_is(tmp_path: Path) -> None:
    source, target = write_trace(tmp_path / "a.pt.trace.json"), tmp_path / "new" / "a.pt.trace.json"
    rewrite_trace(source, target)
    copy = json.loads(target.read_bytes())
    assert {key: copy[key] for key in copy if key != "traceEvents"} == {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU"}],
    }
    assert categories(target) == {"cpu_op", "user_annotation", "gpu_annotation", "Runtime", "kernel", "fwdbwd"}
    assert json.loads(source.read_bytes()) == gpu_trace()
    assert sorted(p.name for p in target.parent.iterdir()) == ["a.pt.trace.json"]


def test_gzip_is_recognised_by_content_and_written_according_to_the_name(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "a.pt.trace.json", zipped=True)
    rewrite_trace(source, tmp_path / "b.pt.trace.json.gz")
    assert "Runtime" in categories(tmp_path / "b.pt.trace.json.gz")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([LAUNCH]).encode(),
        b"\xef\xbb\xbf\n " + json.dumps({"traceEvents": [LAUNCH]}).encode(),
        json.dumps({"traceEvents": [LAUNCH, 3, None]}).encode(),
        json.dumps({"traceEvents": [LAUNCH]}).encode().replace(b"launch", b"lau\x01\xffnch"),
    ],
    ids=["bare array", "byte order mark", "not only events", "control characters"],
)
def test_odd_traces_become_complete_documents(tmp_path: Path, text: bytes) -> None:
    source, target = tmp_path / "a.pt.trace.json", tmp_path / "b.pt.trace.json"
    source.write_bytes(text)
    rewrite_trace(source, target)
    assert categories(target) == {"Runtime"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        b"{}",
        b'{"traceEvents": 1}',
        b'{"traceEvents": [{"ph": "X"',
        b"\x1f\x8bjunk",
        gzip.compress(b"{}")[:-9],
    ],
    ids=["empty", "no JSON", "no trace", "no list", "cut off", "no gzip", "gzip cut off"],
)
def test_an_incomplete_trace_is_refused_and_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    source = tmp_path / "a.pt.trace.json"
    source.write_bytes(data)
    with pytest.raises(UnreadableInput, match=r"a\.pt\.trace\.json: (is not a whole profiler trace|cannot be read)"):
        rewrite_trace(source, tmp_path / "out" / "a.pt.trace.json")
    assert not (tmp_path / "out").exists()


def test_a_missing_or_too_large_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableInput, match="no such file"):
        rewrite_trace(tmp_path / "none", tmp_path / "out")
    monkeypatch.setattr(copies, "MAX_BYTES", 1000)
    with pytest.raises(UnreadableInput, match="is larger than 0 MiB uncompressed"):
        rewrite_trace(write_trace(tmp_path / "a.pt.trace.json.gz", zipped=True), tmp_path / "out")


def test_each_run_gets_a_directory_and_its_workers_stay_together(tmp_path: Path) -> None:
    for name in ("host_1.5.pt.trace.json", "sub/one/host_1.6.pt.trace.json.gz", "sub/one/host_2.7.pt.trace.json"):
        write_trace(tmp_path / "logs" / name, zipped=name.endswith(".gz"))
    write_trace(tmp_path / "logs" / ".hidden" / "x.pt.trace.json")
    (tmp_path / "logs" / "run.json").write_text("{}")
    prepared = tmp_path / "logs" / PREPARED_FOLDER
    assert prepare_logdir(tmp_path / "logs", prepared) == [prepared / "logs", prepared / "sub" / "one"]
    assert names(prepared) == [
        "logs/host_1.5.pt.trace.json",
        "sub/one/host_1.6.pt.trace.json.gz",
        "sub/one/host_2.7.pt.trace.json",
    ]


def test_only_a_changed_trace_is_copied_again(tmp_path: Path) -> None:
    first, second = (write_trace(tmp_path / name / "a.pt.trace.json") for name in ("one", "two"))
    prepared = tmp_path / PREPARED_FOLDER
    prepare_logdir(tmp_path, prepared)
    before = {name: (prepared / name / "a.pt.trace.json").stat().st_ino for name in ("one", "two")}
    os.utime(second, ns=(5, 5))
    prepare_logdir(tmp_path, prepared)
    after = {name: (prepared / name / "a.pt.trace.json").stat().st_ino for name in ("one", "two")}
    assert before["one"] == after["one"]
    assert before["two"] != after["two"]
    assert first.stat().st_mtime_ns == (prepared / "one" / "a.pt.trace.json").stat().st_mtime_ns


def test_a_copy_is_removed_with_its_trace(tmp_path: Path) -> None:
    gone = write_trace(tmp_path / "one" / "a.pt.trace.json")
    write_trace(tmp_path / "two" / "a.pt.trace.json")
    prepared = tmp_path / PREPARED_FOLDER
    prepare_logdir(tmp_path, prepared)
    gone.unlink()
    assert prepare_logdir(tmp_path, prepared) == [prepared / "two"]
    assert names(prepared) == ["two/a.pt.trace.json"]


def test_copies_inside_the_log_directory_are_never_copied(tmp_path: Path) -> None:
    write_trace(tmp_path / "one" / "a.pt.trace.json")
    for _ in range(2):
        assert prepare_logdir(tmp_path, tmp_path / "copies") == [tmp_path / "copies" / "one"]
    assert names(tmp_path / "copies") == ["one/a.pt.trace.json"]


def test_a_directory_that_profkit_did_not_make_is_left_alone(tmp_path: Path) -> None:
    write_trace(tmp_path / "logs" / "one" / "a.pt.trace.json")
    precious = write_trace(tmp_path / "mine" / "b.pt.trace.json")
    with pytest.raises(RunDirectoryError, match="holds files that profkit did not put there"):
        prepare_logdir(tmp_path / "logs", tmp_path / "mine")
    assert precious.exists()


def test_copies_are_kept_out_of_version_control(tmp_path: Path) -> None:
    write_trace(tmp_path / "one" / "a.pt.trace.json")
    prepare_logdir(tmp_path, tmp_path / PREPARED_FOLDER)
    assert (tmp_path / PREPARED_FOLDER / ".gitignore").read_text() == "*\n"


def test_an_unreadable_trace_is_left_out_if_the_caller_wants_that(tmp_path: Path) -> None:
    write_trace(tmp_path / "one" / "a.pt.trace.json")
    (tmp_path / "one" / "b.pt.trace.json").write_text("junk")
    with pytest.raises(UnreadableInput):
        prepare_logdir(tmp_path, tmp_path / PREPARED_FOLDER)
    left_out: list[UnreadableInput] = []
    assert prepare_logdir(tmp_path, tmp_path / PREPARED_FOLDER, left_out.append)
    assert [error.path.name for error in left_out] == ["b.pt.trace.json"]
    assert names(tmp_path / PREPARED_FOLDER) == ["one/a.pt.trace.json"]


def test_a_log_directory_without_traces_stays_untouched(tmp_path: Path) -> None:
    assert prepare_logdir(tmp_path, tmp_path / PREPARED_FOLDER) == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnreadableInput, match="no such directory"):
        prepare_logdir(tmp_path / "none", tmp_path / PREPARED_FOLDER)


def nested(levels: int, category: str, name: str) -> dict[str, object]:
    """Nested operators, and as many that are not nested."""
    inside = [
        {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": i, "dur": 3 * levels - 2 * i}
        for i in range(levels)
    ]
    beside = [
        {"ph": "X", "cat": category, "name": "aten::mul", "pid": 1, "tid": 2, "ts": i, "dur": 1} for i in range(1000)
    ]
    return {"traceEvents": [*inside, *beside]}


@pytest.mark.parametrize(("category", "name"), [("cpu_op", "aten::add"), ("python_function", "nn.Module: Linear_0")])
def test_a_trace_nested_too_deeply_for_the_tab_is_left_out_with_one_line(
    tmp_path: Path, category: str, name: str
) -> None:
    for folder, levels in (("deep", 10_000), ("flat", copies.MOST_LEVELS)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.pt.trace.json").write_text(json.dumps(nested(levels, category, name)))
    left_out: list[str] = []
    (kept,) = prepare_logdir(tmp_path, tmp_path / PREPARED_FOLDER, lambda error: left_out.append(str(error)))
    assert kept.name == "flat"
    limit = f"torch-tb-profiler fails on more than {copies.MOST_LEVELS}"
    assert left_out == [f"{tmp_path / 'deep' / 'a.pt.trace.json'}: its events are nested 10,000 deep, and {limit}"]


def test_frames_other_than_modules_may_be_nested_as_deep_as_python_allows(tmp_path: Path) -> None:
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(nested(2_000, "python_function", "tree.py(3): visit")))
    assert len(prepare_logdir(tmp_path, tmp_path / PREPARED_FOLDER)) == 1
