"""Recordings of programs whose optimizers step in the backward pass: they begin and end outside of it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from profkit.collect.program.engine import in_backward_pass
from profkit.collect.recorder.profiler import profile
from profkit.run import load_run
from tests.collect.reading import read_events


def test_hooks_and_activations_computed_again_are_in_the_backward_pass() -> None:
    told: list[bool] = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        told.append(in_backward_pass())
        return x.sin()

    x = torch.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda _: told.append(in_backward_pass()))
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert told == [False, True, True]
    assert not in_backward_pass()


def test_optimizers_that_step_in_hooks_end_no_step_and_the_recording_lives(tmp_path: Path) -> None:
    model = nn.Linear(8, 8)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda ready: optimizers[ready].step())
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(6):
            model(torch.ones(4, 8)).sum().backward()
            recording.step()
    run = load_run(tmp_path)
    assert (run.step_signal, run.notes) == ("step()", ())
    assert "AddmmBackward0" in {event["name"] for event in read_events(tmp_path)}
