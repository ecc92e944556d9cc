"""Another optimizer takes over while steps are recorded: its steps are recorded instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.optim import SGD, Adam

from profkit.collect.recorder.profiler import _SUCCEEDED, profile
from profkit.run.directory import load_run
from tests.collect.reading import read_events, steps_of


def make(kind: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    return kind([torch.nn.Parameter(torch.ones(4))], lr=0.1)


def train(optimizer: torch.optim.Optimizer, steps: int) -> None:
    (parameter,) = optimizer.param_groups[0]["params"]
    for _ in range(steps):
        optimizer.zero_grad()
        (parameter * 2).sum().backward()
        optimizer.step()


def optimizers_in(directory: Path) -> set[str]:
    names = {event["name"] for event in read_events(directory)}
    return {kind for kind in ("SGD", "Adam") if f"Optimizer.step#{kind}.step" in names}


@pytest.mark.parametrize("before", [1, 3, 5, 7], ids=["first", "before", "amid", "almost"])
def test_the_steps_of_an_optimizer_that_comes_in_place_of_another_are_recorded(tmp_path, before):
    """Eight steps are planned: the first, one before the located one, that one, one behind it, and four to measure."""
    with profile(tmp_path, wait=2, warmup=1, active=4):
        train(make(SGD), before)
        train(make(Adam), 20)
    run = load_run(tmp_path)
    assert optimizers_in(tmp_path) == {"Adam"}
    assert len(steps_of(read_events(tmp_path))) == 5
    assert (_SUCCEEDED in run.notes) == (before > 2)
    assert [use.name for use in run.optimizers] == ["Adam"]


def test_an_optimizer_that_stays_but_steps_no_more_is_succeeded_after_thirty_steps_of_another(tmp_path):
    kept = make(SGD)
    with profile(tmp_path, wait=2, warmup=1, active=4):
        train(kept, 5)
        train(make(Adam), 29 + 20)
    assert optimizers_in(tmp_path) == {"Adam"}


def test_a_complete_recording_of_the_first_part_stays(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=4):
        train(make(SGD), 10)
        train(make(Adam), 20)
    assert optimizers_in(tmp_path) == {"SGD"}
    assert _SUCCEEDED not in load_run(tmp_path).notes


@pytest.mark.parametrize("critics", [1, 5, 29])
def test_optimizers_that_take_turns_are_no_successors(tmp_path, critics):
    generator, critic = make(SGD), make(Adam)
    with profile(tmp_path, wait=2, warmup=1, active=4):
        for _ in range(12):
            train(generator, 1)
            train(critic, critics)
    run = load_run(tmp_path)
    assert optimizers_in(tmp_path) == {"SGD", "Adam"}
    assert len(steps_of(read_events(tmp_path))) == 5
    assert run.notes == ()


def test_a_program_that_makes_an_optimizer_for_each_of_many_short_parts_is_recorded_all_the_same(tmp_path):
    with profile(tmp_path, wait=2, warmup=1, active=4):
        for _ in range(12):
            train(make(SGD), 4)
    assert len(steps_of(read_events(tmp_path))) == 5
