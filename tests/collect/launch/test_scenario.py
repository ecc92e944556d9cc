"""A scenario in two processes: the other process and the process group exist only while its steps are taken."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from profkit.collect.launch import scenario

SCENARIO = """
import torch
from torch import distributed

processes = 2


def setup(device):
    return torch.ones(1)


def pitfall(ones):
    while True:
        distributed.all_reduce(total := ones.clone())
        yield total


fix = pitfall
"""
PROGRAM = """
import sys
from pathlib import Path

import psutil
import torch
from torch import distributed

from profkit.collect.launch.scenario import beginning, load_scenario

threads = torch.get_num_threads()
module = load_scenario(Path(sys.argv[1]), "pitfall")
for _ in range(2):  # a second time, as in a trial that sets up again
    with beginning(module, "pitfall", "cpu") as steps:
        assert [next(steps).item() for _ in range(3)] == [2.0] * 3
        assert (distributed.get_rank(), distributed.get_world_size(), torch.get_num_threads()) == (0, 2, 1)
        (other,) = psutil.Process().children()
    assert not other.is_running() and not distributed.is_initialized()
    assert torch.get_num_threads() == threads
print("both ended")
"""


@pytest.mark.slow
def test_the_other_process_exists_only_for_the_steps(tmp_path):
    scenario = tmp_path / "pair.py"
    scenario.write_text(SCENARIO)
    ended = subprocess.run([sys.executable, "-c", PROGRAM, scenario], capture_output=True, text=True, check=False)
    assert ended.stdout == "both ended\n", ended.stderr


@pytest.mark.parametrize(
    ("settings", "waits", "events"),
    [
        ("", (), ["run", "record"]),
        ("", ("yes",), ["line", "run", "record"]),
        ("recorded_cold = False", (), ["run", "record"]),
        ("recorded_cold = True", (), ["record"]),
        ("recorded_cold = True", ("yes",), ["line", "record"]),
    ],
)
def test_a_recording_follows_a_warm_up_and_can_wait_for_a_line(tmp_path, monkeypatch, settings, waits, events):
    """The line, so that processes import PyTorch before it is their turn. No warm-up, where it would take away what the
    process does for the first time."""
    seen = []

    class Lines(io.StringIO):
        def readline(self, size: int = -1) -> str:
            seen.append("line")
            return "\n"

    monkeypatch.setattr(scenario, "run_scenario", lambda *given, **_: seen.append("record" if given[3:] else "run"))
    monkeypatch.setattr(sys, "stdin", Lines())
    program = tmp_path / "a.py"
    program.write_text(f"{SCENARIO}\n{settings}\n")
    scenario.main(str(program), "fix", "cpu", str(tmp_path / "run"), *waits)
    assert seen == events
