"""Statistics of a column: its distinct values, their number, and quantiles.

`numpy` has all of this, but imports masked arrays for it, which takes a tenth of a small diagnosis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from profkit.trace.events import NONE, Bools, Float64s, Rows

_TABLE_ENTRIES_PER_VALUE = 8
"""A table of all possible values may have this many entries per value."""
_LONG_ARRAY_LENGTH = 1000
_IN_A_ROW = 8
"""A loader's workers deliver in turns, of which there are seldom more."""
_APART = 3
"""Of 44 programs on an H100 that repeat one sort of step none has quarters so far apart: 2.8 at most, where launches
run ahead of a busy device. With two workers that load too slowly it was 18."""


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values in rising order. On the rules' short arrays several times faster than `numpy.unique`; for
    long ones with few values a table is faster still."""
    if len(values) >= _LONG_ARRAY_LENGTH and values.dtype.kind == "i":
        least, greatest = int(values.min()), int(values.max())
        if greatest - least < _TABLE_ENTRIES_PER_VALUE * len(values):
            seen = np.zeros(greatest - least + 1, dtype=bool)
            seen[values - least] = True
            return (np.flatnonzero(seen) + least).astype(values.dtype)
    ordered = np.sort(values, axis=None)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def distinct_rows(*columns: NDArray[Any]) -> tuple[Rows, Rows]:
    """The first row of each distinct combination of the columns' values, in rising order of the combinations, and for
    each row the number of its combination."""
    first, inverse = _ranks(columns[0])
    for column in columns[1:]:
        known, rank = _ranks(column)
        first, inverse = _ranks(inverse * np.int64(len(known)) + rank)
    return first, inverse


def _ranks(values: NDArray[Any]) -> tuple[Rows, Rows]:
    """The first row of each distinct value, and for each row the number of its value."""
    least = int(values.min(initial=0))
    span = int(values.max(initial=0)) - least + 1
    if span > _TABLE_ENTRIES_PER_VALUE * len(values):
        _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        return first, inverse
    places = values.astype(np.int64) - least
    seen = np.full(span, NONE, dtype=np.int64)  # a table of all values is several times as fast as sorting
    seen[places[::-1]] = np.arange(len(places) - 1, -1, -1)
    known = np.flatnonzero(seen >= 0)
    first = seen[known]
    seen[known] = np.arange(len(known))
    return first, seen[places]


def among(values: NDArray[Any], wanted: NDArray[Any]) -> Bools:
    """Which of the values are among the wanted ones."""
    known = distinct(wanted)
    if not len(known):
        return np.zeros(len(values), dtype=bool)
    found: Bools = known[np.searchsorted(known, values).clip(max=len(known) - 1)] == values
    return found


def occurrences(values: NDArray[Any]) -> Rows:
    """How often each value occurs before its own place.

    >>> occurrences(np.array([7, 5, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    counted = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    found = np.empty_like(counted)
    found[order] = counted
    return found


def median(values: ArrayLike) -> float:
    """The value in the middle, or the mean of both if there are two; there must be values.

    >>> median([3, 1, 4, 1])
    2.0
    """
    return quantile(values, 0.5)


def pace(times: ArrayLike) -> float:
    """How long one of many in a row usually takes; there must be times.

    That is the median, unless many are short and many long: a quarter takes over three times as long as another. A
    loader's batches may come in twos, and the median is then the time of one of both sorts, or of none. Instead it is
    the median of the means of eight in a row.

    >>> pace([20, 360] * 10)
    190.0
    >>> pace([20, 60] * 10)
    40.0
    """
    row = np.asarray(times, dtype=np.float64)
    if not are_of_two_sorts(row):
        return median(row)
    return median(np.convolve(row, np.full(_IN_A_ROW, 1 / _IN_A_ROW), "valid"))


def are_of_two_sorts(times: ArrayLike) -> bool:
    """Whether many are short and many long: a quarter takes over three times as long as another.

    >>> are_of_two_sorts([20, 360] * 10), are_of_two_sorts([20, 60] * 10)
    (True, False)
    """
    row = np.asarray(times, dtype=np.float64)
    return len(row) >= 2 * _IN_A_ROW and quantile(row, 0.75) > _APART * quantile(row, 0.25)


def deviation(values: ArrayLike) -> float:
    """The median absolute deviation from the median; there must be values.

    >>> deviation([3, 1, 4, 1])
    1.0
    """
    return median(np.abs(np.asarray(values) - median(values)))


def relative_deviation(values: ArrayLike) -> float:
    """The median absolute deviation as a share of the median, which counts as 1 at least; there must be values."""
    return deviation(values) / max(median(values), 1)


def quantile(values: ArrayLike, share: float) -> float:
    """The value below which this share of the values lies, interpolated linearly (definition 7 of Hyndman and Fan,
    1996, as in `numpy.quantile`); there must be values."""
    known = np.asarray(values).ravel()
    place = share * (len(known) - 1)
    below = int(place)
    above = min(below + 1, len(known) - 1)
    ordered = np.partition(known, (below, above))
    return float(ordered[below] + (ordered[above] - ordered[below]) * (place - below))


def constant(value: int | bool, kind: type[Any], length: int) -> np.ndarray[Any, Any]:
    """A read-only column that holds the same value everywhere and takes no memory."""
    return np.broadcast_to(np.array(value, dtype=kind), length)


BLOCKS = 8
"""Into which a row of steps is divided: chance alone orders their fastest steps by 0.75 or more once in 363 times."""


def fastest_of_blocks(steps_ns: Float64s) -> Float64s:
    """The fastest step of each of the blocks of a row: what holds single steps up does not show in it."""
    return np.array([block.min() for block in np.array_split(steps_ns, BLOCKS)])


def rank_order(values: Float64s) -> float:
    """Kendall's tau between the values and their places: 1 if each is larger than all before it."""
    signs = np.sign(values[None, :] - values[:, None])
    pairs = len(values) * (len(values) - 1) / 2
    return float(np.triu(signs, 1).sum() / pairs)
