"""Code whose multiplications must be located: each line that runs one ends in ``# here``, or ``# here x 2`` for two."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

A, B = torch.rand(8), torch.rand(8)


def in_nested_functions() -> Tensor:
    def inner(a: Tensor) -> Tensor:
        return a * B  # here

    result = inner(A)
    return result + 1


class Doubling(nn.Module):
    def forward(self, a: Tensor) -> Tensor:
        b = a + 1
        return a * b  # here


def in_a_module() -> Tensor:
    return nn.Sequential(Doubling(), nn.Identity())(A)


def in_a_comprehension() -> list[Tensor]:
    scale = 3
    return [a * scale for a in (A, B)]  # here x 2


def in_a_call_over_several_lines() -> Tensor:
    return torch.add(
        A,
        A * B,  # here
        alpha=2,
    )


def in_a_lambda() -> Tensor:
    times = lambda a: a * B  # noqa: E731  # here
    return times(A)


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@plainly
def in_a_decorated_function() -> Tensor:
    return A * B  # here


def produce() -> Iterator[Tensor]:
    for _ in range(2):
        doubled = A * 2  # here x 2
        received = yield doubled
        del received


def in_a_generator() -> Tensor:
    total = torch.zeros(8)
    for value in produce():
        total = total + value
    return total


def send_into() -> Iterator[Tensor]:
    yield (yield A) * 2  # here


def on_the_line_that_resumed() -> Tensor:
    generator = send_into()
    next(generator)
    return generator.send(A)


def fail() -> Tensor:
    raise ValueError


def after_an_exception_was_caught() -> Tensor:
    try:
        fail()
    except ValueError:
        pass
    return A * B  # here


def in_a_recursion(depth: int = 3) -> Tensor:
    if depth == 0:
        return A * B  # here
    return in_a_recursion(depth - 1) + 1


def in_a_loop_of_one_line() -> Tensor:
    a = A
    for _ in range(2):
        a = a * B  # here x 2
    return a


async def wait_for_it() -> Tensor:
    return A * B  # here


def in_a_coroutine() -> Tensor:
    try:
        wait_for_it().send(None)
    except StopIteration as result:
        return result.value
    raise AssertionError


LOCATED = (
    in_nested_functions,
    in_a_module,
    in_a_comprehension,
    in_a_call_over_several_lines,
    in_a_lambda,
    in_a_decorated_function,
    in_a_generator,
    on_the_line_that_resumed,
    after_an_exception_was_caught,
    in_a_recursion,
    in_a_loop_of_one_line,
    in_a_coroutine,
)
ELSEWHERE = {
    "in_a_module": Doubling.forward,
    "in_a_generator": produce,
    "on_the_line_that_resumed": send_into,
    "in_a_coroutine": wait_for_it,
}
"""Where the multiplications of a function are, when not in itself."""
