"""Living objects by type, from the garbage collector's list.

Up to Python 3.13 ``tuple(iterator)`` fills its tuple in place, and fails with a SystemError if anything else holds that
tuple (python/cpython#59313). The collector's list holds every tuple, and another thread may be filling one. So the list
is made, searched and dropped within one call into C, during which no other thread runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, compress, starmap
from typing import Any


def living(*kinds: type) -> list[Any]:
    """All instances of the ``kinds`` and of their subclasses."""
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
    return list(chain(fill, search, drop))  # runs all three; the first and last yield nothing
