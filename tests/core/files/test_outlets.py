"""Commands whose reader leaves end as they would have ended, and never with the status of `--fail-on`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from profkit.core.files.outlets import outlets
from profkit.diagnosis.catalogue import recordings_root

ENDS = (
    (("--help",), 0),
    (("--version",), 0),
    (("diagnose", "--help"), 0),
    (("rules",), 0),
    (("rules", "--format", "json"), 0),
    (("scenarios",), 0),
    (("explain", "tensor-list-loop"), 0),
    (("explain", "tensor-list-lop"), 2),
    (("diagnose",), 2),
    (("no-command",), 2),
    (("diagnose", "absent.json"), 2),
)


@contextmanager
def left_pipe() -> Iterator[int]:
    """The end for writing of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def ended(arguments: Sequence[object], stream: str, cwd: Path) -> int:
    """The status if the reader of a stream is gone; the other stream may tell nothing of it."""
    other = "stdout" if stream == "stderr" else "stderr"
    line = [sys.executable, "-m", "profkit", *map(str, arguments)]
    with left_pipe() as writing:
        result = subprocess.run(line, cwd=cwd, **{stream: writing, other: subprocess.PIPE}, check=False)
    assert b"Broken pipe" not in (result.stderr or b"")
    assert b"Exception ignored" not in (result.stderr or b"")
    return result.returncode


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(("arguments", "status"), ENDS)
def test_a_reader_that_leaves_changes_no_status(
    tmp_path: Path, arguments: Sequence[str], status: int, stream: str
) -> None:
    assert ended(arguments, stream, tmp_path) == status


def recorded(variant: str) -> Path:
    root = recordings_root()
    assert root is not None
    return next(root.glob(f"*/dataloader-in-main-process/{variant}"))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_fails_a_command_still_does(tmp_path: Path, stream: str) -> None:
    slow, fast = recorded("pitfall"), recorded("fix")
    diagnose = ("diagnose", slow, "--output")
    assert ended((*diagnose, tmp_path / "a"), stream, tmp_path) == 0
    assert ended((*diagnose, tmp_path / "b", "--fail-on", "low"), stream, tmp_path) == 1
    compare = ("compare", "--force", "--fail-on-regression", "5%")
    assert ended((*compare, slow, fast), stream, tmp_path) == 0
    assert ended((*compare, fast, slow), stream, tmp_path) == 1
    assert (tmp_path / "b" / "report.html").is_file()


@pytest.mark.parametrize(("arguments", "status"), ENDS)
def test_streams_that_were_closed_before_the_start_change_no_status(
    tmp_path: Path, arguments: Sequence[str], status: int
) -> None:
    shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", sys.executable, "-m", "profkit"]
    assert subprocess.run([*shell, *arguments], cwd=tmp_path, check=False).returncode == status


@pytest.mark.parametrize("options", [[], ["-u"]])
def test_what_is_written_arrives_at_once_or_at_the_end(options: Sequence[str]) -> None:
    code = "import os, sys; from profkit.core.files.outlets import outlets\n"
    code += "with outlets(): sys.stdout.write('a'); os.write(1, b'b'); sys.stderr.write('c')\n"
    code += "print('d')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert (result.stdout, result.stderr) == ("abd\n" if options else "bad\n", "c")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_told_in_a_line(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        line = [sys.executable, "-m", "profkit", "rules"]
        result = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert result.returncode == 2
    assert result.stderr == "profkit: the standard output cannot be written: No space left on device\n"


def test_streams_that_somebody_replaced_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = io.StringIO()
    monkeypatch.setattr(sys, "stdout", replaced)
    with outlets():
        print("text")
        assert sys.stdout is replaced
    assert replaced.getvalue() == "text\n"
