"""Calls of the model between two updates by hand, and programs that look alike."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from profkit.collect.boundaries import hand_updates
from profkit.collect.boundaries.forwards import ForwardCalls
from profkit.collect.boundaries.hand_updates import HandUpdates
from profkit.collect.program.guard import Guard


@pytest.fixture(autouse=True)
def optimizers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Those alive; other tests may have left some."""
    alive: list[object] = []
    monkeypatch.setattr(hand_updates, "has_living_optimizer", lambda: bool(alive))
    return alive


def calls_that_count(
    updates,
    differentiates: bool = True,
    examples: int = 4,
    steps: int = 3,
    is_training: bool = True,
    chose: bool = False,
) -> list[int]:
    """The numbers of the calls that end a step, where ``updates(weights)`` comes after so many examples."""
    model, counted, calls = nn.Linear(3, 1).train(is_training), list[int](), 0
    watch = HandUpdates(chose=chose)
    forwards = ForwardCalls(lambda: counted.append(calls), Guard(lambda error: pytest.fail(str(error))), watch)
    watch.install()
    forwards.install()
    try:
        for _ in range(steps):
            for _ in range(examples):
                loss = model(torch.ones(1, 3)).sum()
                if differentiates:
                    torch.autograd.grad(loss, list(model.parameters()))
                calls += 1
            with torch.no_grad():
                updates(model.weight)
    finally:
        forwards.remove()
        watch.remove()
    return counted


def test_calls_between_two_updates_are_one_step():
    """The first two calls come before the weights are known."""
    assert calls_that_count(lambda weight: weight.sub_(0.1)) == [0, 1, 4, 8]


@pytest.mark.parametrize("update", [lambda weight: weight.data.sub_(0.1), lambda weight: weight.data.mul_(0.9)])
def test_an_update_of_the_data_is_seen_by_its_numbers(update):
    """The version of the weights stays as it was."""
    assert calls_that_count(update) == [0, 1, 4, 8]


def test_data_that_is_replaced_is_seen():
    def replace(weight):
        weight.data = weight.data - 0.1

    assert calls_that_count(replace) == [0, 1, 4, 8]


def test_weights_that_are_only_read_are_not_updated():
    """An attack on a model, whose author looks at its weights by ``.data``."""
    assert calls_that_count(lambda weight: weight.data.sum()) == [0, 1]


def test_weights_without_memory_on_the_host_tell_nothing():
    assert hand_updates._numbers_of(torch.ones(3, device="meta")) == b""
    assert hand_updates._numbers_of(torch.ones(4, 4).t()[::2]) == b""
    assert hand_updates._numbers_of(None) == b""


def replace_the_data(weight: torch.Tensor) -> None:
    weight.data = weight.data + torch.randn_like(weight)


@pytest.mark.parametrize("update", [lambda weight: weight.sub_(0.1), replace_the_data])
def test_updates_without_a_gradient_are_seen_too(update):
    """An evolution: each member plays with weights of its own."""
    assert calls_that_count(update, differentiates=False) == [0, 4, 8]


def test_calls_of_a_model_that_only_infers_are_steps_at_once():
    """Checkpoints that are compared: each gives the model other weights."""
    update = replace_the_data
    assert calls_that_count(update, differentiates=False, is_training=False) == list(range(12))


def test_calls_that_the_user_chose_are_steps_at_once():
    assert calls_that_count(replace_the_data, differentiates=False, chose=True) == list(range(12))


def test_calls_of_a_model_with_an_optimizer_are_steps_until_that_steps(optimizers):
    optimizers.append("Adam")
    assert calls_that_count(replace_the_data, differentiates=False) == list(range(12))


@pytest.mark.parametrize("patience_s", [0.0, 60.0])
def test_in_training_mode_calls_are_steps_once_no_update_has_come(monkeypatch, patience_s):
    monkeypatch.setattr(hand_updates, "_UNKNOWN_S", patience_s)
    expected = [0] if patience_s else list(range(12))
    assert calls_that_count(lambda _: None, differentiates=False) == expected


def test_after_an_update_the_next_may_take_longer(monkeypatch):
    """The first game is short, later ones are not."""
    monkeypatch.setattr(hand_updates, "_PATIENCE_S", 60.0)
    waited: list[float] = []
    make = hand_updates.Patience
    monkeypatch.setattr(hand_updates, "Patience", lambda within_s: waited.append(within_s) or make(within_s))
    calls_that_count(lambda weight: weight.sub_(0.1), differentiates=False)
    assert waited == [hand_updates._UNKNOWN_S, 60.0, 60.0]


def test_a_gradient_that_comes_late_is_waited_for(monkeypatch):
    monkeypatch.setattr(hand_updates, "_UNKNOWN_S", 0.0)
    model, watch = nn.Linear(3, 1), HandUpdates()
    assert [watch.go_on(model) for _ in range(3)] == [False] * 3
    watch._note_lookup()
    assert [watch.go_on(model) for _ in range(3)] == [False, True, True]


def test_without_an_update_calls_are_steps_after_a_while(monkeypatch):
    """An attack changes its inputs, not the weights."""
    monkeypatch.setattr(hand_updates, "_PATIENCE_S", 0.0)
    assert calls_that_count(lambda _: None) == list(range(12))


def test_weights_given_to_functional_call_are_looked_at():
    model, counted = nn.Linear(3, 1), list[int]()
    watch = HandUpdates()
    forwards = ForwardCalls(lambda: counted.append(1), Guard(lambda error: pytest.fail(str(error))), watch)
    watch.install()
    forwards.install()
    weights = {name: one.detach().clone().requires_grad_() for name, one in model.named_parameters()}
    try:
        for _ in range(3):
            for _ in range(4):
                loss = torch.func.functional_call(model, weights, (torch.ones(1, 3),)).sum()
                grads = torch.autograd.grad(loss, list(weights.values()))
            weights = {
                name: (one - 0.1 * g).detach().requires_grad_()
                for (name, one), g in zip(weights.items(), grads, strict=True)
            }
    finally:
        forwards.remove()
        watch.remove()
    assert len(counted) == 4


def test_nothing_is_left_of_it():
    before, grad = type(torch.autograd), torch.autograd.grad
    watch = HandUpdates()
    watch.install()
    assert torch.autograd.grad is grad
    watch.remove()
    assert type(torch.autograd) is before
    assert torch.autograd.grad is grad
