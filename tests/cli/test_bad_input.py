"""Bad input of any kind gives one line that names it and the cause, and exit status 2."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

TRACE = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'


def profkit(*arguments: str, cwd: Path, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", "profkit", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr when the command refuses."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_an_unknown_command_or_script_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "cnn.py").touch()
    result = profkit("diagnos", "cnn.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith("there is no command 'diagnos'; did you mean 'diagnose'?\n")
    line = refused(profkit("diagnose", "cnnn.py", cwd=tmp_path))
    assert line == "profkit: cnnn.py: no such script; did you mean 'cnn.py'?"
    line = refused(profkit("diagnose", "transformer.py", cwd=tmp_path))
    assert line == "profkit: transformer.py: no such script"


def test_an_unknown_scenario_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    line = refused(profkit("diagnose", "loss-lst", cwd=tmp_path))
    assert "loss-lst" in line
    assert "loss-list" in line


def test_an_unknown_rule_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    assert "retained-graph" in refused(profkit("explain", "retained-grph", cwd=tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("empty.json", b"", "is empty"),
        ("blank.json", b"  \n\n", "is empty"),
        ("cut.json.gz", gzip.compress(TRACE)[:15], "cut off"),
        ("plain.json.gz", b"this is no gzip", "neither JSON nor gzip"),
        ("cut.json", TRACE[:20], "not whole JSON"),
        ("other.json", b'{"a": [1, 2, 3]}', "not a profiler trace"),
        ("number.json", b"[1, 2, 3]", "holds no events"),
        ("none.json", b'{"traceEvents": []}', "holds no events"),
        ("notebook.txt", b"hello", "neither JSON nor gzip"),
    ],
    ids=lambda parameter: parameter if isinstance(parameter, str) else "bytes",
)
def test_a_file_other_than_a_trace_is_refused(tmp_path: Path, name: str, content: bytes, cause: str) -> None:
    (tmp_path / name).write_bytes(content)
    line = refused(profkit("diagnose", name, cwd=tmp_path))
    assert name in line
    assert cause in line


def test_a_refused_file_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    refused(profkit("diagnose", "empty.json", cwd=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["empty.json"]


@pytest.mark.parametrize("name", ["missing.json", "missing.json.gz", "no/such/trace", "missing.py"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    line = refused(profkit("diagnose", name, cwd=tmp_path))
    assert name in line
    assert "no such" in line


@pytest.mark.parametrize("command", [["diagnose", "it.json"], ["diagnose", "it.py"], ["compare", "it.json", "it.json"]])
def test_a_named_pipe_is_refused_without_waiting_for_it(tmp_path: Path, command: list[str]) -> None:
    os.mkfifo(tmp_path / command[1])
    line = refused(profkit(*command, cwd=tmp_path))
    assert line.startswith(f"profkit: {command[1]}: is a named pipe (FIFO)")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A directory without any permission."""
    folder = tmp_path / "locked"
    (folder / "run").mkdir(parents=True)
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize(
    "arguments",
    [
        ["diagnose", "locked"],
        ["diagnose", "locked/run"],
        ["diagnose", "locked/it.json"],
        ["diagnose", "locked/it.py"],
        ["compare", "locked", "locked/run"],
        ["record", "locked/it.py"],
        ["diagnose", "it.json", "--output", "locked/out"],
    ],
    ids=" ".join,
)
def test_a_forbidden_directory_is_named_and_not_called_a_failure_of_profkit(
    tmp_path: Path, locked: Path, arguments: list[str]
) -> None:
    (tmp_path / "it.json").write_bytes(TRACE)
    line = refused(profkit(*arguments, cwd=tmp_path, before=_without_privileges()))
    assert line.startswith("profkit: locked")
    assert line.endswith("ermission denied")


def _without_privileges() -> list[str]:
    """Root may read everything unless it gives up that privilege."""
    if os.geteuid() != 0:
        return []
    give_up = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if shutil.which(give_up[0]) is None or subprocess.run([*give_up, "true"], check=False).returncode:
        pytest.skip("nothing is forbidden to root")
    return give_up


def test_an_unreadable_side_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.pt.trace.json").write_bytes(TRACE)
    (tmp_path / "run" / "run.json").touch(mode=0)
    line = refused(profkit("diagnose", "run", cwd=tmp_path, before=_without_privileges()))
    assert line == "profkit: run/run.json: cannot be read: Permission denied"


def test_a_directory_without_a_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert "holds no trace" in refused(profkit("diagnose", "nothing", cwd=tmp_path))


def test_an_output_directory_that_holds_another_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(TRACE)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json").write_text("{}")
    line = refused(profkit("diagnose", "trace.json", "--output", "out", cwd=tmp_path))
    assert "out" in line
    assert "another run" in line


def test_an_output_directory_can_be_used_only_once(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(TRACE)
    assert profkit("diagnose", "trace.json", "--output", "out", cwd=tmp_path).returncode == 0
    assert "another run" in refused(profkit("diagnose", "trace.json", "--output", "out", cwd=tmp_path))


def test_an_output_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(TRACE)
    line = refused(profkit("diagnose", "trace.json", "--output", "trace.json/out", cwd=tmp_path))
    assert "cannot be written" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["diagnose"],
        ["diagnose", "loss-list", "--variant", "both"],
        ["diagnose", "loss-list", "--active", "0"],
        ["diagnose", "loss-list", "extra"],
        ["no-such-command"],
    ],
)
def test_bad_usage_exits_with_status_2(tmp_path: Path, arguments: list[str]) -> None:
    result = profkit(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_for_a_scenario_without_a_recording_the_missing_one_is_named(tmp_path: Path) -> None:
    line = refused(profkit("diagnose", "loss-list", "--device", "recorded", cwd=tmp_path))
    assert "loss-list" in line
    assert "profkit record" in line


def test_a_memory_snapshot_is_refused_without_being_loaded(tmp_path: Path) -> None:
    (tmp_path / "snapshot.pickle").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    assert "snapshot" in refused(profkit("diagnose", "snapshot.pickle", cwd=tmp_path))
    assert not (tmp_path / "owned").exists()


def test_a_directory_with_another_run_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diagnosis.json").write_text("{}")
    (tmp_path / "cut.json").write_bytes(TRACE[:20])
    assert "run: holds another run" in refused(profkit("diagnose", "cut.json", "--output", "run", cwd=tmp_path))
