"""Run directories from elsewhere: links lead nowhere, and a pipe in place of any file makes no command wait."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import profkit
from profkit.run.directory import DIAGNOSIS_FILE, REPORTS, RUN_FILE, SMALL_FILES, SNAPSHOT_FILE
from tests.cli.test_bad_input import TRACE
from tests.diagnosis.launch.test_launching import trace_of_rank
from tests.forks import LONGEST_S

"""A command that waits for a pipe waits for ever."""
NAME = "host_1.2.pt.trace.json"


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "profkit", *map(str, arguments)]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=LONGEST_S, check=False, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run, diagnosed, with all of its files."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / NAME).write_bytes(TRACE)
    (directory / RUN_FILE).write_text(f'{{"trace": "{NAME}"}}')
    assert command("diagnose", directory).returncode == 0
    return directory


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_that_is_a_link_is_refused_and_its_target_kept(run: Path, name: str) -> None:
    precious = run.parent / "precious"
    precious.write_text("precious")
    (run / name).unlink()
    (run / name).symlink_to(precious)
    assert one_line(command("diagnose", run)).endswith(f"cannot be written: {name} is a link, which is not replaced")
    assert precious.read_text() == "precious"


def test_a_run_that_is_reached_by_a_link_is_diagnosed(run: Path) -> None:
    link = run.parent / "link"
    link.symlink_to(run)
    (run / DIAGNOSIS_FILE).unlink()
    assert command("diagnose", link).returncode == 0
    assert (run / DIAGNOSIS_FILE).is_file()


@pytest.mark.parametrize("name", ["perfetto.json.gz", ".profkit-write-test"])
def test_no_other_file_is_written_through_a_link(run: Path, name: str) -> None:
    precious = run.parent / "precious"
    precious.write_text("precious")
    (run / name).symlink_to(precious)
    command("diagnose", run, "--format", "perfetto")
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("name", [*SMALL_FILES, SNAPSHOT_FILE, *REPORTS, NAME])
def test_a_pipe_in_place_of_a_file_makes_nobody_wait(run: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    known = command("diagnose", run)
    assert known.returncode == (0 if name == SNAPSHOT_FILE else 2), known.stderr
    assert len(known.stderr.splitlines()) == 1
    if name in {*SMALL_FILES, DIAGNOSIS_FILE}:
        assert f"{name}" in known.stderr
        assert "is a named pipe" in known.stderr
    if name == DIAGNOSIS_FILE:
        with pytest.raises(profkit.ProfkitError, match="is a named pipe"):
            profkit.load(run)


def test_a_pipe_in_place_of_a_file_makes_a_comparison_no_longer(run: Path) -> None:
    other = run.with_name("other")
    shutil.copytree(run, other)
    (other / RUN_FILE).unlink()
    os.mkfifo(other / RUN_FILE)
    assert "is a named pipe" in one_line(command("compare", run, other))


@pytest.mark.parametrize("name", [*SMALL_FILES, NAME])
def test_links_out_of_a_run_are_not_read(run: Path, name: str) -> None:
    outside = run.parent / "outside"
    outside.write_bytes((run / name).read_bytes() if (run / name).exists() else b"[]")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    line = one_line(command("diagnose", run))
    assert name in line
    assert "is a link out of" in line


def test_a_link_within_a_run_is_read(run: Path) -> None:
    (run / RUN_FILE).rename(run / "kept.json")
    (run / RUN_FILE).symlink_to("kept.json")
    assert command("diagnose", run).returncode == 0


@pytest.mark.parametrize("name", ["callsites.json", "report.html", "snapshot.pickle", "workers"])
def test_nothing_is_recorded_into_a_directory_with_a_link(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / "program.py").write_text("raise SystemExit('it must not even start')")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(precious)
    line = one_line(command("record", "--output", tmp_path / "out", tmp_path / "program.py"))
    assert f"cannot be written: {name} is a link" in line


def test_a_pipe_makes_tensorboards_copies_of_other_runs_no_less(run: Path) -> None:
    hostile = run.with_name("hostile")
    hostile.mkdir()
    os.mkfifo(hostile / DIAGNOSIS_FILE)
    os.mkfifo(hostile / NAME)
    result = command("tensorboard", run.parent, "--prepare-only")
    assert result.returncode == 0, result.stderr
    (copied,) = result.stdout.splitlines()
    assert Path(copied).name == "run"


def test_tensorboards_copies_are_written_through_no_link(run: Path) -> None:
    logdir, precious = run.parent, run.parent.parent / f"{run.parent.name}-precious"
    precious.mkdir()
    (precious / ".gitignore").write_bytes(b"*\n")
    (precious / NAME).write_text("precious")
    prepared = logdir / ".profkit-tensorboard-2"
    prepared.symlink_to(precious)
    assert "is a link, which profkit did not make" in one_line(command("tensorboard", logdir, "--prepare-only"))
    prepared.unlink()
    prepared.mkdir()
    (prepared / ".gitignore").write_bytes(b"*\n")
    (prepared / "run").symlink_to(precious)
    assert "run is a link, not a folder" in one_line(command("tensorboard", logdir, "--prepare-only"))
    assert sorted(path.name for path in precious.iterdir()) == [".gitignore", NAME]
    assert (precious / NAME).read_text() == "precious"


def test_a_repository_is_not_taken_for_a_folder_of_copies(run: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / ".gitignore").write_text("*.pyc\n")
    (repository / NAME).write_text("precious")
    line = one_line(command("tensorboard", run, "--prepare-only", "--copies", repository))
    assert "holds files that profkit did not put there" in line
    assert (repository / NAME).read_text() == "precious"


def test_a_trace_nested_too_deeply_is_named_and_left_out(run: Path) -> None:
    deep = run.with_name("deep")
    deep.mkdir()
    nested = b"[" * 100_000 + b"]" * 100_000
    (deep / NAME).write_bytes(b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "args": {"x": ' + nested + b"}}]}")
    result = command("tensorboard", run.parent, "--prepare-only")
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line == f"profkit: left out: {deep / NAME}: is not whole JSON: nested too deeply"


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    """Two ranks in a folder."""
    folder = tmp_path / "launch"
    for rank in (0, 1):
        (folder / f"rank{rank}").mkdir(parents=True)
        (folder / f"rank{rank}" / NAME).write_bytes(trace_of_rank(rank, [5000] * 4, world=2))
        (folder / f"rank{rank}" / RUN_FILE).write_text(f'{{"trace": "{NAME}", "identity": {{"rank": {rank}}}}}')
    assert command("diagnose", folder).returncode == 0
    return folder


@pytest.mark.parametrize("name", [*REPORTS, "launch.json", "rank1/run.json", f"rank1/{NAME}", "rank1"])
def test_a_pipe_in_a_launch_makes_nobody_wait(launch: Path, name: str) -> None:
    if (launch / name).is_dir():
        shutil.rmtree(launch / name)
    (launch / name).unlink(missing_ok=True)
    os.mkfifo(launch / name)
    result = command("diagnose", launch)
    assert result.returncode in {0, 2}, result.stderr
    assert "failed inside" not in result.stdout + result.stderr


def test_ranks_outside_of_a_launch_are_not_read(launch: Path) -> None:
    for rank in (0, 1):
        (launch / f"rank{rank}").rename(launch.with_name(f"outside{rank}"))
        (launch / f"rank{rank}").symlink_to(f"../outside{rank}")
    before = (launch / "rank1" / RUN_FILE).stat().st_mtime_ns, sorted(os.listdir(launch / "rank1"))
    for given in (("diagnose", launch), ("compare", launch, launch)):
        assert one_line(command(*given)).endswith("rank0 is a link out of it, which is not followed")
    assert ((launch / "rank1" / RUN_FILE).stat().st_mtime_ns, sorted(os.listdir(launch / "rank1"))) == before


def test_ranks_may_be_links_within_a_launch(launch: Path) -> None:
    (launch / "kept").mkdir()
    (launch / "rank1").rename(launch / "kept" / "one")
    (launch / "rank1").symlink_to("kept/one")
    result = command("diagnose", launch)
    assert result.returncode == 0, result.stderr
    assert "2 ranks" in result.stdout
