"""When a recording is cut off: whenever requested, but never inside a backward pass."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from profkit.collect.program.guard import Guard
from profkit.collect.recorder.watchdog import Watchdog


def fail(error: BaseException) -> None:
    raise error


@pytest.fixture
def watched() -> tuple[Watchdog, list[str]]:
    """A watchdog, and what it did."""
    done, nothing = list[str](), SimpleNamespace()
    act = lambda: True, lambda: done.append("cut off"), lambda: done.append("moved on")
    return Watchdog(nothing, nothing, nothing, nothing, Guard(fail), *act), done


def test_the_end_of_line_tracing_cuts_the_recording_off(watched):
    watchdog, done = watched
    watchdog.lines_ended()
    assert done == ["cut off"]


def test_no_recording_is_cut_off_inside_a_backward_pass(watched):
    watchdog, done = watched
    came: list[int] = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        watchdog.lines_ended()
        came.append(len(done))
        return x.sin()

    checkpoint(layer, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
    assert came == [1, 1]
    watchdog.lines_ended()
    assert len(done) == 2
