"""Quantities as people read them: three significant digits and a fitting unit."""

from __future__ import annotations

_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
_SIZES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def format_time(time_ns: float) -> str:
    """``1_234_567`` ns → ``'1.23 ms'``."""
    return _scaled(time_ns, _TIMES)


def format_bytes(size_bytes: float) -> str:
    """``4_096`` bytes → ``'4.10 kB'`` (powers of 1000, as PyTorch's allocator statistics and disks count)."""
    return _scaled(size_bytes, _SIZES)


def format_share(fraction: float) -> str:
    """``0.1234`` → ``'12 %'``; one decimal below ten percent, and what would round to nothing is ``'< 0.1 %'``."""
    percent = fraction * 100
    if 0 < abs(percent) < 0.05:
        return "< 0.1 %" if percent > 0 else "> -0.1 %"
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
