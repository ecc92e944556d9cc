"""What profkit computes inside a program goes past the program's modes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from profkit.collect.program.guard import Guard


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        self.seen.append(function.__name__)
        return function(*given, **(named or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*given, **(named or {}))


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        raise AssertionError(function)


def test_modes_and_subclasses_of_the_program_see_nothing_of_it():
    results: list[float] = []
    guard = Guard(lambda error: pytest.fail(repr(error)))
    with Functions() as functions, Operators() as operators:
        guard(lambda: results.append(float(torch.ones(2).as_subclass(Own).add(1).sum())))
        assert (results, functions.seen, operators.seen) == ([4.0], [], [])
        torch.ones(2)
    assert (functions.seen, operators.seen) == (["ones"], ["aten.ones.default"])


def test_an_error_leaves_the_modes_on():
    errors: list[BaseException] = []
    with Functions() as functions, Operators() as operators:
        Guard(errors.append)(lambda: torch.ones(2).reshape(3))
        torch.ones(2)
    assert [type(error) for error in errors] == [RuntimeError]
    assert (functions.seen, operators.seen) == (["ones"], ["aten.ones.default"])
