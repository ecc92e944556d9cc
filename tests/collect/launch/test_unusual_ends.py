"""Programs that put another one into their process: what that is recorded as, and what profkit reads of its command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.collect.launch.unusual_ends import Invocation, read_invocation
from profkit.run.directory import REPLACED_ITSELF, find_trace, load_run
from tests.forks import LONGEST_S


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return "train.py"


@pytest.mark.parametrize(
    ("arguments", "flags", "is_module", "rest"),
    [
        (["train.py"], [], False, ["train.py"]),
        (["train.py", "-m", "--", "x"], [], False, ["train.py", "-m", "--", "x"]),
        (["-u", "-Xdev", "-W", "ignore", "train.py", "1"], ["-u", "-Xdev", "-W", "ignore"], False, ["train.py", "1"]),
        (["-uB", "-m", "package.train", "-u"], ["-uB"], True, ["package.train", "-u"]),
    ],
)
def test_commands_that_are_followed(script, arguments, flags, is_module, rest):
    assert read_invocation(arguments) == Invocation(tuple(flags), is_module, rest[0], tuple(rest[1:]))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-"],
        ["-c", "print()"],
        ["-m"],
        ["-I", "train.py"],
        ["-Es", "train.py"],
        ["-W"],
        ["--version"],
        ["missing.py"],
        ["."],
    ],
)
def test_commands_that_are_not_followed(script, arguments):
    assert read_invocation(arguments) is None


ANEW = """\
import os
import sys

if os.environ.get("AGAIN") != "1":
    os.environ["AGAIN"] = "1"
    import torch
    try:
        os.execv("/no/such/program", ["program"])
    except FileNotFoundError:
        print("not there", flush=True)
    os.execv(sys.executable, [sys.executable, "-W", "error::UserWarning", *sys.argv])
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
print("done", sys.argv[1:], sys.warnoptions, sys.orig_argv[1:])
sys.exit(7)
"""
ANOTHER = """\
import os
import torch

print(torch.ones(2).sum().item(), flush=True)
os.execvp("sh", ["sh", "-c", "echo another; exit 5"])
"""


def record(directory: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "train.py").write_text(source)
    command = [sys.executable, "-m", "profkit", "record", "--output", "run", "train.py", "--", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "AGAIN"}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )


@pytest.mark.slow
def test_a_program_that_starts_itself_anew_is_recorded_anew(tmp_path):
    ended = record(tmp_path, ANEW, "a", "--", "b")
    given = ["train.py", "a", "--", "b"]
    assert ended.stdout == f"not there\ndone {given[1:]} ['error::UserWarning'] {given}\n", ended.stderr
    run = load_run(tmp_path / "run")
    assert (run.exit_status, run.command, run.step_signal) == (7, ("python", *given), "optimizer")
    assert find_trace(tmp_path / "run") is not None


@pytest.mark.slow
def test_another_program_keeps_its_status_and_the_recording_of_before(tmp_path):
    ended = record(tmp_path, ANOTHER)
    assert ended.stdout == "2.0\nanother\n"
    run = load_run(tmp_path / "run")
    assert run.exit_status == 5
    assert f"{REPLACED_ITSELF} (sh)" in run.notes
    assert find_trace(tmp_path / "run") is not None


@pytest.mark.slow
def test_another_program_without_a_recording_keeps_its_status(tmp_path):
    ended = record(tmp_path, "import os\nos.execvp('sh', ['sh', '-c', 'echo another'])\n")
    assert (ended.returncode, ended.stdout) == (0, "another\n")
    assert REPLACED_ITSELF in ended.stderr


FORKING = """\
import multiprocessing
import os
import sys


def work(seed):
    import torch

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(work, range(2), chunksize=1)
    if os.fork() == 0:
        sys.exit(9)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_forks_that_import_pytorch_do_not_record(tmp_path):
    ended = record(tmp_path, FORKING)
    assert (ended.returncode, ended.stdout) == (2, "9\n"), ended.stderr
    assert "its child processes did the work" in ended.stderr
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["account.json", "run.json"]
    assert load_run(tmp_path / "run").exit_status == 0
