"""When a recording is cut off: whenever it is asked for, but never inside a backward pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from profkit.collect.program.guard import Guard
from profkit.collect.recorder.watchdog import Watchdog


def fail(error: BaseException) -> None:
    raise error


@pytest.fixture
def watched() -> tuple[Any, list[str]]:
    """The tracer that a watchdog listens to, and what was cut off."""
    tracer, done = SimpleNamespace(on_end=None), list[str]()
    parts = lambda: True, lambda: done.append("cut off"), lambda: False, lambda: done.append("moved on")
    Watchdog(SimpleNamespace(), SimpleNamespace(), tracer, Guard(fail), *parts)  # type: ignore[arg-type]
    return tracer, done


def test_the_tracers_end_cuts_the_recording_off(watched: tuple[Any, list[str]]) -> None:
    tracer, done = watched
    tracer.on_end()
    assert done == ["cut off"]


def test_in_a_backward_pass_that_computes_activations_again_it_is_not(watched: tuple[Any, list[str]]) -> None:
    tracer, done = watched
    came: list[int] = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        tracer.on_end()
        came.append(len(done))
        return x.sin()

    checkpoint(layer, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
    assert came == [1, 1]
    tracer.on_end()
    assert len(done) == 2
