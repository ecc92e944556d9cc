"""What is alive is told, and whoever fills a tuple meanwhile goes on."""

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


def test_all_of_a_type_and_of_those_derived_from_it_are_told_once() -> None:
    things = [Kind(), Derived(), Twice()]
    assert sorted(map(id, living(Kind))) == sorted(map(id, things))
    assert sorted(map(id, living(Twice, Derived))) == sorted(map(id, things[1:]))


def test_what_was_told_dies_without_the_garbage_collector() -> None:
    thing = Twice()
    is_alive = weakref.ref(thing)
    gc.disable()
    try:
        assert living(Twice) == [thing]
        del thing
        assert is_alive() is None
    finally:
        gc.enable()


def test_a_tuple_that_is_being_filled_is_held_by_nothing_afterwards() -> None:
    """CPython looks at its reference count when it has to grow, behind the tenth."""

    def fill() -> Iterator[int]:
        for number in range(40):
            living(Kind)
            yield number

    assert tuple(fill()) == tuple(range(40))


def test_a_thread_that_fills_tuples_meanwhile_goes_on() -> None:
    """With a loop in Python over the collector's list the thread fails within a few looks."""
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
