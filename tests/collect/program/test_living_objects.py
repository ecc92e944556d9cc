"""All objects of a type that are alive, found without disturbing a thread that is filling a tuple."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from profkit.collect.program import living as living_objects
from profkit.collect.program.living import living, walk_once


class Kind:
    pass


class Other:
    pass


class Derived(Kind):
    pass


class Twice(Derived):
    pass


def test_all_objects_of_a_type_and_its_subclasses_are_found_once():
    things = [Kind(), Derived(), Twice()]
    assert sorted(map(id, living(Kind))) == sorted(map(id, things))
    assert sorted(map(id, living(Twice, Derived))) == sorted(map(id, things[1:]))


def test_found_objects_die_without_the_garbage_collector():
    thing = Twice()
    is_alive = weakref.ref(thing)
    gc.disable()
    try:
        assert living(Twice) == [thing]
        del thing
        assert is_alive() is None
    finally:
        gc.enable()


def test_a_tuple_that_is_being_filled_is_not_held():
    """CPython checks its reference count when it has to grow, after ten elements."""

    def fill() -> Iterator[int]:
        for number in range(40):
            living(Kind)
            yield number

    assert tuple(fill()) == tuple(range(40))


def test_another_thread_can_go_on_filling_tuples():
    """With a Python loop over the garbage collector's list the thread would soon fail."""
    failures: list[BaseException] = []
    is_over = threading.Event()

    def fill() -> None:
        try:
            while not is_over.is_set():
                tuple(number for number in range(2000))
        except SystemError as failure:
            failures.append(failure)

    thread = threading.Thread(target=fill)
    thread.start()
    for _ in range(100):
        living(Kind)
    is_over.set()
    thread.join()
    assert failures == []


@pytest.fixture
def walks(monkeypatch):
    """An entry for each walk. It keeps no class, as that would be a reference to it."""
    walks: list[int] = []
    walk = living_objects._walk
    monkeypatch.setattr(living_objects, "_walk", lambda wanted: walks.append(len(wanted)) or walk(wanted))
    return walks


def made(kind: type[torch.optim.Optimizer] = torch.optim.SGD) -> torch.optim.Optimizer:
    return kind(nn.Linear(1, 1).parameters(), lr=0.1)


def test_optimizers_are_found_anew_only_once_there_may_be_more(walks):
    first = made()
    living(nn.Module)  # whatever is looked for, optimizers are remembered
    assert first in living(torch.optim.Optimizer)
    assert len(walks) == 1
    second = made()
    assert second in living(torch.optim.Optimizer)
    with walk_once(nn.Module, torch.optim.Optimizer):
        living(nn.Module)
    count = len(walks)
    assert {first, second} <= set(living(torch.optim.Optimizer))
    assert len(walks) == count


def test_an_optimizer_that_replaces_another_is_found(walks):
    first = made()
    living(torch.optim.Optimizer)
    gone = id(first)
    del first
    second = made()
    assert [one for one in living(torch.optim.Optimizer) if one is second]
    count = len(walks)
    del second
    assert gone not in map(id, living(torch.optim.Optimizer))
    assert len(walks) == count  # one that died needs no walk
    third = made()
    assert third in living(torch.optim.Optimizer)


def test_an_optimizer_of_a_new_class_is_found():
    living(torch.optim.Optimizer)

    class Own(torch.optim.SGD):
        pass

    own = made(Own)
    assert own in living(torch.optim.Optimizer)
    assert living(Own) == [own]


def test_what_is_asked_at_one_moment_is_answered_by_one_walk(walks):
    things = [Kind(), Derived()]
    with walk_once(Kind):
        assert sorted(map(id, living(Kind))) == sorted(map(id, things))
        assert living(Derived) == things[1:]
        assert len(walks) == 1
        assert living(Other) == []
        assert len(walks) == 2
    assert living(Derived) == things[1:]
    assert len(walks) == 3


def test_a_moment_that_is_over_holds_nothing():
    thing = Twice()
    is_alive = weakref.ref(thing)
    gc.disable()
    try:
        with walk_once(Kind):
            assert living(Twice) == [thing]
        del thing
        assert is_alive() is None
    finally:
        gc.enable()


def test_another_thread_walks_on_its_own():
    found: list[list[Kind]] = []
    with walk_once(Kind):
        living(Kind)
        thing = Kind()
        thread = threading.Thread(target=lambda: found.append(living(Kind)))
        thread.start()
        thread.join()
        assert living(Kind) == []
    assert found == [[thing]]
