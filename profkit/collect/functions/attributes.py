"""Which attributes of its object a method reads, by its bytecode: what else the object holds is no matter to it."""

from __future__ import annotations

import dis
from collections.abc import Collection
from types import CodeType
from typing import Any

from torch import nn

_READS = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_MOST_CODE = 4000
"""Bytes: a longer function takes milliseconds to read, and reads much."""


def attributes_read(code: CodeType) -> frozenset[str] | None:
    """Of its first argument. None if the function does anything else with that than reading attributes."""
    if not code.co_argcount or len(code.co_code) > _MOST_CODE:
        return None
    name, found = code.co_varnames[0], set[str]()
    if name in code.co_cellvars:
        return None
    instructions = list(dis.get_instructions(code))
    for at, step in enumerate(instructions):
        if step.argval != name and not (isinstance(step.argval, tuple) and name in step.argval):
            continue
        following = instructions[at + 1] if at + 1 < len(instructions) else None
        if not step.opname.startswith("LOAD_FAST") or step.argval != name or following is None:
            if step.opname.endswith(("_FAST", "FAST_LOAD_FAST", "FAST_STORE_FAST")) or isinstance(step.argval, tuple):
                return None
            continue  # an attribute or a constant of that name
        if following.opname not in _READS:
            return None
        found.add(str(following.argval))
    return frozenset(found)


def known_attributes(value: Any, read: Collection[str]) -> tuple[str, ...] | None:
    """Those in the object's own dict. None if one of them is not there, such as a method, which may read others; or if
    the object is a module, whose parameters and buffers lie elsewhere."""
    inside = own_attributes(value)
    if issubclass(type(value), nn.Module) or inside is None or any(name not in inside for name in read):
        return None
    return tuple(sorted(read))


def own_attributes(value: Any) -> dict[str, Any] | None:
    """The object's own dict, past what its class does when an attribute is read: a lazy module would be loaded."""
    try:
        inside: Any = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return inside if type(inside) is dict else None
