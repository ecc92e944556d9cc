"""A training program that is recorded from outside, and what its recording shows."""

from __future__ import annotations

from tests.collect.reading import read_events, steps_of
from tests.end_to_end.running import Outcome, judge, record_program
from tests.recordings import Recordings

TRAINING = """\
import os, resource, shutil, signal, sys, threading
import torch

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs start without it
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (parameter * 2).sum().backward()
        optimizer.step()
    print("trained", steps, parameter.tolist(), flush=True)


"""


RECORDED = 12
"""Steps until the recording is complete and written: the prologue, 3 timed, 5 recorded and some after."""


def run(recordings: Recordings, end: str, *options: str) -> Outcome:
    outcome = judge(record_program(recordings, *options, "program.py", writes={"program.py": TRAINING + end}))
    assert "profkit/collect" not in outcome.stderr, outcome.stderr
    return outcome


def assert_diagnosed(outcome: Outcome) -> None:
    assert outcome.diagnosis["timing"]["steps_from"] == "the optimizer's steps", outcome.stderr
    assert sorted(steps_of(read_events(outcome.run))) == [2, 4, 5, 6, 7]
