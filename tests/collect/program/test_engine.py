"""Recordings of programs whose optimizers step in the backward pass: they begin and end outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from profkit.collect.program.engine import in_backward_pass, node_of
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


def parts_of_a_base_written_to() -> tuple[torch.Tensor, ...]:
    """As FSDP's parameters, which are views of one flat tensor."""
    base = torch.ones(4, requires_grad=True) * 1
    parts = base.split(2)
    base.mul_(2)
    return parts


def test_a_view_that_cannot_tell_its_node_has_none() -> None:
    (part, _) = parts_of_a_base_written_to()
    with pytest.raises(RuntimeError, match="modified inplace"):
        part.grad_fn  # noqa: B018  # it is the access that raises
    assert node_of(part) is None
    assert node_of(torch.ones(2, requires_grad=True) * 1) is not None


def test_names_of_such_views_end_no_recording(tmp_path: Path) -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(6):
            model.kept = parts_of_a_base_written_to()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            recording.step()
    assert load_run(tmp_path).notes == ()
    assert "AddmmBackward0" in {event["name"] for event in read_events(tmp_path)}
