"""From one field of many decoded events to one column, as narrow as its values allow."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from profkit.trace.events import NONE, Int32s
from profkit.trace.kineto.schema import MISSING
from profkit.trace.statistics import constant

Part = np.ndarray[Any, Any] | None
"""A stretch of a column; None if no event has the field."""


def integers(values: Sequence[Any]) -> Part:
    """Integers, `NONE` for values that are missing or do not fit 64 bits."""
    if values.count(MISSING) == len(values):
        return None
    try:
        return np.frombuffer(array("q", values), dtype=np.int64)
    except (TypeError, OverflowError):
        return np.array([v if type(v) is int and abs(v) < 2**63 else _integer(v) for v in values], dtype=np.int64)


def narrow(column: Part) -> Part:
    """The same numbers in 32 bits if they fit."""
    if column is None or column.dtype != np.int64 or column.min() < -(2**31) or column.max() >= 2**31:
        return column
    return column.astype(np.int32)


def join(parts: Sequence[Part], lengths: Sequence[int], missing: int, kind: type[Any] | None = None) -> Part:
    """Consecutive stretches as one, of the type ``kind`` or of the narrowest that fits all. Stretches without the field
    hold the missing value."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    joined = np.empty(sum(lengths), dtype=kind or np.result_type(*known))
    at = 0
    for part, length in zip(parts, lengths, strict=True):
        joined[at : at + length] = missing if part is None else part
        at += length
    return joined


def by_kind(column: np.ndarray[Any, Any], kind: Int32s) -> np.ndarray[Any, Any]:
    """For each event what the column says about its kind."""
    if len(kind) and column.dtype == np.int32 and (column == NONE).all():
        return constant(NONE, np.int32, len(kind))
    found: np.ndarray[Any, Any] = column[kind]
    return found


def either(first: Part, second: Part) -> Part:
    """A field that has two names in different releases."""
    if first is None or second is None:
        return second if first is None else first
    return np.where(first == MISSING, second, first)


def _integer(value: Any) -> int:
    try:
        number = int(value, 16) if isinstance(value, str) and value[:2].lower() == "0x" else int(value)
    except (TypeError, ValueError, OverflowError):
        return MISSING
    return int(number) if -(2**63) <= number < 2**63 else MISSING
