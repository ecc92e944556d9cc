"""`profkit watch`: where the time of a whole run goes, whatever becomes of the program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.report.json import load_json
from profkit.run.directory import DIAGNOSIS_FILE, load_run
from profkit.run.whole_run import load_account

PROGRAM = """\
import sys, time

def read():
    time.sleep(0.3)

def main():
    time.sleep(0.5)
    for epoch in range(3):
        read()
        for batch in range(2):
            time.sleep(0.15)
            if batch < 0:
                loss.backward()
    time.sleep(0.5)

main()
print("done", sys.argv[1:])
sys.exit(int(sys.argv[1]))
"""
KILLED = """\
import os, signal, sys, time

while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def watch(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", "watch", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_each_phase_is_told_with_its_line(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    ended = watch("train.py", "--output", "run", "--format", "json", "--", "0", "--format", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    said, report = ended.stdout.split("\n", 1)
    assert said == "done ['0', '--format']"
    whole = load_json(tmp_path / "run" / DIAGNOSIS_FILE).whole_run
    assert json.loads(report)["whole_run"]["time_ns"] == whole.time_ns
    assert sum(phase.time_ns for phase in whole.phases) == whole.time_ns
    lines = {phase.label: phase.lines[0].location.line for phase in whole.phases if phase.lines}
    assert lines["before the first step"] == 7
    assert lines["steps"] == 11
    assert lines["between the epochs"] in (4, 9)
    assert lines["after the last step"] == 14


@pytest.mark.slow
def test_a_watched_run_can_be_diagnosed_later(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    assert watch("-m", "train", "--output", "run", "--", "0", cwd=tmp_path).returncode == 0
    command = [sys.executable, "-m", "profkit", "diagnose", "run"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "repeated-epoch-work" in again.stdout.splitlines()[1]


@pytest.mark.slow
def test_a_program_that_fails_is_accounted_for_and_its_status_told(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    ended = watch("train.py", "--output", "run", "--", "5", cwd=tmp_path)
    assert ended.returncode == 3
    assert "The run took" in ended.stdout
    assert "status 5" in ended.stderr


@pytest.mark.slow
def test_a_killed_program_keeps_its_account(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    ended = watch("killed.py", "--output", "run", "--", str(tmp_path / "run" / "account.json"), cwd=tmp_path)
    assert ended.returncode == 3
    assert signal.SIGKILL.name in ended.stderr
    assert "The run was ended from outside after at least" in ended.stdout
    assert not load_account(tmp_path / "run").is_over


@pytest.mark.parametrize("arguments", [[], ["missing.py"], ["notes.txt"], ["loss-list"]])
def test_only_programs_can_be_watched(tmp_path, arguments):
    (tmp_path / "notes.txt").touch()
    ended = watch(*arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]


def test_a_directory_with_another_run_is_refused(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    ended = watch("train.py", "--output", "run", cwd=tmp_path)
    assert ended.returncode == 2
    assert "holds another run" in ended.stderr


CHANGING = """\
import sys, time
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def more(times):
    for _ in range(times):
        torch.randn(200, 200) @ torch.randn(200, 200)

def train(seconds, times):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        optimizer.zero_grad()
        model(torch.ones(64, 64)).sum().backward()
        more(times)
        optimizer.step()

train(6, 1)
train(8, 15)
print("trained")
sys.exit(int(sys.argv[1]))
"""
IN_THE_WINDOW = """\
train(4, 1)
for _ in range(5000):
    train(0.001, 15)  # one step
    if torch.autograd._profiler_enabled():
        raise KeyError("end")
"""
"""Ends in the window, or after a minute if none is opened."""


@pytest.mark.slow
@pytest.mark.races(why="the lines are those that looks meet, and a busy machine gives few of them in the short steps")
def test_a_step_time_that_jumps_opens_one_window_and_names_the_line(tmp_path):
    (tmp_path / "train.py").write_text(CHANGING)
    ended = watch("train.py", "--output", "run", "--", "0", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("trained\n")
    (note,) = (note for note in load_run(tmp_path / "run").notes if "times as long as at first" in note)
    assert "profkit recorded there, for " in note
    found = {finding.rule: finding for finding in load_json(tmp_path / "run" / DIAGNOSIS_FILE).findings}
    assert found["growing-step-time"].location.line == 10


@pytest.mark.slow
def test_a_program_that_fails_in_the_window_keeps_its_status_and_its_traceback(tmp_path):
    (tmp_path / "train.py").write_text(CHANGING[: CHANGING.index("train(6, 1)")] + IN_THE_WINDOW)
    ended = watch("train.py", "--output", "run", cwd=tmp_path)
    assert ended.returncode == 3
    assert "KeyError: 'end'" in ended.stderr
    assert "profkit/collect" not in ended.stderr


@pytest.mark.slow
def test_figures_are_kept_in_a_file_and_nothing_is_said_where_stderr_is_no_terminal(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    ended = watch("train.py", "--output", "run", "--live", "--metrics", "run.prom", "--", "0", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("done ['0']\n")
    assert "profkit:" not in ended.stderr
    figures = (tmp_path / "run.prom").read_text()
    assert 'profkit_phase{phase="over"} 1' in figures
    assert figures.endswith("# EOF\n")
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "run", "run.prom"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_shows_what_the_program_does(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    told = [sys.executable, "-m", "profkit", "watch", "train.py", "--output", "run", "--live", "--", "0"]
    spawn = f"import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn({told!r})))"
    command = [sys.executable, "-c", spawn]
    ended = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    said = [line.strip() for line in ended.stdout.splitlines() if line.startswith("profkit: ")]
    assert len(said) >= 2
    assert " · over" in said[-1]
    assert "done ['0']" in ended.stdout.splitlines()


@pytest.mark.parametrize("target", ["folder", "link", "gone/run.prom"])
def test_figures_go_to_a_plain_file_only(tmp_path, target):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "train.py")
    ended = watch("train.py", "--output", "run", "--metrics", target, "--", "0", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert not (tmp_path / "run").exists()
