"""Work divided among processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.core.errors import UnreadableInput
from profkit.diagnosis.launch import here, started
from profkit.diagnosis.launch.here import free_memory, processes_for, reduce_here
from profkit.diagnosis.launch.schedule import Done
from profkit.diagnosis.launch.started import can_start
from profkit.trace.events import Int64s
from tests.traces import annotation, json_of, op, step

several = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")


@pytest.fixture(params=["forks", "interpreters"])
def two_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, even though the process of the tests has threads."""
    monkeypatch.setattr(here, "processes_for", lambda limit_bytes: 2)
    monkeypatch.setattr(here, "can_fork", lambda: request.param == "forks")
    monkeypatch.setattr(here, "_worth_starting", len)


def _measure(place: str) -> tuple[str, int]:
    if place == "broken":
        raise UnreadableInput(place, "is broken")
    if place == "fatal":
        os.kill(os.getpid(), signal.SIGKILL)
    return place, os.getpid()


def _count(place: str) -> Int64s:
    return np.arange(1_000_000)


def _by_number(work: Any, places: list[str]) -> list[Done[Any]]:
    return sorted(reduce_here(work, places), key=lambda one: one.number)


@several
def test_other_processes_do_all_the_work_and_a_broken_place_affects_no_other(two_processes: None) -> None:
    done = _by_number(_measure, ["a", "broken", "c", "d"])
    assert [(one.number, one.value and one.value[0], one.cause) for one in done] == [
        (0, "a", ""),
        (1, None, "broken: is broken"),
        (2, "c", ""),
        (3, "d", ""),
    ]
    pids = {one.value[1] for one in done if one.value}
    assert os.getpid() not in pids
    assert len(pids) <= 2


@several
def test_a_place_that_ends_its_process_affects_no_other(two_processes: None) -> None:
    done = _by_number(_measure, ["fatal", "a", "fatal", "b", "fatal", "c"])
    assert [one.value and one.value[0] for one in done] == [None, "a", None, "b", None, "c"]
    assert done[2].cause == "fatal: the process that read it was ended, perhaps by the system"


@several
def test_arrays_come_back_unchanged(two_processes: None) -> None:
    done, _ = reduce_here(_count, ["a", "b"])
    assert done.value is not None
    assert np.array_equal(done.value, np.arange(1_000_000))


@several
def test_each_of_hundreds_of_places_is_done_once(two_processes: None) -> None:
    places = [str(number) for number in range(600)]
    assert [one.value for one in _by_number(int, places)] == list(range(600))


@several
def test_a_reader_that_stops_early_leaves_no_process(two_processes: None) -> None:
    running = reduce_here(_measure, ["a", "b", "c", "d"])
    first = next(running)
    running.close()
    assert first.value is not None
    with pytest.raises(ProcessLookupError):
        os.kill(first.value[1], 0)


def test_with_one_process_the_work_is_done_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "processes_for", lambda limit_bytes: 1)
    assert _by_number(_measure, ["a", "broken"]) == [Done(0, ("a", os.getpid())), Done(1, cause="broken: is broken")]


@pytest.mark.parametrize(
    ("free_bytes", "cpus", "forkable", "expected"),
    [(10 * 10**9, 2, 2, 2), (10 * 10**9, 64, 4, 5), (10**9, 64, 4, 1), (0, 64, 4, 1), (10**12, 64, 1, 1)],
)
def test_as_many_processes_as_processors_and_memory_allow(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int, cpus: int, forkable: int, expected: int
) -> None:
    monkeypatch.setattr(here, "free_memory", lambda: free_bytes)
    monkeypatch.setattr(here, "processes_at_hand", lambda: forkable)
    monkeypatch.setattr(here, "can_start", lambda: False)
    monkeypatch.setattr(here.os, "sched_getaffinity", lambda pid: set(range(cpus)))
    assert processes_for(2 * 10**9) == expected


def test_small_traces_start_no_further_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four packed files of 1 MB are worth one new interpreter: it reads as much in the time it takes to start."""
    places = []
    for name in ("a.json.gz", "b.json.gz", "c.json", "gone.json", "d.json.gz", "e.json.gz"):
        places.append(str(tmp_path / name))
        if name != "gone.json":
            (tmp_path / name).write_bytes(bytes(1 << 20))
    assert here._worth_starting(places) == 1
    assert here._worth_starting(["s3://bucket/rank0.json"]) == 1
    monkeypatch.setattr(here, "processes_for", lambda limit_bytes: 2)
    monkeypatch.setattr(here, "can_fork", lambda: False)
    monkeypatch.setattr(here, "Started", None)
    assert len(_by_number(_measure, places)) == 6


@pytest.mark.parametrize(
    ("name", "value"), [("sys.executable", "/usr/bin/uwsgi"), ("sys.executable", None), ("sys.platform", "win32")]
)
def test_an_executable_other_than_python_is_not_started(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    monkeypatch.setattr(started.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.delenv("PROFKIT_PROCESSES", raising=False)
    assert can_start() == (sys.platform == "linux")
    monkeypatch.setattr(name, value)
    assert not can_start()


@several
def test_a_program_with_threads_starts_interpreters_that_do_not_run_its_main_file(tmp_path: Path) -> None:
    """Its main file does not run again, and the diagnosis is the same as in one process."""
    folder, program = tmp_path / "job", tmp_path / "program.py"
    folder.mkdir()
    for rank in range(3):
        (folder / f"rank{rank}.json").write_bytes(_trace(rank))
    program.write_text(_PROGRAM)
    outcomes = [
        subprocess.run(
            [sys.executable, program, folder, str(worth)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PROFKIT_PROCESSES": "4"},
        )
        for worth in (1, 1 << 40)
    ]
    lines = [outcome.stdout.split("\n", maxsplit=2) for outcome in outcomes]
    assert [one[0] for one in lines] == ["the program runs"] * 2
    assert [one[1] for one in lines] == ["2 interpreters", "0 interpreters"]
    assert lines[0][2] == lines[1][2]
    assert "rank2.json" in lines[0][2]
    assert [outcome.stderr for outcome in outcomes] == ["", ""]


def _trace(rank: int) -> bytes:
    """Four steps with an all-reduce each, for which rank 2 comes last."""
    events = []
    for at in range(0, 400, 100):
        asked = at + 50 + 10 * rank
        ran = annotation("gloo:all_reduce", asked + 1, at + 97 - asked, tid=9)
        events += [step(at // 100, at, 100), op("aten::mm", at, 50 + 10 * rank), op("c10d::allreduce_", asked, 1), ran]
    return json_of(events, distributedInfo={"backend": "gloo", "rank": rank, "world_size": 3})


_PROGRAM = """
import os, sys, threading
import profkit
from profkit.diagnosis.launch import here
print("the program runs")
os.sched_getaffinity = lambda pid: {0, 1}
begun = []
class Counted(here.Started):
    def __init__(self, *given):
        super().__init__(*given)
        begun.append(self)
here.Started, here._WORTH_BYTES, here.free_memory = Counted, int(sys.argv[2]), lambda: 1 << 40
over = threading.Event()
threading.Thread(target=over.wait).start()
try:
    found = profkit.diagnose(sys.argv[1])
finally:
    over.set()
print(len(begun), "interpreters")
print(found.verdict.text)
print(found.launch)
"""


def test_the_memory_limit_of_a_container_is_respected(tmp_path: Path) -> None:
    whole = free_memory(tmp_path)
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) > 1_000
    (tmp_path / "memory.max").write_text("1000\n")
    assert free_memory(tmp_path) == 400 < whole
