"""Text as numbers: each distinct text has a code."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from profkit.trace.events import Int32s
from profkit.trace.kineto.convert import Part


class Codes(dict[Any, int]):
    """Gives each new key the next code."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


class KindCodes(Codes):
    """Gives each new kind of event, (category, name, process, thread), the next code."""

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0

    def __missing__(self, key: Any) -> int:
        self.size_bytes += 400 + len(key[1])
        return super().__missing__(key)

    def keys_by_code(self) -> list[Any]:
        return list(self)


class TextCodes(dict[bytes, int]):
    """Gives each new text the next code; no text has `NONE`."""

    def __init__(self) -> None:
        super().__init__({b"": -1})
        self.size_bytes = 0

    def __missing__(self, key: bytes) -> int:
        code = self[key] = len(self) - 1
        self.size_bytes += 200 + 2 * len(key)  # as bytes here and as a string in the trace
        return code

    def keys_by_code(self) -> list[bytes]:
        return [text for text, code in self.items() if code >= 0]

    def texts(self) -> tuple[str, ...]:
        return tuple(text.decode("utf-8", "replace") for text in self.keys_by_code())


Table = TypeVar("Table", KindCodes, TextCodes)


def codes_of(codes: dict[Any, int], keys: Sequence[Any]) -> Int32s:
    """The code of each key."""
    return np.frombuffer(array("i", list(map(codes.__getitem__, keys))), dtype=np.int32)


def text_codes(codes: TextCodes, raws: Sequence[msgspec.Raw]) -> Part:
    """The codes of undecoded text. Turning everything into bytes at once is several times faster than one by one."""
    joined = b"\0".join(raws)
    if len(joined) == len(raws) - 1:
        return None
    texts = joined.split(b"\0")
    return codes_of(codes, texts if len(texts) == len(raws) else list(map(bytes, raws)))


def recode(table: Table, parts: Sequence[dict[str, Part]], columns: Sequence[str]) -> Table:
    """A table of only the texts that the columns still use. The columns get its codes in place."""
    used = np.zeros(len(table) + 1, dtype=bool)
    held = [(part, key, part[key]) for part in parts for key in columns]
    for _, _, codes in held:
        if codes is not None:
            used[codes] = True  # the code -1, for no text, marks the last place
    used[-1] = False
    renewed = type(table)()
    new_codes = np.full(len(used), -1, dtype=np.int32)
    keys = table.keys_by_code()
    for code in np.flatnonzero(used).tolist():
        new_codes[code] = renewed[keys[code]]
    for part, key, codes in held:
        part[key] = None if codes is None else new_codes[codes]
    return renewed
