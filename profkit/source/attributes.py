"""An object's attributes as they lie in its ``__dict__``, found without running code of the program.

A class may have a property, or anything else, of the name ``__dict__``, which even ``object.__getattribute__`` calls.
"""

from __future__ import annotations

from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import Any

_bases_of = type.__dict__["__mro__"].__get__
_names_of = type.__dict__["__dict__"].__get__
_OF_PYTHON = (GetSetDescriptorType, MemberDescriptorType)
"""What Python itself puts under that name into a class; a module's is the second."""


def names_of(kind: type) -> MappingProxyType[str, Any]:
    """What a class defines itself."""
    names: MappingProxyType[str, Any] = _names_of(kind)
    return names


def attributes_of(value: object) -> dict[str, Any]:
    """The attributes by name; empty if the object has none of its own, or if its class hides them."""
    for kind in _bases_of(type(value)):
        held = _names_of(kind).get("__dict__")
        if held is not None:
            return held.__get__(value) if type(held) in _OF_PYTHON else {}
    return {}
