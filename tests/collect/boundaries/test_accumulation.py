"""Whether gradients are still being accumulated for an optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import SGD

from profkit.collect.boundaries import accumulation
from profkit.collect.boundaries.accumulation import Accumulation
from profkit.collect.machine import patience


def make_optimizer(has_gradient: bool) -> SGD:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3) if has_gradient else None
    return SGD([parameter], lr=0.1)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[SGD]:
    """The optimizers of this test, without those that other tests left in this process."""
    mine: list[SGD] = []
    monkeypatch.setattr(accumulation, "living", lambda _: mine)
    return mine


def test_a_living_optimizer_is_found():
    found = [make_optimizer(has_gradient=False), accumulation.has_living_optimizer()]
    assert found[1]


def test_gradients_that_stay_across_calls_are_accumulating(alive):
    alive.append(make_optimizer(has_gradient=True))
    accumulating = Accumulation()
    assert [accumulating.goes_on() for _ in range(3)] == [True] * 3
    alive.clear()
    assert not accumulating.goes_on(), "nor do those of an optimizer that is gone"


def test_new_gradients_show_that_a_step_ended(alive):
    optimizer = make_optimizer(has_gradient=True)
    alive.append(optimizer)
    accumulating = Accumulation()
    assert accumulating.goes_on()
    for _ in range(3):
        optimizer.zero_grad()
        optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
        assert not accumulating.goes_on()


def test_no_gradient_is_kept_alive(alive):
    optimizer = make_optimizer(has_gradient=True)
    alive.append(optimizer)
    accumulating = Accumulation()
    accumulating.goes_on()
    seen = StorageWeakRef(optimizer.param_groups[0]["params"][0].grad.untyped_storage())
    optimizer.zero_grad()
    assert seen.expired()


@pytest.mark.parametrize(
    "make", [lambda: make_optimizer(has_gradient=False), lambda: SGD.__new__(SGD)], ids=["no gradients", "half made"]
)
def test_nothing_accumulates_for_an_optimizer_that_has_no_gradients_or_is_half_made(make, alive):
    alive.append(make())
    accumulating = Accumulation()
    assert [accumulating.goes_on() for _ in range(2)] == [False, False]


def test_sparse_gradients_are_ignored(alive):
    sparse, dense = nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1)
    dense(sparse(torch.tensor([1]))).sum().backward()
    alive.append(SGD([*sparse.parameters(), *dense.parameters()], lr=0.1))
    accumulating = Accumulation()
    assert [accumulating.goes_on() for _ in range(2)] == [True, True]


def test_an_optimizer_made_later_is_looked_for_only_a_few_times(alive):
    in_time, too_late = Accumulation(), Accumulation()
    assert not in_time.goes_on()
    for _ in range(accumulation._MOST_LOOKS):
        assert not too_late.goes_on()
    alive.append(make_optimizer(has_gradient=True))
    assert [in_time.goes_on() for _ in range(2)] == [True, True]
    assert [too_late.goes_on() for _ in range(2)] == [False, False]


def test_accumulation_is_believed_for_a_limited_time(alive, monkeypatch):
    alive.append(make_optimizer(has_gradient=True))
    accumulating = Accumulation()
    now = 100.0
    monkeypatch.setattr(patience.time, "monotonic", lambda: now)
    accumulating.goes_on()
    now += accumulation.PATIENCE_S
    assert accumulating.goes_on()
    now += 0.1
    assert not accumulating.goes_on()
