"""Which files of a folder are the recordings of the ranks of a launch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profkit.core.errors import UnreadableInput
from profkit.diagnosis.launch.finding import find_places, find_ranks, launch_of, list_traces
from profkit.run.directory import RankIdentity, Run


def _trace(path: Path, rank: Any = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 8}}
    text = json.dumps({"schemaVersion": 1, **info, "traceEvents": []}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def _run(path: Path, rank: int | None = None) -> Path:
    """A run directory."""
    identity = None if rank is None else RankIdentity(rank, 2)
    trace = _trace(path / f"host_{rank}.1.pt.trace.json.gz")
    (path / "run.json").write_bytes(msgspec.json.encode(Run(trace=trace.name, identity=identity)))
    return path


def test_run_directories_are_recognised_by_their_run_json(tmp_path: Path):
    folders = [_run(tmp_path / name, rank) for rank, name in enumerate(("b", "a"))]
    assert find_ranks(tmp_path) == folders
    assert launch_of(folders[1]) == tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "rank-{}.json.gz",
        "rank_{}.json",
        "trace_rank{}.pt.trace.json.gz",
        "host_rank{}.169950000.pt.trace.json",
        "Rank {}.json",
        "rank{}/host_1.2.pt.trace.json",
    ],
)
def test_ranks_are_read_from_numbers_in_names_and_ordered_by_them(tmp_path: Path, name: str):
    traces = [_trace(tmp_path / name.format(rank)) for rank in (10, 2, 0)]
    assert find_ranks(tmp_path) == traces[::-1]


def test_files_of_the_tensorboard_handler_are_recognised_by_their_heads(tmp_path: Path):
    traces = [_trace(tmp_path / f"node_{900 + rank}.17{rank}.pt.trace.json.gz", 3 - rank) for rank in range(3)]
    assert find_ranks(tmp_path) == traces[::-1]


@pytest.mark.parametrize("rank", [-3, 3.5, True, "3", 10**9])
def test_a_file_with_an_impossible_rank_still_belongs_to_the_launch(tmp_path: Path, rank: Any):
    ranks = [_trace(tmp_path / f"node_{number}.1.pt.trace.json", number) for number in range(2)]
    odd = _trace(tmp_path / "node_9.1.pt.trace.json", rank)
    assert find_ranks(tmp_path) == [odd, *ranks]


def test_two_recordings_one_with_an_impossible_rank_are_no_launch(tmp_path: Path):
    for number, rank in enumerate((0, -3)):
        _trace(tmp_path / f"node_{number}.1.pt.trace.json", rank)
    assert find_ranks(tmp_path) == []


def test_folders_without_numbers_are_recognised_by_the_heads_of_their_traces(tmp_path: Path):
    traces = [_trace(tmp_path / folder / "host_1.2.pt.trace.json.gz", rank) for rank, folder in enumerate("ab")]
    assert find_ranks(tmp_path) == traces


def test_the_last_of_several_cycles_of_a_worker_is_taken(tmp_path: Path):
    for rank in range(2):
        _trace(tmp_path / f"node_{rank}.100.pt.trace.json", rank)
    last = [_trace(tmp_path / f"node_{rank}.200.pt.trace.json", rank) for rank in range(2)]
    assert find_ranks(tmp_path) == last


def test_ranks_may_lie_in_one_folder_per_host(tmp_path: Path):
    traces = [_trace(tmp_path / host / f"rank{rank}.json") for host, rank in (("a", 0), ("a", 1), ("b", 2), ("b", 3))]
    assert find_ranks(tmp_path) == traces


def test_two_launches_in_one_folder_are_refused(tmp_path: Path):
    for launch in ("first", "second"):
        for rank in range(2):
            _run(tmp_path / launch / f"rank{rank}", rank)
    assert find_ranks(tmp_path) == []
    assert len(find_ranks(tmp_path / "second")) == 2


def test_unrelated_recordings_and_other_files_are_no_launch(tmp_path: Path):
    _trace(tmp_path / "before.json")
    _trace(tmp_path / "after.json")
    _run(tmp_path / "20260101-120000")
    _run(tmp_path / "20260101-120500")
    (tmp_path / "notes_rank_3.json").write_text("{}")
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8b no gzip")
    assert find_ranks(tmp_path) == []


def test_the_run_of_one_process_is_no_launch(tmp_path: Path):
    run = _run(tmp_path / "runs" / "one", 0)
    _trace(run / "rank0.json", 0)
    _trace(run / "rank1.json", 1)
    assert find_ranks(run) == []
    assert launch_of(run) is None


def test_in_a_launch_by_profkit_one_recorded_rank_is_enough(tmp_path: Path):
    folder = _run(tmp_path / "rank1", 1)
    assert find_ranks(tmp_path) == []
    (tmp_path / "launch.json").write_text("{}")
    assert find_ranks(tmp_path) == [folder]


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(UnreadableInput, match="nosuch"):
        find_ranks(tmp_path / "nosuch")


def test_other_machines_report_size_and_time_of_each_trace(tmp_path: Path):
    folder, _ = _run(tmp_path / "rank0", 0), _run(tmp_path / "rank1", 1)
    (path, size, changed), _ = list_traces(str(tmp_path))
    trace = next(folder.glob("*.pt.trace.json.gz"))
    assert (path, size, changed) == (str(folder), trace.stat().st_size, trace.stat().st_mtime_ns)


def test_a_url_of_this_machine_is_read_as_a_folder(tmp_path: Path):
    traces = [str(_trace(tmp_path / f"rank{rank}.json")) for rank in range(2)]
    assert find_places(tmp_path.as_uri()) == traces


def test_on_other_file_systems_only_names_are_used():
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for name in ("/job7/rank1/w.9.pt.trace.json.gz", "/job7/rank1/run.json", "/job7/rank0/w.8.pt.trace.json.gz"):
        system.pipe(name, b"{}")
    found = find_places("memory://job7")
    assert [url.removeprefix("memory://").lstrip("/") for url in found] == [
        "job7/rank0/w.8.pt.trace.json.gz",
        "job7/rank1/w.9.pt.trace.json.gz",
    ]
