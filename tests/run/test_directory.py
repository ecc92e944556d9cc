"""The run directory: made once, refused when taken, read back as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.core.errors import RunDirectoryError, UnreadableInput
from profkit.run import directory as run
from profkit.run.directory import CallSite, Host, LiveHolder, LiveSample, LoaderUse, LoadSample, Run, unprofiled_steps


def test_a_new_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    made = run.create_directory(tmp_path / "a" / "b")
    assert made.is_dir()
    assert list(made.iterdir()) == []


@pytest.mark.parametrize("file", ["run.json", "diagnosis.json", "x_1.2.pt.trace.json.gz"])
def test_a_directory_that_holds_another_run_is_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / file).touch()
    with pytest.raises(RunDirectoryError, match="another run"):
        run.create_directory(tmp_path)


def test_a_directory_under_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        run.create_directory(tmp_path / "file" / "run")


def test_the_default_directory_is_new_each_time_and_named_after_the_target(tmp_path: Path) -> None:
    first = run.default_directory("some/where/train.py", tmp_path)
    first.mkdir(parents=True)
    second = run.default_directory("some/where/train.py", tmp_path)
    assert first.parent == second.parent == tmp_path / "train"
    assert first != second


def test_a_saved_run_is_read_back(tmp_path: Path) -> None:
    site = CallSite("train.py", 3, "main", "losses.append(loss)")
    written = Run(
        command=("train.py",),
        torch="2.13.0",
        host=Host(2, 2, 1 << 30),
        flags={"anomaly": False},
        loaders=(LoaderUse(0, 32, False, False),),
        reference_step_ns=(1, 2, 3),
        trace="x.pt.trace.json",
    )
    live = (LiveSample(1, (LiveHolder("losses", site, 2, 9, 64, 2),)),)
    load = (LoadSample(5, 1 << 20, 0.5),)
    for file, value in (
        (run.RUN_FILE, written),
        (run.CALLSITES_FILE, (site,)),
        (run.LIVE_FILE, live),
        (run.SAMPLES_FILE, load),
    ):
        run.save(tmp_path, file, value)
    assert run.load_run(tmp_path) == written
    assert run.load_callsites(tmp_path) == (site,)
    assert run.load_live(tmp_path) == live
    assert run.load_samples(tmp_path) == load


def test_missing_side_files_are_empty(tmp_path: Path) -> None:
    assert run.load_run(tmp_path) == Run()
    assert run.load_callsites(tmp_path) == ()


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"command": 3}', b"\xff", b'{"target": "\xed"}', b"[" * 10**6])
def test_a_foreign_side_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / run.RUN_FILE).write_bytes(content)
    with pytest.raises(UnreadableInput, match=r"run\.json: is not what profkit wrote"):
        run.load_run(tmp_path)


def test_the_newest_trace_of_a_directory_is_found(tmp_path: Path) -> None:
    import os

    for age, name in enumerate(("new.pt.trace.json", "old.pt.trace.json.gz", "notes.json")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(10**9 - age, 10**9 - age))
    found = run.find_trace(tmp_path)
    assert found is not None
    assert found.name == "new.pt.trace.json"


@pytest.mark.parametrize(
    ("device_ns", "bound_by", "expected"),
    [
        ((), None, ((10, 12), (11,))),
        ((), "host", ((10, 12), (11,))),
        ((), "device", ((), ())),
        ((600, 0), "device", ((600,), ())),
        ((600, 620), "host", ((600, 620), ())),
    ],
)
def test_unprofiled_steps_are_timed_by_the_device_if_that_was_measured(device_ns, bound_by, expected):
    run = Run(reference_step_ns=(10, 12), later_step_ns=(11,), reference_step_device_ns=device_ns)
    assert unprofiled_steps(run, bound_by) == expected
