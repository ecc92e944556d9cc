"""A function that the program has put in place of one of PyTorch's runs once for each of the program's calls."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from profkit.collect.tensors.recomputation import CallWatch


def counted(holder: Any, name: str, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls of a function of PyTorch's by a function in its place."""
    original, calls = getattr(holder, name), Counter[str]()

    @functools.wraps(original)
    def count(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return original(*given, **named)

    patch.setattr(holder, name, count)
    return calls


def while_watched(call: Callable[[], object]) -> object:
    watch = CallWatch()
    watch.begin()
    assert watch.is_installed
    try:
        return call()
    finally:
        watch.stop()


def gradient_of(weight: Tensor, **options: Any) -> Tensor:
    weight.grad = None
    weight.square().sum().backward(**options)
    assert weight.grad is not None
    return weight.grad


def test_a_patched_backward_runs_once(monkeypatch):
    weight = torch.ones(3, requires_grad=True)
    calls = counted(torch.Tensor, "backward", monkeypatch)
    found = while_watched(lambda: gradient_of(weight, retain_graph=True))
    assert isinstance(found, Tensor)
    assert found.tolist() == [2, 2, 2]
    assert calls == {"backward": 1}


def test_a_patched_function_with_defaults_runs_once_with_the_same_result(monkeypatch):
    x = torch.arange(4.0)
    expected = functional.softmax(x, dim=0, dtype=torch.float64)
    calls = counted(functional, "softmax", monkeypatch)
    found = while_watched(lambda: functional.softmax(x, 0, dtype=torch.float64))
    assert isinstance(found, Tensor)
    assert torch.equal(found, expected)
    assert calls == {"softmax": 1}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sum", lambda x: x.sum()),
        ("mul", lambda x: x.mul(6).sum() - 12),
        ("__mul__", lambda x: (x * 6).sum() - 12),
        ("item", lambda x: x.sum().item()),
        ("detach", lambda x: x.detach().sum()),
    ],
)
def test_a_patched_method_in_c_runs_once(name, call, monkeypatch):
    calls = counted(torch.Tensor, name, monkeypatch)
    assert while_watched(lambda: call(torch.full((3,), 2.0 if "mul" not in name else 1.0))) == 6
    assert calls == {name: 1}


def test_an_operator_does_not_call_what_the_program_put_in_place_of_the_method(monkeypatch):
    calls = counted(torch.Tensor, "mul", monkeypatch)
    assert while_watched(lambda: (torch.ones(3) * 2).sum()) == 6
    assert not calls


def test_the_random_state_is_read_past_what_the_program_patched(monkeypatch):
    calls = counted(torch.Tensor, "data_ptr", monkeypatch)
    while_watched(lambda: [torch.ones(3).exp() for _ in range(3)])
    assert not calls


def made_with(factor: int) -> Callable[..., Tensor]:
    def scaled(x: Tensor, extra: int = 1, *, shift: int = 2) -> Tensor:
        """Like PyTorch's own Python functions, and with a variable from outside."""
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(PUBLIC["scaled"], (x,), x)
        return x * factor + extra + shift

    return scaled


PUBLIC: dict[str, Callable[..., Tensor]] = {}


def test_variables_from_outside_and_left_out_arguments_are_those_of_the_call():
    original = made_with(10)
    PUBLIC["scaled"] = lambda *given, **named: original(*given, **named)
    found = while_watched(lambda: PUBLIC["scaled"](torch.ones(1), 5, shift=7))
    assert isinstance(found, Tensor)
    assert found.item() == 22


def test_an_unpatched_function_is_called_by_its_name(monkeypatch):
    PUBLIC["scaled"] = made_with(10)
    monkeypatch.setattr("profkit.collect.tensors.askers._function_of", lambda frame: pytest.fail("another was made"))
    found = while_watched(lambda: (PUBLIC["scaled"](torch.ones(1)), functional.softmax(torch.ones(2), 0)))
    assert isinstance(found, tuple)
    assert found[0].item() == 13
