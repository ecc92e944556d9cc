"""Whether gradients wait for an optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import SGD

from profkit.collect.boundaries import accumulation
from profkit.collect.boundaries.accumulation import Accumulation


def make_optimizer(has_gradient: bool) -> SGD:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3) if has_gradient else None
    return SGD([parameter], lr=0.1)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[SGD]:
    """The optimizers of these tests, without those of others in this process."""
    mine: list[SGD] = []
    monkeypatch.setattr(accumulation, "living_optimizers", lambda: mine)
    return mine


def test_an_optimizer_is_found_while_it_lives() -> None:
    optimizer = make_optimizer(has_gradient=False)
    assert any(one is optimizer for one in accumulation.living_optimizers())


def test_gradients_that_stay_from_call_to_call_are_waited_for(alive: list[SGD]) -> None:
    alive.append(make_optimizer(has_gradient=True))
    waiting = Accumulation()
    assert [waiting.goes_on() for _ in range(3)] == [True, True, True]


def test_gradients_that_were_made_anew_are_of_a_step_that_ended(alive: list[SGD]) -> None:
    optimizer = make_optimizer(has_gradient=True)
    alive.append(optimizer)
    waiting = Accumulation()
    assert waiting.goes_on()
    for _ in range(3):
        optimizer.zero_grad()
        optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
        assert not waiting.goes_on()


def test_no_gradient_is_kept_alive(alive: list[SGD]) -> None:
    optimizer = make_optimizer(has_gradient=True)
    alive.append(optimizer)
    waiting = Accumulation()
    waiting.goes_on()
    seen = StorageWeakRef(optimizer.param_groups[0]["params"][0].grad.untyped_storage())
    optimizer.zero_grad()
    assert seen.expired()


def test_without_gradients_nothing_is_waited_for(alive: list[SGD]) -> None:
    alive.append(make_optimizer(has_gradient=False))
    waiting = Accumulation()
    assert [waiting.goes_on() for _ in range(2)] == [False, False]


def test_sparse_gradients_are_passed_by(alive: list[SGD]) -> None:
    sparse, dense = nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1)
    dense(sparse(torch.tensor([1]))).sum().backward()
    alive.append(SGD([*sparse.parameters(), *dense.parameters()], lr=0.1))
    waiting = Accumulation()
    assert [waiting.goes_on() for _ in range(2)] == [True, True]


def test_an_optimizer_that_is_being_made_holds_none(alive: list[SGD]) -> None:
    alive.append(SGD.__new__(SGD))
    waiting = Accumulation()
    assert [waiting.goes_on() for _ in range(2)] == [False, False]


def test_an_optimizer_that_is_gone_is_not_waited_for(alive: list[SGD]) -> None:
    alive.append(make_optimizer(has_gradient=True))
    waiting = Accumulation()
    assert [waiting.goes_on() for _ in range(2)] == [True, True]
    alive.clear()
    assert not waiting.goes_on()


def test_an_optimizer_that_comes_later_is_looked_for_a_few_times(alive: list[SGD]) -> None:
    waiting, too_late = Accumulation(), Accumulation()
    assert not waiting.goes_on()
    for _ in range(accumulation._MOST_LOOKS):
        assert not too_late.goes_on()
    alive.append(make_optimizer(has_gradient=True))
    assert [waiting.goes_on() for _ in range(2)] == [True, True]
    assert [too_late.goes_on() for _ in range(2)] == [False, False]


def test_patience_ends(alive: list[SGD], monkeypatch: pytest.MonkeyPatch) -> None:
    alive.append(make_optimizer(has_gradient=True))
    waiting = Accumulation()
    now = 100.0
    monkeypatch.setattr(accumulation.time, "monotonic", lambda: now)
    waiting.goes_on()
    now += accumulation.PATIENCE_S
    assert waiting.goes_on()
    now += 0.1
    assert not waiting.goes_on()
