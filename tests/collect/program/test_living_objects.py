"""All objects of a type that are alive, found without disturbing a thread that is filling a tuple."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

from profkit.collect.program.living import living


class Kind:
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
