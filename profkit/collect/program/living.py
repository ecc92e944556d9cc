"""Living objects by type, from the garbage collector's list.

Up to Python 3.13 ``tuple(iterator)`` fills its tuple in place, and fails with a SystemError if anything else holds that
tuple (python/cpython#59313). The collector's list holds every tuple, and another thread may be filling one. So the list
is made, searched and dropped within one call into C, during which no other thread runs.

A program that has imported torch has 300,000 objects, and a walk through them takes 60 ms. So what is asked at one
moment is answered by one walk (`walk_once`).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, compress, starmap
from typing import Any


@dataclass(slots=True)
class _Moment:
    """``found`` are all objects of the ``kinds``, once any were asked for."""

    kinds: frozenset[type]
    thread: int
    found: list[Any] | None = None


_moments: list[_Moment] = []


@contextmanager
def walk_once(*kinds: type) -> Iterator[None]:
    """Until this is left, `living` answers this thread from a single walk for all ``kinds``. No code of the program
    may run on it meanwhile: what that makes would be missed, and what it drops would live on."""
    _moments.append(moment := _Moment(_with_subclasses(kinds), threading.get_ident()))
    try:
        yield
    finally:
        _moments.remove(moment)


def living(*kinds: type) -> list[Any]:
    """All instances of the ``kinds`` and of their subclasses."""
    wanted = _with_subclasses(kinds)
    for moment in _moments:
        if moment.thread == threading.get_ident() and wanted <= moment.kinds:
            if moment.found is None:
                moment.found = _walk(moment.kinds)
            return [one for one in moment.found if type(one) in wanted]
    return _walk(wanted)


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
