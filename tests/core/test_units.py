"""Quantities as text."""

from __future__ import annotations

import pytest

from profkit.core.printing import writable
from profkit.core.units import format_bytes, format_count, format_long_time, format_share, format_time


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (9_996, "10.0 µs"),
        (99_960, "100 µs"),
        (999_499, "999 µs"),
        (999_600, "1.00 ms"),
        (1_234_567, "1.23 ms"),
        (12_345_678, "12.3 ms"),
        (999_999_999, "1.00 s"),
        (7_200_000_000_000, "7,200 s"),
        (-1_500, "-1.50 µs"),
    ],
)
def test_a_time_has_three_digits_and_the_unit_that_fits(time_ns: int, text: str) -> None:
    assert format_time(time_ns) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (4_096, "4.10 kB"), (999_950, "1.00 MB"), (2e13, "20.0 TB")])
def test_sizes_use_powers_of_a_thousand(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (0.0001, "< 0.1 %"),
        (-0.0001, "0 %"),
        (0.0005, "0.1 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.1234, "12 %"),
        (1.5, "150 %"),
    ],
)
def test_a_share_keeps_a_decimal_below_ten_percent(fraction: float, text: str) -> None:
    assert format_share(fraction) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 second"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (7_200, "2 hours"),
        (100_000, "28 hours"),
        (172_800, "2 days"),
        (2_419_200, "4 weeks"),
        (10_886_400, "18 weeks"),
        (94_672_800, "3 years"),
    ],
)
def test_a_long_time_is_told_in_whole_units(seconds: float, text: str) -> None:
    assert format_long_time(seconds * 1e9) == text


def test_one_of_a_thing_is_singular() -> None:
    assert [format_count(number, "step") for number in (0, 1, 2_000)] == ["0 steps", "1 step", "2,000 steps"]
    assert [format_count(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "1.2 µs at café.py…"),
        (None, "1.2 µs at café.py…"),
        ("latin-1", "1.2 us at café.py..."),
        ("ascii", "1.2 us at caf\\xe9.py..."),
        ("no-such-encoding", "1.2 µs at café.py…"),
    ],
)
def test_a_text_is_written_with_characters_that_the_stream_can_encode(encoding: str | None, text: str) -> None:
    assert writable("1.2 µs at café.py…", encoding) == text
