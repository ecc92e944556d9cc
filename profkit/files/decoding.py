"""JSON that profkit wrote, decoded from a file that anybody may have written."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of a content that is not what it should be."""
_LONG_NUMBER = re.compile(rb"\d{19}")
_LARGEST = 2**63 - 1
_Value = TypeVar("_Value")


def decode_own(data: bytes, kind: type[_Value]) -> _Value:
    """The value. Raises one of `DAMAGE` if it is of another type, or if it holds an integer of more than 64 bits:
    profkit writes none, and neither NumPy nor a float could take it."""
    value = msgspec.json.decode(data, type=kind)
    if _LONG_NUMBER.search(data) and _holds_huge_number(msgspec.json.decode(data)):
        raise msgspec.ValidationError("it holds a number of more than 64 bits")
    return value


def _holds_huge_number(value: Any) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, int) and abs(one) > _LARGEST:
            return True
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return False
