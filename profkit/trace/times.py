"""Times of a trace: from microseconds, in any notation, to whole nanoseconds.

A float64 resolves a nanosecond up to 8.8e12 µs, but only 250 ns at 1.7e15 µs. Recordings of 2023 and 2024 give the time
since 1970 with three decimals; as floats, events that follow each other would seem to overlap. So fractions stay text
until here, and large times are computed from the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from profkit.trace.events import Bools, Int64s

Numbers = np.ndarray[Any, np.dtype[Any]]
DAY_NS = 86_400 * 10**9
_LARGEST_US = 4e15  # the year 2096; 1000 times that is the last power of ten in 64 bits
_COARSE_US = 2.0**43
"""From here on, neighbouring float64 values are more than a nanosecond apart."""

_MOST_FIXED_CHARACTERS = 20
"""19 digits and the point: longer times do not fit 64 unsigned bits as nanoseconds."""


def numbers_of(values: Sequence[Any]) -> Numbers | None:
    """The values as an array of integers or of floats; None if some are no number or too large for either."""
    if not values or isinstance(values[0], str):
        return None
    try:
        found = np.array(values)
    except (ValueError, OverflowError):  # nested values
        return None
    return found if found.ndim == 1 and found.dtype in (np.int64, np.float64) else None


def nanoseconds_of(values_us: Sequence[Any], numbers: Numbers | None = None) -> tuple[Int64s, Bools]:
    """Whole nanoseconds, and which of the values are times. The others become 0.

    ``numbers`` are the values' `numbers_of`, if the caller has them already.
    """
    numbers = numbers_of(values_us) if numbers is None else numbers
    if numbers is None and (fixed_ns := _fixed_point(values_us)) is not None:
        return fixed_ns
    if numbers is not None and numbers.dtype == np.int64:
        in_range: Bools = np.abs(numbers) < _LARGEST_US
        return np.where(in_range, numbers, 0) * 1000, in_range
    times_us = _floats(values_us) if numbers is None else numbers
    known: Bools = np.abs(times_us) < _LARGEST_US
    times_us = np.where(known, times_us, 0.0)
    whole_us = np.floor(times_us)
    times_ns = whole_us.astype(np.int64) * 1000 + np.rint((times_us - whole_us) * 1e3).astype(np.int64)
    for i in np.flatnonzero(np.abs(times_us) >= _COARSE_US).tolist():
        if isinstance(text := values_us[i], str):
            times_ns[i] = int((Decimal(text) * 1000).to_integral_value())
    return times_ns, known


def durations_of(values_us: Sequence[Any]) -> tuple[Int64s, int]:
    """Whole nanoseconds, 0 where none are given, and how many values were impossible and became 0: negative (events
    that never ended), too large, or not a number."""
    if (numbers := numbers_of(values_us)) is None:
        values_us = [0 if value is None else value for value in values_us]
    lengths_ns, known = nanoseconds_of(values_us, numbers)
    possible = known & (lengths_ns >= 0) & (lengths_ns <= DAY_NS)
    return np.where(possible, lengths_ns, 0), int((~possible).sum())


def plausible_starts(start_ns: Int64s) -> Bools:
    """Which starts lie within a day of the median. No recording is that long, so the others are from a broken clock."""
    if not len(start_ns) or int(start_ns.max()) - int(start_ns.min()) <= DAY_NS:
        return np.ones(len(start_ns), dtype=bool)
    middle = (len(start_ns) - 1) // 2
    near: Bools = np.abs(start_ns - np.partition(start_ns, middle)[middle]) <= DAY_NS
    return near


def too_coarse(times_us: Numbers | None) -> bool:
    """Whether some numbers may have lost digits of their text: large floats do, and None says nothing."""
    return times_us is None or (times_us.dtype == np.float64 and bool(np.abs(times_us).max(initial=0.0) >= _COARSE_US))


def _fixed_point(values: Sequence[Any]) -> tuple[Int64s, Bools] | None:
    """Nanoseconds, if every value is text of the same length with three decimals, as the profiler writes them."""
    if not values or type(values[0]) is not str or len(values[0]) > _MOST_FIXED_CHARACTERS:
        return None
    try:
        text = np.frombuffer("".join(values).encode("ascii"), dtype=np.uint8)
    except (TypeError, UnicodeEncodeError):
        return None
    width = len(values[0])
    if width < 5 or len(text) != width * len(values):
        return None
    table = text.reshape(-1, width)
    digits = np.delete(table, width - 4, axis=1) - ord("0")
    if (table[:, width - 4] != ord(".")).any() or (digits > 9).any():
        return None
    times_ns = digits.astype(np.uint64) @ (10 ** np.arange(width - 2, -1, -1, dtype=np.uint64))
    known: Bools = times_ns < int(_LARGEST_US) * 1000
    return np.where(known, times_ns, 0).astype(np.int64), known


def _floats(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Floats; nan for anything else than a number."""
    try:
        times = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        times = np.zeros(())
    return times if times.ndim == 1 else np.array([_float(value) for value in values], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
