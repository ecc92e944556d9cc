"""Programs that ask for more memory than there is: on the host, which works on any machine."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.run.directory import load_run
from tests.end_to_end.recording import RUN
from tests.end_to_end.running import Outcome, judge, record_program
from tests.recordings import Recordings

TRAINING = """
import torch
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def table(rows):
    return torch.empty(rows)  # four bytes each

def train(steps):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(8, 16)).square().mean().backward()
        optimizer.step()

{end}
"""
pytestmark = pytest.mark.slow


def run(recordings: Recordings, end: str) -> Outcome:
    return judge(record_program(recordings, "train.py", writes={"train.py": TRAINING.format(end=end)}))


def failure_of(outcome: Outcome) -> dict[str, Any]:
    failed = load_run(outcome.run).out_of_memory
    assert failed is not None
    assert failed.site is not None
    return {"device": failed.device, "asked": failed.asked_bytes, "line": failed.site.source, "ended": failed.ended}


def test_the_verdict_names_the_line_and_the_size_of_the_request(recordings: Recordings) -> None:
    """Above it stands the program's own message, as without profkit."""
    record = ["-m", "profkit", "record", "--output", RUN, "train.py"]
    kept = recordings.start(["train.py"], record, writes={"train.py": TRAINING.format(end="train(12)\ntable(10**15)")})
    (alone,), outcome = kept.before, judge(kept)
    assert outcome.status == 3
    assert alone.stderr in outcome.stderr
    assert outcome.diagnosis["timing"]["steps"] >= 3
    assert failure_of(outcome) == {
        "device": -1,
        "asked": 4 * 10**15,
        "line": "return torch.empty(rows)  # four bytes each",
        "ended": True,
    }
    assert outcome.diagnosis["failure"].startswith(
        "out of memory: train.py:7 asked for 4,000 TB of the host's memory; the process held "
    )
    assert outcome.diagnosis["verdict"]["text"].startswith("Out of memory: train.py:7 asked for 4,000 TB of the host's")


@pytest.mark.parametrize(
    ("end", "asked", "line"),
    [
        ("train(1)\nbytearray(10**15)", 0, "bytearray(10**15)"),
        (
            "train(1)\ntry:\n    table(10**15)\nexcept RuntimeError as error:\n    raise ValueError('rows') from error",
            4 * 10**15,
            "return torch.empty(rows)  # four bytes each",
        ),
    ],
)
def test_running_out_of_memory_before_any_recorded_step_is_reported(
    recordings: Recordings, end: str, asked: int, line: str
) -> None:
    outcome = run(recordings, end)
    assert outcome.status == 3
    assert failure_of(outcome) == {"device": -1, "asked": asked, "line": line, "ended": True}
    assert outcome.diagnosis["verdict"]["text"].startswith("Out of memory: train.py:")


@pytest.mark.parametrize(
    "end",
    [
        "try:\n    table(10**15)\nexcept RuntimeError:\n    train(12)",
        "train(12)\nraise RuntimeError('tried to allocate 7 bytes')",
    ],
)
def test_other_failures_and_caught_ones_are_not_reported_as_running_out_of_memory(recordings, end: str) -> None:
    outcome = run(recordings, end)
    assert load_run(outcome.run).out_of_memory is None
    assert outcome.diagnosis["failure"] is None
    assert outcome.diagnosis["timing"]["steps"] >= 3
