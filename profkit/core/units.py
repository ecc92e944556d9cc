"""Quantities as people read them: three significant digits and a fitting unit."""

from __future__ import annotations

_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
_LONG_TIMES = (
    ("year", 31_557_600, 63_115_200),
    ("week", 604_800, 2_419_200),
    ("day", 86_400, 172_800),
    ("hour", 3_600, 7_200),
    ("minute", 60, 120),
    ("second", 1, 0),
)
"""A unit, its seconds, and from how many seconds on it is used: from two of it on, or four weeks."""
_SIZES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def format_time(time_ns: float) -> str:
    """``1_234_567`` ns → ``'1.23 ms'``."""
    return _scaled(time_ns, _TIMES)


def format_long_time(time_ns: float) -> str:
    """Hours and more, roughly: ``7.2e12`` ns → ``'2 hours'``, ``1.2e16`` → ``'20 weeks'``."""
    for unit, size_s, from_s in _LONG_TIMES:
        if time_ns / 1e9 >= from_s or size_s == 1:
            return format_count(max(round(time_ns / 1e9 / size_s), 1), unit)
    raise AssertionError("the last unit always fits")


def format_bytes(size_bytes: float) -> str:
    """``4_096`` bytes → ``'4.10 kB'`` (powers of 1000, as PyTorch's allocator statistics and disks count)."""
    return _scaled(size_bytes, _SIZES)


def format_share(fraction: float) -> str:
    """``0.1234`` → ``'12 %'``; one decimal below ten percent, and what would round to nothing is ``'< 0.1 %'``,
    below zero ``'0 %'``."""
    percent = fraction * 100
    if 0 < abs(percent) < 0.05:
        return "< 0.1 %" if percent > 0 else "0 %"
    return f"{percent:.0f} %" if abs(percent) >= 9.95 or percent == 0 else f"{percent:.1f} %"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """``(2, 'step')`` → ``'2 steps'``; ``plural`` if an s is not enough."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def pick_form(number: int, of_one: str, of_several: str) -> str:
    """``(1, 'adds', 'add')`` → ``'adds'``: the verb that goes with a count."""
    return of_one if number == 1 else of_several


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str:
    """The largest unit in which the rounded value is at least one: 999.9 µs is ``'1.00 ms'``, not ``'1000 µs'``."""
    for unit, size in units:
        if abs(value) >= size * 0.9995 or unit == units[-1][0]:
            scaled = value / size
            digits = 0 if abs(scaled) >= 99.95 or size == 1.0 else 1 if abs(scaled) >= 9.995 else 2
            return f"{scaled:,.{digits}f} {unit}"
    raise AssertionError("the last unit always fits")
