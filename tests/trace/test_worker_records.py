"""The records that workers wrote are read line by line, and anything else in the directory is ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.run.directory import WORKERS_DIRECTORY, CallSite
from profkit.trace import worker_records
from profkit.trace.worker_records import HeldObjects, LoaderRecord, WorkerRecord, Workers, WorkerSums, read_workers

HEADER = {"loader": 0, "worker": 1, "workers": 2}
NAMES = ("fetch_ns", "collate_ns", "put_ns", "send_ns", "busy_cpu_ns", "queued_ns", "elapsed_ns", "cpu_ns")


def line(batches: int, **more: Any) -> dict[str, Any]:
    return {"batches": batches, **dict.fromkeys(NAMES, 10 * batches), **more}


def write(directory: Path, name: str, *lines: object, end: str = "\n") -> None:
    place = directory / WORKERS_DIRECTORY
    place.mkdir(exist_ok=True)
    (place / name).write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines) + end)


def test_a_worker_record_is_its_first_line_and_the_sums_after_it(tmp_path: Path) -> None:
    write(tmp_path, "0-7.jsonl", HEADER, line(1), line(3, private_bytes=5, shared_bytes=6, faults=7, threads=1))
    assert read_workers(tmp_path) == Workers(
        (),
        (
            WorkerRecord(
                0,
                1,
                2,
                (
                    WorkerSums(1, *[10] * 8),
                    WorkerSums(3, *[30] * 8, private_bytes=5, shared_bytes=6, faults=7, threads=1),
                ),
            ),
        ),
    )


def test_a_loader_record_lists_what_its_dataset_holds(tmp_path: Path) -> None:
    site = {"file": "data.py", "line": 4, "function": "D.__init__", "source": "self.x = []"}
    held = {"path": "dataset.x", "objects": 2000, "bytes": 9000, "site": site}
    write(tmp_path, "loader-0.json", {"loader": 0, "dataset": "D", "workers": 2, "persistent": True, "objects": [held]})
    (loader,) = read_workers(tmp_path).loaders
    held_objects = HeldObjects("dataset.x", 2000, 9000, CallSite("data.py", 4, "D.__init__", "self.x = []"))
    assert loader == LoaderRecord(0, "D", 2, True, (held_objects,))


def test_only_the_unfinished_line_of_a_killed_worker_is_lost(tmp_path: Path) -> None:
    write(tmp_path, "0-7.jsonl", HEADER, line(1), line(2), '{"batches": 3, "fe', end="")
    (record,) = read_workers(tmp_path).records
    assert [sums.batches for sums in record.sums] == [1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"batches": "1"}',
        json.dumps(line(-1)),
        json.dumps(line(1 << 60)),
        "[" * 5000,
        json.dumps({**line(2), "fetch_ns": 1.5}),
    ],
)
def test_a_foreign_line_is_skipped(tmp_path: Path, bad: str) -> None:
    write(tmp_path, "0-7.jsonl", HEADER, line(1), bad, line(4))
    (record,) = read_workers(tmp_path).records
    assert [sums.batches for sums in record.sums] == [1, 4]


def test_sums_that_fall_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, "0-7.jsonl", HEADER, line(5), line(5), line(2), line(6))
    (record,) = read_workers(tmp_path).records
    assert [sums.batches for sums in record.sums] == [5, 6]


@pytest.mark.parametrize("first", ["", "[]", '{"loader": 0}', '{"loader": -1, "worker": 0, "workers": 1}', "\x00"])
def test_a_file_without_its_first_line_is_no_worker(tmp_path: Path, first: str) -> None:
    write(tmp_path, "0-7.jsonl", first, line(1))
    assert read_workers(tmp_path) == Workers()


def test_other_and_too_large_files_are_ignored(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(worker_records, "_MAX_FILE_BYTES", 400)
    write(tmp_path, "over")
    write(tmp_path, "loader-0.json", "[]")
    write(tmp_path, "1-1.jsonl", HEADER, line(1), "x" * 400)
    (tmp_path / WORKERS_DIRECTORY / "2-2.jsonl").mkdir()
    assert read_workers(tmp_path) == Workers()


def test_the_number_of_files_and_lines_is_limited(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(worker_records, "_MAX_FILES", 2)
    monkeypatch.setattr(worker_records, "_MAX_LINES", 3)
    for number in range(4):
        write(tmp_path, f"0-{number}.jsonl", {**HEADER, "worker": number}, *map(line, range(1, 9)))
    assert [(record.worker, len(record.sums)) for record in read_workers(tmp_path).records] == [(0, 2), (1, 2)]


def test_a_run_without_workers_has_no_accounts(tmp_path: Path) -> None:
    assert read_workers(tmp_path) == Workers()
