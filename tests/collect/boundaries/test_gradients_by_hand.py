"""Gradients of programs without a model, an optimizer or a call of `backward`, and of those that have one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from tests.collect.boundaries.listening import Listener

BACKWARD = "backward"


def gradient(point: Tensor) -> Tensor:
    point = point.detach().requires_grad_()
    (found,) = torch.autograd.grad((point**2).sum(), point)
    return found


def ends(work: Callable[[], object], *, is_full: bool = True, times: int = 5, chosen: str | None = None) -> Listener:
    """The prologue is full, so that the listener accepts weaker signals; then this work is done several times."""
    listener = Listener(chosen)
    with listener.on() as signals:
        if is_full:
            signals.listen_to_forwards()
        for _ in range(times):
            work()
    assert listener.errors == []
    return listener


def test_a_samplers_gradients_end_steps():
    listener = ends(lambda: gradient(torch.ones(3)))
    assert (listener.name, len(listener.ends)) == (BACKWARD, 4)  # the first only begins one


def test_so_do_those_of_a_function_that_is_differentiated_as_a_whole():
    listener = ends(lambda: torch.func.grad(lambda x: (x**2).sum())(torch.ones(3)))
    assert listener.name == BACKWARD
    assert len(listener.ends) >= 4


def test_before_the_prologue_is_full_they_do_not():
    assert ends(lambda: gradient(torch.ones(3)), is_full=False).ends == []


def test_a_later_window_of_such_steps_hears_them():
    assert len(ends(lambda: gradient(torch.ones(3)), is_full=False, chosen=BACKWARD).ends) == 4


def test_where_a_model_is_called_its_calls_are_steps():
    model = nn.Linear(3, 1)

    def attack() -> None:
        given = torch.ones(3, requires_grad=True)
        torch.autograd.grad(model(given).sum(), given)
        model.weight.data.add_(0.1)

    assert ends(attack).name == "forward"


def test_where_backward_is_called_its_passes_are_steps():
    def penalised() -> None:
        point = torch.ones(3, requires_grad=True)
        (slope,) = torch.autograd.grad((point**2).sum(), point, create_graph=True)
        slope.sum().backward()

    listener = ends(penalised)
    assert listener.name == BACKWARD
    assert len(listener.ends) <= 5


@pytest.mark.parametrize("times", [5])
def test_an_optimizer_says_more(times):
    weight = nn.Parameter(torch.ones(3))
    optimizer = SGD([weight], lr=0.1)
    listener = ends(lambda: gradient(torch.ones(3)), times=times)
    assert listener.ends == []
    del optimizer
