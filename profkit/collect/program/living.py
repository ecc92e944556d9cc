"""Living objects by type, from the garbage collector's list.

Up to Python 3.13 ``tuple(iterator)`` fills its tuple in place, and fails with a SystemError if anything else holds that
tuple (python/cpython#59313). The collector's list holds every tuple, and another thread may be filling one. So the list
is made, searched and dropped within one call into C, during which no other thread runs.

A program that has imported torch has 300,000 objects, and a walk through them takes 60 ms. So what is asked at one
moment is answered by one walk (`walk_once`), and each walk remembers the optimizers. An instance refers to its class,
so a class with no more references than before has no new instance.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, compress, starmap
from typing import Any

from torch.optim.optimizer import Optimizer

_OFTEN: tuple[type, ...] = (Optimizer,)
"""What is asked for often: classes with few instances, each of a subclass, that can be referred to weakly."""


def _references() -> dict[int, int]:
    """How many there are to each subclass of `_OFTEN`, by its identity. No collection of classes is left behind or may
    be held meanwhile, as it would count."""
    return {id(kind): sys.getrefcount(kind) for kind in _with_subclasses(_OFTEN).difference(_OFTEN)}


@dataclass(slots=True)
class _Moment:
    """``found`` are all objects of the ``kinds``, once any were asked for."""

    kinds: frozenset[type]
    thread: int
    references: dict[int, int]
    found: list[Any] | None = None


_moments: list[_Moment] = []


@dataclass(slots=True)
class _Memory:
    """What the last walk found of `_OFTEN`, and the other references to their classes; none before the first."""

    found: list[weakref.ref[Any]] = field(default_factory=list)
    others: Counter[int] | None = None

    def keep(self, found: list[Any], references: dict[int, int]) -> None:
        self.found = [weakref.ref(one) for one in found]
        self.others = _other_references(found, references)

    def recall(self, references: dict[int, int]) -> list[Any] | None:
        """Those that are still alive; None if there may be new ones."""
        found = [one for known in self.found if (one := known()) is not None]
        return found if self.others == _other_references(found, references) else None


_memory = _Memory()


def _other_references(instances: list[Any], references: dict[int, int]) -> Counter[int]:
    others = Counter(references)
    others.subtract(id(type(one)) for one in instances)
    return others


@contextmanager
def walk_once(*kinds: type) -> Iterator[None]:
    """Until this is left, `living` answers this thread from a single walk for all ``kinds``. No code of the program
    may run on it meanwhile: what that makes would be missed, and what it drops would live on."""
    references = _references()
    _moments.append(moment := _Moment(_with_subclasses(kinds), threading.get_ident(), references))
    try:
        yield
    finally:
        _moments.remove(moment)


def living(*kinds: type) -> list[Any]:
    """All instances of the ``kinds`` and of their subclasses."""
    references = _references()
    known = _memory.recall(references) if set(kinds) <= set(_OFTEN) else None
    if known is not None:
        return [one for one in known if isinstance(one, kinds)]
    wanted = _with_subclasses(kinds)
    for moment in _moments:
        if moment.thread == threading.get_ident() and wanted <= moment.kinds:
            if moment.found is None:
                moment.found = _look(moment.kinds, moment.references)
            return [one for one in moment.found if type(one) in wanted]
    return _look(wanted, references)


def _look(wanted: frozenset[type], references: dict[int, int]) -> list[Any]:
    """All objects of exactly these types; remembers `_OFTEN`, to which there were so many ``references`` before."""
    often = _with_subclasses(_OFTEN)
    everything = _walk(wanted | often)
    _memory.keep([one for one in everything if type(one) in often], references)
    return [one for one in everything if type(one) in wanted]


def _with_subclasses(kinds: tuple[type, ...]) -> frozenset[type]:
    wanted = set(kinds)
    found = list(kinds)
    while found:
        more: set[type] = set(type.__subclasses__(found.pop())) - wanted
        wanted |= more
        found += more
    return frozenset(wanted)


def _walk(wanted: frozenset[type]) -> list[Any]:
    """All objects of exactly these types."""
    everything: list[Any] = []
    fill: Iterator[Any] = filter(None, map(everything.extend, starmap(gc.get_objects, [()])))
    search = compress(everything, map(wanted.__contains__, map(type, everything)))
    drop: Iterator[Any] = filter(None, starmap(everything.clear, [()]))
    return list(chain(fill, search, drop))  # runs all three; the first and last yield nothing
