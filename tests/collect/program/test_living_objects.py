"""All objects of a type that are alive, found without disturbing a thread that is filling a tuple."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

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


def test_what_is_asked_at_one_moment_is_answered_by_one_walk(monkeypatch):
    walks = []
    walk = living_objects._walk
    monkeypatch.setattr(living_objects, "_walk", lambda wanted: walks.append(wanted) or walk(wanted))
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
