"""Which intervals overlap without one enclosing the other."""

from __future__ import annotations

import numpy as np

from profkit.trace.events import Bools, Int64s

LEAST = -(2**62)
"""Before all times, and far enough from the end of 64 bits to add a difference."""
_LOOKS_PER_VALUE = 4
"""To look at each value of each range is faster than maxima of all ranges, if that is so many looks per value at most.
Segments between places of a replay, which do not overlap, took a quarter of the time."""


def find_crossing(begins: Int64s, ends: Int64s) -> Bools:
    """Which of the intervals cross another. They are sorted by start and falling length."""
    order = np.lexsort((begins, -ends))  # as if time ran backwards
    crossing = _outlived(begins, ends)
    crossing[order] |= _outlived(-ends[order], -begins[order])
    return crossing


def _outlived(begins: Int64s, ends: Int64s) -> Bools:
    """Which intervals still run when another begins that ends after them. All are sorted by start."""
    following = np.arange(1, len(begins) + 1)
    latest = greatest(ends, following, np.maximum(np.searchsorted(begins, ends), following))
    return latest > ends


def greatest(values: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """The maximum of ``values[first:last]`` for each range, `LEAST` for an empty one."""
    found = np.full(len(first), LEAST, dtype=np.int64)
    rows = np.flatnonzero(last > first)
    begin, end = first[rows], last[rows]
    looks = int((end - begin).sum()) + int((begin[1:] - end[:-1]).clip(min=0).sum())
    look = _look_through if looks <= _LOOKS_PER_VALUE * len(values) else _double
    found[rows] = look(values, begin, end)
    return found


def _look_through(values: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """`greatest` for few values in all, also between the end of one range and the beginning of the next."""
    if not len(first):
        return first
    edges = np.stack([first, last], axis=1).ravel()
    maxima: Int64s = np.maximum.reduceat(np.append(values, LEAST), edges)[::2]
    return maxima


def _double(values: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """`greatest` for ranges that overlap. Two ranges whose length is a power of two cover each range. The maxima of all
    ranges of such a length follow from those of half the length."""
    found = np.full(len(first), LEAST, dtype=np.int64)
    power = np.frexp((last - first).astype(np.float64))[1] - 1
    of_length = values
    for exponent in range(int(power.max(initial=-1)) + 1):
        rows, length = np.flatnonzero(power == exponent), 1 << exponent
        found[rows] = np.maximum(of_length[first[rows]], of_length[last[rows] - length])
        of_length = np.maximum(of_length[:-length], of_length[length:])
    return found
