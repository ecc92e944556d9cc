"""The objects that are alive, by type, from the garbage collector's list.

``tuple(iterator)`` fills its tuple in place, up to Python 3.13, and fails with a SystemError where anything else holds
that tuple meanwhile (python/cpython#59313). The collector's list holds every tuple, and a thread of the program may be
filling one. So the list is made, searched and dropped within one call into C, in which no other thread runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, compress, starmap
from typing import Any


def living(*kinds: type) -> list[Any]:
    """All that are of one of the ``kinds``, or of a class derived from one."""
    wanted = set(kinds)
    found = list(kinds)
    while found:
        more: set[type] = set(type.__subclasses__(found.pop())) - wanted
        wanted |= more
        found += more
    everything: list[Any] = []
    fill: Iterator[Any] = filter(None, map(everything.extend, starmap(gc.get_objects, [()])))
    search = compress(everything, map(wanted.__contains__, map(type, everything)))
    drop: Iterator[Any] = filter(None, starmap(everything.clear, [()]))
    return list(chain(fill, search, drop))  # none of the three does anything before; the first and last yield nothing
