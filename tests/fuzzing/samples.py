"""A value of any type that profkit writes to a file, with every field present."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

_WORDS = {"file": "train.py", "function": "train", "source": "loss.item()", "kind": "rare", "path": "trainer.losses"}
_LARGEST = 40


def sample(kind: Any, name: str = "") -> Any:  # noqa: PLR0911  # a kind of type each
    """JSON of this type; text and numbers are plausible for the field's name."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(one for one in arguments if one is not type(None)), name)
    if origin is typing.Annotated:
        return sample(arguments[0], name)
    if origin is tuple:
        several = len(arguments) == 2 and arguments[1] is Ellipsis
        return [sample(one, name) for one in ((arguments[0],) * 3 if several else arguments)]
    if origin in (dict, Mapping):
        return {_key(arguments[0], at): sample(arguments[1], name) for at in range(2)}
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or hasattr(kind, "__dataclass_fields__")):
        return {field: sample(hint, field) for field, hint in typing.get_type_hints(kind, include_extras=True).items()}
    if kind is bool:
        return True
    if kind is int:
        return 700_000 if name.endswith("_ns") else 4096 if "bytes" in name else 7 + len(name) % _LARGEST
    if kind is float:
        return 0.25
    return _WORDS.get(name, name or "train")


def _key(kind: Any, at: int) -> str:
    return str(10 + at) if kind is int else f"train{at}.py"
