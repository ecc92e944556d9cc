"""JSON that profkit wrote, decoded from a file that anybody may have written."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of a content that is not what it should be."""
_LONG_NUMBER = re.compile(rb"\d{19}")
_Value = TypeVar("_Value")


def decode_own(data: bytes, kind: type[_Value], most_bits: int = 64) -> _Value:
    """The value. Raises one of `DAMAGE` if it is of another type, or if it holds an integer of more bits: NumPy takes
    64 of them, a float 1024."""
    value = msgspec.json.decode(data, type=kind)
    if _LONG_NUMBER.search(data) and _holds_huge_number(msgspec.json.decode(data), 2 ** (most_bits - 1)):
        raise msgspec.ValidationError(f"it holds a number of more than {most_bits} bits")
    return value


def _holds_huge_number(value: Any, most: int) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, int) and not -most <= one < most:
            return True
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return False
