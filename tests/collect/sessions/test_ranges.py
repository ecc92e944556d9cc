"""A range that is open when a recording stops does not end in a later one: that would write into freed memory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.profiler import record_function

from profkit.collect.sessions.allowance import Allowance
from profkit.collect.sessions.ranges import OpenRanges
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.sessions.session import ProfilerSession
from tests.collect.reading import read_events, steps_of
from tests.forks import LONGEST_S

PROGRAM = """\
import os
import sys
import torch
import profkit
from profkit.collect.sessions import allowance

allowance.LEAST_S = 1e9  # recording may take as long as it needs on this machine

class Doubled(torch.autograd.Function):
    '''Steps the optimizer inside an operator.'''
    @staticmethod
    def forward(context, x):
        optimizer.step()
        return x * 2
    @staticmethod
    def backward(context, gradient):
        return gradient

weight = torch.nn.Parameter(torch.ones(64))
optimizer = torch.optim.SGD([weight], lr=0.1)

def epoch(steps):
    with torch.profiler.record_function("epoch"):
        for _ in range(steps):
            with torch.profiler.record_function("step"):
                Doubled.apply(weight).sum().backward()

def program(wait):
    with profkit.profile(f"run{wait}", wait=wait, active=20):
        for _ in range(12):
            epoch(3)
    print("done")

for wait in (0, 1, 3):
    child = os.fork()
    if child == 0:
        sys.exit(program(wait))
    print(wait, os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_steps_may_end_inside_ranges_and_operators(tmp_path):
    """Each in a process that overwrites freed memory and ends normally."""
    (tmp_path / "program.py").write_text(PROGRAM)
    result = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    said = "done\n0 0\ndone\n1 0\ndone\n3 0\n"
    assert (result.returncode, result.stdout) == (0, said), result.stderr  # PyTorch warns of the cut-off operator
    for wait in (0, 1, 3):
        first = min(steps_of(read_events(tmp_path / f"run{wait}")))
        assert first in (1, 2)  # the operator ends before the recording begins


def recorded() -> ProfilerSession:
    recording = ProfilerSession(cuda=False)
    recording.start()
    return recording


def names_of(recording: ProfilerSession) -> set[str]:
    return {event.name() for event in recording._profiler.profiler.kineto_results.events()}


def test_a_range_that_a_stop_cut_off_ends_in_no_later_recording():
    ranges, open_one = OpenRanges(), record_function("outer")
    first = recorded()
    ranges.install()
    open_one.__enter__()
    with record_function("inner"):
        torch.ones(2)
    ranges.close_off()
    first.stop()
    assert {"outer", "inner"} <= names_of(first)
    assert not open_one.run_callbacks_on_exit
    second = recorded()
    open_one.__exit__(None, None, None)
    with record_function("later"):
        torch.ones(2)
    second.stop()
    assert "later" in names_of(second)


def test_a_range_can_be_entered_again_after_its_end():
    ranges, again = OpenRanges(), record_function("again")
    first = recorded()
    ranges.install()
    for _ in range(2):
        with again:
            torch.ones(2)
    ranges.close_off()
    first.stop()
    assert again.run_callbacks_on_exit


def test_the_methods_of_ranges_are_restored():
    before = record_function.__enter__, record_function.__exit__
    ranges = OpenRanges()
    ranges.install()
    assert (record_function.__enter__, record_function.__exit__) != before
    ranges.close_off()
    assert (record_function.__enter__, record_function.__exit__) == before


class Stops(torch.autograd.Function):
    """Drops the running recording inside an operator."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, recordings: Recordings) -> torch.Tensor:
        recordings.drop()
        return x * 2

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def test_recordings_know_whether_the_last_stop_cut_an_operator_off(tmp_path):
    recordings = Recordings(tmp_path, lambda: None, Allowance())
    recordings.start()
    Stops.apply(torch.ones(2), recordings)
    assert recordings.cut_operators_off
    recordings.start()
    with record_function("a range is none"):
        torch.ones(2)
        recordings.drop()
    assert not recordings.cut_operators_off
