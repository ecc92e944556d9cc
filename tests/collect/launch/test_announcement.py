"""What a terminal shows while a program is recorded."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

from profkit.collect.launch.script import Announcer
from tests.forks import LONGEST_S

PROGRAM = """\
import torch
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(20):
    parameter.sum().backward()
    optimizer.step()
"""
PHASES = [
    ("opening", 0, 8),
    ("reference", 1, 8),
    ("reference", 2, 8),
    ("reference", 3, 8),
    ("located", 4, 8),
    ("active", 5, 8),
    ("active", 6, 8),
    ("active", 7, 8),
    ("active", 8, 8),
    ("after", 8, 8),
    ("after", 8, 8),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_phase_and_each_recorded_step_is_announced_once(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "__stderr__", terminal)
    announce = Announcer()
    for phase in PHASES:
        announce(*phase)
    assert terminal.getvalue().splitlines() == [
        "profkit: found the program's steps; timing some of them without the profiler",
        *(f"profkit: recording: step {done} of 8" for done in range(4, 9)),
        "profkit: recorded; the program goes on",
    ]


def test_at_a_terminal_progress_goes_to_stderr_only(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "run").mkdir()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "profkit.collect.launch.entry", "--directory=run", "--", "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while chunk := _read(ours):
            said += chunk
        assert process.wait(LONGEST_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(ours)
    assert b"profkit: recording: step 8 of 8" in said
    assert said.rstrip().endswith(b"recorded; the program goes on")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # on Linux, reading a terminal whose other end is closed is an error
        return b""
