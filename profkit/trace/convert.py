"""From one field of many decoded events to one column, narrow where its values are."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from profkit.trace.events import Int32s
from profkit.trace.kineto_schema import MISSING

Part = np.ndarray[Any, Any] | None
"""A stretch of a column; None where no event has the field."""


class Codes(dict[Any, int]):
    """Gives each new key the next code."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


class TextCodes(dict[bytes, int]):
    """Gives each new text the next code; no text has `NONE`."""

    def __init__(self) -> None:
        super().__init__({b"": -1})

    def __missing__(self, key: bytes) -> int:
        code = self[key] = len(self) - 1
        return code

    def texts(self) -> tuple[str, ...]:
        return tuple(text.decode("utf-8", "replace") for text, code in self.items() if code >= 0)


def codes_of(codes: dict[Any, int], keys: Sequence[Any]) -> Int32s:
    """The code of each key."""
    return np.frombuffer(array("i", list(map(codes.__getitem__, keys))), dtype=np.int32)


def text_codes(codes: TextCodes, raws: Sequence[msgspec.Raw]) -> Part:
    """The codes of undecoded text. To make bytes of all at once is several times faster than one by one."""
    joined = b"\0".join(raws)
    if len(joined) == len(raws) - 1:
        return None
    texts = joined.split(b"\0")
    return codes_of(codes, texts if len(texts) == len(raws) else list(map(bytes, raws)))


def integers(values: Sequence[Any]) -> Part:
    """Integers, `NONE` for what is missing or does not fit 64 bits."""
    if values.count(MISSING) == len(values):
        return None
    try:
        return np.frombuffer(array("q", values), dtype=np.int64)
    except (TypeError, OverflowError):
        return np.array([_integer(value) for value in values], dtype=np.int64)


def narrow(column: Part) -> Part:
    """The same numbers in 32 bits where they fit."""
    if column is None or column.dtype != np.int64 or column.min() < -(2**31) or column.max() >= 2**31:
        return column
    return column.astype(np.int32)


def either(first: Part, second: Part) -> Part:
    """What one era of traces calls so and another otherwise."""
    if first is None or second is None:
        return second if first is None else first
    return np.where(first == MISSING, second, first)


def _integer(value: Any) -> int:
    try:
        number = int(value, 16) if isinstance(value, str) and value[:2].lower() == "0x" else int(value)
    except (TypeError, ValueError, OverflowError):
        return MISSING
    return int(number) if -(2**63) <= number < 2**63 else MISSING
