"""A census is bounded, runs no code of the program and keeps nothing alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from profkit.run.directory import LiveHolder
from tests.collect.census.counting import STORAGE_BYTES, count, one


def test_the_search_is_bounded():
    deep: Any = one()
    for _ in range(10):
        deep = [deep]
    wide = [[object() for _ in range(150)] for _ in range(400)]
    held = count()
    assert "deep" not in held
    assert "wide" not in held


def test_cycles_end_the_search():
    loop: list[Any] = [one()]
    loop.append(loop)
    assert count()["loop"].tensors == 1
    loop.clear()


class Nosy:
    """Fails if profkit runs any of its code."""

    def __init__(self) -> None:
        object.__setattr__(self, "kept", one())

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)

    def __bool__(self) -> bool:
        raise AssertionError

    def __hash__(self) -> int:
        raise AssertionError


class NosyDict(dict[str, Tensor]):
    def __iter__(self) -> Iterator[str]:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError

    def items(self) -> Any:
        raise AssertionError


def test_no_code_of_the_program_runs():
    nosy, mapping = Nosy(), NosyDict(loss=one())
    held = count()
    assert held["nosy.kept"].tensors == held["mapping['loss']"].tensors == 1
    assert (type(nosy), type(mapping)) == (Nosy, NosyDict)


class Logged(Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(function)


def test_a_tensor_subclass_is_counted_without_running_its_code():
    logged = one().as_subclass(Logged)
    assert count()["logged"].bytes == STORAGE_BYTES
    assert type(logged) is Logged


def test_a_sparse_tensor_is_counted_without_bytes():
    sparse = torch.eye(3).to_sparse()
    assert count()["sparse"].tensors == 1
    assert sparse.is_sparse


def look_at_and_drop_in_a_generator() -> Iterator[Any]:
    tensor = one()
    alive = weakref.ref(tensor)
    yield alive
    del tensor
    yield alive


def test_the_census_keeps_no_tensor_alive():
    tensor = one()
    alive = weakref.ref(tensor)
    assert "tensor" in count()
    del tensor
    assert alive() is None


def test_the_census_keeps_no_tensor_of_a_suspended_generator_alive():
    generator = look_at_and_drop_in_a_generator()
    alive = next(generator)
    assert "tensor" in count()
    next(generator)
    assert alive() is None


def test_a_dict_that_the_program_took_from_locals_is_unchanged():
    learning_rate = 0.1
    settings = locals()
    count()
    assert settings["learning_rate"] == learning_rate


def test_of_two_variables_with_one_name_the_outer_is_named_with_its_function():
    def inner() -> dict[str, LiveHolder]:
        kept = [one(), one()]
        assert kept
        return count()

    kept = [one()]
    held = inner()
    assert held["kept"].tensors == 2
    (outer,) = [path for path in held if path.endswith("<locals>.kept")]
    assert held[outer].tensors == len(kept)
