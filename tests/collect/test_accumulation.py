"""Whether gradients wait for an optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD

from profkit.collect import accumulation
from profkit.collect.accumulation import Accumulation


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


def test_gradients_that_an_optimizer_will_take_are_waited_for(alive: list[SGD]) -> None:
    alive.append(make_optimizer(has_gradient=True))
    assert Accumulation().goes_on()


def test_without_gradients_nothing_is_waited_for(alive: list[SGD]) -> None:
    alive.append(make_optimizer(has_gradient=False))
    assert not Accumulation().goes_on()


def test_an_optimizer_that_is_being_made_holds_none(alive: list[SGD]) -> None:
    alive.append(SGD.__new__(SGD))
    assert not Accumulation().goes_on()


def test_an_optimizer_that_is_gone_is_not_waited_for(alive: list[SGD]) -> None:
    alive.append(make_optimizer(has_gradient=True))
    waiting = Accumulation()
    assert waiting.goes_on()
    alive.clear()
    assert not waiting.goes_on()


def test_an_optimizer_that_comes_later_is_looked_for_a_few_times(alive: list[SGD]) -> None:
    waiting, too_late = Accumulation(), Accumulation()
    assert not waiting.goes_on()
    for _ in range(accumulation._MOST_LOOKS):
        assert not too_late.goes_on()
    alive.append(make_optimizer(has_gradient=True))
    assert waiting.goes_on()
    assert not too_late.goes_on()


def test_patience_ends(alive: list[SGD], monkeypatch: pytest.MonkeyPatch) -> None:
    alive.append(make_optimizer(has_gradient=True))
    waiting = Accumulation()
    now = 100.0
    monkeypatch.setattr(accumulation.time, "monotonic", lambda: now)
    assert waiting.goes_on()
    now += accumulation.PATIENCE_S
    assert waiting.goes_on()
    now += 0.1
    assert not waiting.goes_on()
